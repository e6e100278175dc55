"""`xbench-fast report`: a run directory -> tables, figures and a page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from ...engines.commands import Choice, echo
from ...engines.errors import RunError
from ...metrics_gpu.grounding.protocols import PROTOCOLS, GroundingOptions, IouAt, Unit
from ...metrics_gpu.sweep.counts import Ties
from ..reporting.tables.latex import TEXT_WIDTH
from ..reporting.tables.table import Intervals
from ..results.choices import F1, SCORERS, Auprc, Choices, Constant, Mean, Pairs
from .completing import RUN_DATASETS, RUN_MODELS
from .examples import examples
from .shared_options import (
    Output,
    config_option,
    datasets_option,
    json_option,
    models_option,
    raw_csv_option,
    repeated,
    resolve_config,
    setting,
)

if TYPE_CHECKING:
    from ..results.load_rows import StoredRun

F = TypeVar("F", bound=Callable[..., Any])


_DEFAULTS = Choices()
_PROTOCOL = GroundingOptions()


def _choice(name: str, kind: Any, text: str, default: object = None) -> Callable[[F], F]:
    """An option for one of the values of the Literal `kind`; its default is that of `Choices`, or what is given."""
    key = name.removeprefix("--").replace("-", "_")
    return setting(name, type=Choice(get_args(kind)), help=text, default=default or getattr(_DEFAULTS, key))


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
    help='Printed name of a model or dataset, e.g. kad-224=KAD or rsna="RSNA, test".',
)
@repeated(
    "--column",
    "columns",
    metavar="NAME",
    help="Number to show in tables, in the order given, e.g. point, dice or iou. mean adds means over datasets; paper "
    "adds the paper's numbers to those of the run.",
    default="all",
)
@click.option(
    "--intervals",
    type=click.Choice(get_args(Intervals)),
    default="below",
    show_default=True,
    help="Where the interval of a value stands.",
)
@click.option(
    "--text-width",
    type=click.FloatRange(150, 2000),
    default=TEXT_WIDTH,
    show_default=True,
    help="Points that a LaTeX table may be wide; a wider one is split.",
)
@raw_csv_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the report.  [default: RUN/report]")
@click.option("--full", is_flag=True, help="Print all tables, not Table 1 alone.")
@click.option("--quiet", is_flag=True, help="Write the files, print no tables.")
@click.option(
    "--no-page",
    is_flag=True,
    help="Write the tables only: no figures, no overlays, no index.html; those of an earlier report stay.",
)
@click.option(
    "--card",
    is_flag=True,
    help="Add a trust card for each model on each dataset, in cards/. What needs forward passes says which command "
    "runs it.",
)
@repeated(
    "--trust",
    "trust_folders",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Trust directory, made by xbench-fast trust, whose results are shown on the cards. Implies --card.",
)
@setting(
    "--replicates",
    type=click.IntRange(min=0),
    help="Bootstrap resamples of the patients; 95 % intervals need 40 or more; 0: no intervals.",
    default=_DEFAULTS.replicates,
)
@setting("--seed", type=click.IntRange(min=0), help="Seed of the resampling.", default=_DEFAULTS.seed)
@setting(
    "--protocol",
    "protocols",
    multiple=True,
    type=Choice([*PROTOCOLS, *SCORERS]),
    help="How maps are thresholded and counted; or a published scorer of boxes that is shown, which can be repeated.",
    default="as evaluated; every scorer",
)
@setting(
    "--tau-from",
    type=float,
    help="First threshold of the search: 0, or 0.01 as in the paper.",
    default=f"{_PROTOCOL.tau_from:g}",
)
@_choice(
    "--best",
    Unit,
    "What a best threshold is searched for. All but cross_fit are in-sample: chosen on the pairs they are scored on.",
    _PROTOCOL.unit,
)
@_choice("--iou-at", IouAt, "IoU at the threshold found for Dice, or at its own.", _PROTOCOL.iou_at)
@_choice("--ties", Ties, "Pointing where several pixels are the maximum.", _PROTOCOL.ties)
@click.option("--tolerance-px", type=float, help="A miss this near to a region is a hit, in pixels of the 224 grid.")
@_choice("--constant", Constant, "A constant map is a miss, or its pair is left out.")
@_choice("--pairs", Pairs, "Count all pairs, or those whose finding the model predicts.", "all")
@_choice("--auprc", Auprc, "Area under the precision-recall curve.")
@_choice("--f1", F1, "F1 at p >= 0.5, or at the best threshold for these images.")
@_choice("--mean", Mean, "Over classes: unweighted, or weighted by pairs.")
@_choice("--mean-datasets", Mean, "Over datasets: unweighted, or weighted by pairs.")
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
    **asked: Any,
) -> int:
    """Write the report of the run directory RUN to RUN/report/ and print its Table 1, or with --full all tables.

    RUN defaults to the run directory of the configuration. Nothing is inferred again: numbers come from stored counts,
    and those of another protocol or with a tolerance from stored maps. The folder holds index.html (opens offline),
    tables as Markdown, LaTeX, CSV and JSON, and the figures as PDF, SVG and PNG. All files are written before anything
    is printed.
    """
    from ..evaluation.progress import progress_for
    from ..reporting.presentation import Presentation, parse_columns, parse_names
    from ..reporting.report import make_report, write_report
    from ..reporting.tables.console import make_console, print_table
    from ..results.choices import Choices, split_protocols
    from ..results.run_json import read_run

    asked["protocol"], scorers = split_protocols(protocols)
    choices = Choices(**{name: value for name, value in asked.items() if value is not None})
    config = resolve_config(config_file, (), ()) if run is None or config_file is not None else None
    chosen = tuple(dict.fromkeys(models)), tuple(dict.fromkeys(datasets)), parse_names(names), parse_columns(columns)
    shown = Presentation(*chosen, intervals, text_width, scorers, raw_csv)
    place = run or resolve_config(config_file).eval.out
    progress = progress_for(make_console(stderr=True))
    with progress.cell("numbers of the report", len(read_run(place)["cells"]), "cells") as advance:
        made = make_report(place, choices, shown, advance)
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
    found = [
        f"{model} on {dataset} ({reason.removesuffix(f'; {again}').rstrip('.')})"
        for (model, dataset), reason in run.unfinished.items()
    ]
    if not run.finished:
        told = "; ".join(found) or "none was begun"
        if run.running:
            raise RunError(f"{run.path} has no finished cell to report yet: {told}. {run.running}")
        raise RunError(f"{run.path} has no finished cell to report: {told}; solve what failed and {again}.")
    done = len(run.finished)
    return f"{done} of {done + len(found)} cells finished; not finished: {'; '.join(found)}" if found else ""


def _places(written: list[Path]) -> list[str]:
    """The files, those of a folder inside the report's as one."""
    folder = min((path.parent for path in written), key=lambda parent: len(parent.parts))
    inside = Counter(path.parent for path in written if path.parent != folder)
    return [
        *(str(path) for path in written if path.parent == folder),
        *(f"{parent} ({count} files)" for parent, count in inside.items()),
    ]
