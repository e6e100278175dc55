"""`xbench-fast report`: a run directory -> tables."""

from __future__ import annotations

from pathlib import Path

import click

from .options import config_option, resolve_config

__all__ = ["report"]


@click.command(short_help="Print and write the tables of a run.")
@click.argument("run", type=click.Path(path_type=Path), required=False)
@config_option
@click.option("--quiet", is_flag=True, help="Write the files, print no tables.")
def report(run: Path | None, config_file: Path | None, quiet: bool) -> int:
    """Print the tables of the run directory RUN and write them to RUN/report/ as Markdown, CSV and JSON.

    RUN defaults to the run directory of the configuration. Nothing is inferred again.
    """
    from ..reporting.console import print_table
    from ..reporting.report import report_tables, write_report
    from .terminal import make_console

    opened, results, tables = report_tables(run or resolve_config(config_file).eval.out)
    console = make_console()
    if not quiet:
        for table in tables:
            print_table(console, table)
    for path in write_report(opened, results, tables):
        click.echo(f"written: {path}")
    return 0
