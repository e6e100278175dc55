"""`xbench-fast report`: a run directory -> tables, figures and a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from .options import config_option, resolve_config

__all__ = ["report"]

F = TypeVar("F", bound=Callable[..., Any])


def _choice(name: str, values: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=click.Choice(values.split("|")), help=text)


@click.command(short_help="Tables, figures and a page of a run, with intervals.")
@click.argument("run", type=click.Path(path_type=Path), required=False)
@config_option
@click.option("--quiet", is_flag=True, help="Write the files, print no tables.")
@click.option("--no-page", is_flag=True, help="Write the tables only: no figures, no overlays, no index.html.")
@click.option(
    "--replicates", type=click.IntRange(min=0), help="Resamples of the patients; 0: no intervals.  [default: 1000]"
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the resampling.  [default: 20251022]")
@_choice(
    "--protocol",
    "default|paper|chexlocalize|medklip|mavl",
    "How maps are thresholded and counted.  [default: as evaluated]",
)
@click.option("--tau-from", type=float, help="First threshold of the search: 0, or 0.01 as in the paper.  [default: 0]")
@_choice(
    "--best",
    "per_class|per_dataset|per_model|per_image|cross_fit",
    "What a best threshold is sought for; all but cross_fit are in-sample.  [default: per_class]",
)
@_choice("--iou-at", "joint|independent", "IoU at the threshold found for Dice, or at its own.  [default: joint]")
@_choice("--ties", "first|any|expected", "Pointing where several pixels are the maximum.  [default: first]")
@click.option("--tolerance-px", type=float, help="A miss this near to a region is a hit, in pixels of the 224 grid.")
@_choice("--constant", "miss|skip", "A constant map is a miss, or its pair is left out.  [default: miss]")
@_choice("--pairs", "all|true_positives", "Count all pairs, or those whose finding the model predicts.  [default: all]")
@_choice(
    "--auprc", "average_precision|trapezoid", "Area under the precision-recall curve.  [default: average_precision]"
)
@_choice("--f1", "fixed|best", "F1 at p >= 0.5, or at the threshold best for these images.  [default: fixed]")
@_choice("--mean", "macro|micro", "Over classes: unweighted, or weighted by pairs.  [default: macro]")
@_choice("--mean-datasets", "macro|micro", "Over datasets: unweighted, or weighted by pairs.  [default: macro]")
def report(run: Path | None, config_file: Path | None, quiet: bool, no_page: bool, **asked: Any) -> int:
    """Print the tables of the run directory RUN and write its report to RUN/report/.

    RUN defaults to the run directory of the configuration. Nothing is inferred again: numbers come from stored counts,
    and those of another protocol or with a tolerance from stored maps. The folder holds index.html (opens offline),
    tables as Markdown, LaTeX, CSV and JSON, and the figures as SVG and PNG.
    """
    from ..reporting.report import make_report, write_report
    from ..results.choices import Choices
    from ..tables.console import print_table
    from .terminal import make_console

    choices = Choices(**{name: value for name, value in asked.items() if value is not None})
    config = resolve_config(config_file) if run is None or config_file is not None else None
    made = make_report(run or resolve_config(config_file).eval.out, choices)
    console = make_console()
    if not quiet:
        for table in made.tables:
            if not table.detail:
                print_table(console, table)
    datasets = config.datasets if config is not None else None
    for path in write_report(made, page=not no_page, say=lambda line: click.echo(line, err=True), datasets=datasets):
        click.echo(f"written: {path}")
    return 0
