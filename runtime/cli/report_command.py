"""`xbench-fast report`: a run directory -> tables, figures and a page."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from ...engines.commands import Names, echo
from ...engines.errors import RunError
from ..host.protocols import PROTOCOLS, SCORERS
from ..reporting.tables.latex import TEXT_WIDTH
from ..reporting.tables.table import Intervals
from ..results.choices import Choices, split_protocols
from .options.completing import RUN_DATASETS, RUN_MODELS
from .options.declared_options import options_of, repeated
from .options.examples import examples
from .options.shared_options import (
    Output,
    config_option,
    datasets_option,
    json_option,
    models_option,
    raw_csv_option,
    resolve_config,
)

if TYPE_CHECKING:
    from ..results.load_rows import StoredRun


@click.command(epilog=examples("report"))
@click.argument("run", type=click.Path(path_type=Path), required=False)
@config_option
@json_option
@models_option(
    "Model to show, in the order given. Means, ranks and tests are of the models shown. paper:NAME is the row that the "
    "paper prints for a model; paper adds the rows of all its models that the run lacks.",
    RUN_MODELS,
    "all of the run",
)
@datasets_option("Dataset to show, in the order given.", RUN_DATASETS, "all of the run")
@repeated(
    "--name",
    "names",
    metavar="NAME=PRINTED",
    help='Printed name of a model or dataset, e.g. kad-224=KAD or "rsna=RSNA, test".',
)
@repeated(
    "--column",
    "columns",
    metavar="NAME",
    help="Number to show in tables, in the order given, e.g. point, dice or iou. mean adds means over datasets. paper "
    "adds the paper's numbers.",
    default="all",
)
@click.option(
    "--intervals",
    type=click.Choice(get_args(Intervals)),
    default="below",
    show_default=True,
    help="Place of the interval of a value: in the line below, in the same line, or none.",
)
@click.option(
    "--text-width",
    type=click.FloatRange(150, 2000),
    default=TEXT_WIDTH,
    show_default=True,
    help="Maximum width of a LaTeX table in points. A wider one is split.",
)
@raw_csv_option
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the report.  [default: RUN/report]"
)
@click.option("--full", is_flag=True, help="Print all tables, not only Table 1.")
@click.option("--quiet", is_flag=True, help="Print no tables; only write the files.")
@click.option(
    "--no-page",
    is_flag=True,
    help="Write only the tables, without figures, overlays and index.html. Files of an earlier report stay.",
)
@click.option(
    "--card",
    is_flag=True,
    help="Add a trust card for each model on each dataset, in cards/. A line that needs forward passes names the "
    "command that runs them.",
)
@repeated(
    "--trust",
    "trust_folders",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Trust directory, made by xbench-fast trust, whose results are shown on the cards. Implies --card.",
)
@repeated(
    "--protocol",
    "protocols",
    type=Names(lambda: [*PROTOCOLS, *SCORERS]),
    help="Evaluation protocol by which maps are thresholded and scored, or published scorer of boxes to show.",
    default="as evaluated; every scorer",
)
@options_of(Choices)
def report(
    run: Path | None,
    config_file: Path | None,
    models: tuple[str, ...],
    datasets: tuple[str, ...],
    names: tuple[str, ...],
    columns: tuple[str, ...],
    intervals: Intervals,
    text_width: float,
    raw_csv: bool,
    out: Path | None,
    full: bool,
    quiet: bool,
    no_page: bool,
    card: bool,
    trust_folders: tuple[Path, ...],
    output: Output,
    protocols: tuple[str, ...],
    **choices: Any,
) -> int:
    """Write the report of the run directory RUN to RUN/report/ and print its Table 1, or with --full all tables.

    RUN defaults to the run directory of the configuration. No model runs: numbers come from stored counts, and with
    another protocol or a tolerance from stored maps. The folder holds index.html, which opens offline, tables as
    Markdown, LaTeX, CSV and JSON, and figures as PDF, SVG and PNG. All files are written before anything is printed.
    """
    from ..evaluation.progress import progress_for
    from ..host.pyarrow_alone import without_pandas
    from ..reporting.presentation import Presentation, parse_columns, parse_names
    from ..reporting.report import make_report, write_report
    from ..reporting.tables.console import make_console, print_table
    from ..results.run_json import read_run

    without_pandas()
    protocol, scorers = split_protocols(protocols)
    config = resolve_config(config_file, (), ()) if run is None or config_file is not None else None
    chosen = tuple(dict.fromkeys(models)), tuple(dict.fromkeys(datasets)), parse_names(names), parse_columns(columns)
    scoring = Choices(**choices, protocol=protocol, metrics=Choices.metrics_of(config.metrics if config else {}))
    for line in config.own_metrics() if config else ():
        echo(line, err=True)
    shown = Presentation(*chosen, intervals, text_width, scorers, raw_csv, scoring.own if columns else ())
    directory = run or resolve_config(config_file).eval.out
    progress = progress_for(make_console(stderr=True))
    with progress.cell("numbers of the report", len(read_run(directory)["cells"]), "cells") as advance:
        made = make_report(directory, scoring, shown, advance)
    unfinished = _unfinished(made.run)
    folders = config.datasets if config is not None else None
    say = partial(echo, err=True)
    if made.run.running:
        say(made.run.running)
    if card or trust_folders:
        from ..trust.card.making import with_cards

        made = with_cards(made, trust_folders, folders=folders, page=not no_page, say=say)
    with progress.cell("tables, figures and page of the report", 1, "steps") as advance:
        written = write_report(made, out=out, page=not no_page, say=say, datasets=folders)
        advance(1)
    output.write(json.loads(next(path for path in written if path.name == "report.json").read_bytes()))
    if not quiet and not output.piped:
        console = output.console()
        if unfinished:
            echo(unfinished)
        printed = [table for table in made.tables if table.first or (full and not table.detail)]
        for table in printed:
            print_table(console, table)
        echo()
        if not full:
            echo(f"{len(made.tables) - len(printed)} more tables are in the files; --full prints them here.")
    for line in _places(written):
        output.say(f"written: {line}")
    return 0


def _unfinished(run: StoredRun) -> str:
    """A sentence on the cells without a result; empty if there is none. Raises RunError if no cell has one."""
    again = "run the same eval command again"
    unfinished = [
        f"{model} on {dataset} ({reason.removesuffix(f'; {again}').rstrip('.')})"
        for (model, dataset), reason in run.unfinished.items()
    ]
    if not run.finished:
        reasons = "; ".join(unfinished) or "none was begun"
        if run.running:
            raise RunError(f"{run.path} has no finished cell to report yet: {reasons}. {run.running}")
        raise RunError(f"{run.path} has no finished cell to report: {reasons}; solve what failed and {again}.")
    if not unfinished:
        return ""
    done = len(run.finished)
    return f"{done} of {done + len(unfinished)} cells finished; not finished: {'; '.join(unfinished)}"


def _places(written: list[Path]) -> list[str]:
    """The files; a folder inside the report's folder counts as one."""
    folder = min((path.parent for path in written), key=lambda parent: len(parent.parts))
    inside = Counter(path.parent for path in written if path.parent != folder)
    return [
        *(str(path) for path in written if path.parent == folder),
        *(f"{parent} ({count} files)" for parent, count in inside.items()),
    ]
