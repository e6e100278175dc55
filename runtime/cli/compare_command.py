"""`xbench-fast compare`: two runs, or two models -> what changed, and a gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import echo
from ...engines.errors import ConfigError
from ..host.config import Config
from ..results.choices import Choices
from ..results.own_metrics import OwnName
from .options.completing import RUN_DATASETS, RUN_MODELS
from .options.declared_options import options_of, repeated
from .options.examples import examples
from .options.shared_options import Output, datasets_option, json_option, models_option, resolve_config

if TYPE_CHECKING:
    from ..reporting.comparison.comparison import Comparison
    from ..reporting.comparison.gate import Condition, Verdict

_EPILOG = """\b
--fail-if takes NAME OP NUMBER, as in
  --fail-if "flipped_hits > 0" --fail-if "dice_best_drop > 0.1"
with OP one of > >= < <= == != and NAME one of
  flipped_hits, lost_hits, gained_hits, moved_maxima
  pointing_drop, dice_fixed_drop, dice_best_drop, dice_cross_fitted_drop,
  iou_fixed_drop, iou_best_drop, iou_cross_fitted_drop, auc_drop,
  auprc_drop   (percentage points, worst cell)
  max_dice_change, max_logit_change
  missing_rows, missing_cells, changed_truth, changed_images
or the NUMBER_drop of a metric of your own, [metrics.NAME] of --config.
"""


@click.command(epilog=examples("compare", _EPILOG))
@click.argument("run_a", metavar="RUN_A", type=click.Path(path_type=Path))
@click.argument("run_b", metavar="[RUN_B]", type=click.Path(path_type=Path), required=False)
@models_option(
    "Model to compare. The first is of RUN_A and the second of RUN_B; one alone is of both.",
    RUN_MODELS,
    "the models that both runs have",
)
@datasets_option("Dataset to compare on.", RUN_DATASETS, "all that both runs have")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file whose metrics, [metrics.NAME], are compared too.",
)
@repeated("--fail-if", "conditions", metavar="CONDITION", help="Condition under which the exit status is 1.")
@json_option
@click.option(
    "--markdown",
    "markdown_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File for all tables as Markdown.",
)
@options_of(Choices, "replicates", "seed")
@click.option("--show", type=click.IntRange(min=0), default=20, show_default=True,
              help="Maximum number of lines in each list of single pairs.")  # fmt: skip
@click.option("--classes", is_flag=True, help="Print the changes per finding too.")
@click.option("--quiet", is_flag=True, help="Print only the conditions of --fail-if.")
def compare(
    run_a: Path,
    run_b: Path | None,
    models: tuple[str, ...],
    datasets: tuple[str, ...],
    config_file: Path | None,
    conditions: tuple[str, ...],
    output: Output,
    markdown_file: Path | None,
    replicates: int,
    seed: int,
    show: int,
    classes: bool,
    quiet: bool,
) -> int:
    """Print what changed from RUN_A to RUN_B, row by row and in every number, with paired tests.

    Cells of the same model and dataset are compared on the rows that both runs scored. Rows and cells of only one run
    are counted and named. --model A --model B compares two models, of two runs or of one. Every difference is the
    second minus the first.

    Exit status: 0, or 1 if a --fail-if condition holds or the runs cannot be compared, or 2 for wrong usage.
    """
    from ..host.pyarrow_alone import without_pandas
    from ..reporting.comparison.comparison import compare_runs
    from ..reporting.comparison.gate import judge
    from ..results.load_rows import load_run
    from ..results.selected_pairs import Resampling

    without_pandas()
    config = resolve_config(config_file) if config_file is not None else Config()
    metrics = Choices.metrics_of(config.metrics)
    wanted = _conditions(conditions, [name for metric in metrics for name in metric.numbers])
    pair = _pair(run_b, models)
    a = load_run(run_a)
    b = load_run(run_b) if run_b else a
    for line in dict.fromkeys(filter(None, (a.running, b.running))):
        echo(line, err=True)
    comparison = compare_runs(a, b, pair, datasets, Resampling(replicates, seed), metrics)
    verdicts = judge(comparison, wanted)
    _write(comparison, verdicts, output, markdown_file)
    if not quiet and not output.piped:
        _show(comparison, show, classes)
    for verdict in verdicts:
        output.say(str(verdict))
    return int(any(verdict.fired for verdict in verdicts))


def _conditions(texts: tuple[str, ...], own: list[OwnName]) -> list[Condition]:
    from ..reporting.comparison.gate import parse_condition

    try:
        return [parse_condition(text, own) for text in texts]
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--fail-if") from error


def _pair(run_b: Path | None, models: tuple[str, ...]) -> tuple[str, str] | None:
    """The model of the first run and the model of the second; None for all models that both have."""
    if len(models) > 2:
        raise click.UsageError("--model is given twice at most; compare further models one pair at a time.")
    if run_b is None and len(models) < 2:
        raise click.UsageError("Give a second run, or --model twice for two models of one run.")
    if run_b is None and models[0] == models[1]:
        raise click.UsageError(f"--model is '{models[0]}' twice: within one run there is nothing to compare.")
    return (models[0], models[-1]) if models else None


def _show(comparison: Comparison, show: int, classes: bool) -> None:
    from ..reporting.comparison.comparison_tables import comparison_facts, comparison_tables
    from ..reporting.tables.console import make_console, print_line, print_table

    console = make_console()
    for line in comparison_facts(comparison):
        print_line(console, line)
    for table in comparison_tables(comparison, show, classes=classes):
        print_table(console, table)


def _write(comparison: Comparison, verdicts: list[Verdict], output: Output, markdown_file: Path | None) -> None:
    from ..reporting.comparison.comparison_record import to_record
    from ..reporting.comparison.comparison_tables import comparison_facts, comparison_tables
    from ..reporting.tables.markdown_csv import to_markdown
    from ..results.storage import write_bytes

    output.write(to_record(comparison, verdicts))
    if markdown_file:
        facts = [*comparison_facts(comparison), *map(str, verdicts)]
        text = to_markdown("Comparison", facts, comparison_tables(comparison, show=200))
        write_bytes(markdown_file, text.encode(), "--markdown")
        output.say(f"written: {markdown_file}")
