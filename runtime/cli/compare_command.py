"""`xbench-fast compare`: two runs, or two models -> what changed, and a gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...engines.commands import echo
from ...engines.errors import ConfigError
from ...metrics_gpu.statistics.bootstrap import REPLICATES, SEED
from .completing import RUN_DATASETS, RUN_MODELS
from .examples import examples
from .shared_options import Output, json_option

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
"""


@click.command(epilog=examples("compare", _EPILOG))
@click.argument("run_a", metavar="RUN_A", type=click.Path(path_type=Path))
@click.argument("run_b", metavar="[RUN_B]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--model-a",
    metavar="NAME",
    shell_complete=RUN_MODELS,
    help="Compare this model of RUN_A with --model-b.",
)
@click.option(
    "--model-b",
    metavar="NAME",
    shell_complete=RUN_MODELS,
    help="The model of RUN_B.  [default: --model-a]",
)
@click.option(
    "--dataset",
    "datasets",
    metavar="NAME",
    multiple=True,
    shell_complete=RUN_DATASETS,
    help="Only this dataset; may be repeated.",
)
@click.option("--fail-if", "conditions", metavar="CONDITION", multiple=True,
              help="Exit with status 1 if this holds; may be repeated.")  # fmt: skip
@json_option
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path), help="Write all tables to this file.")
@click.option("--replicates", type=click.IntRange(min=0), default=REPLICATES, show_default=True,
              help="Bootstrap draws of patients; 95 % intervals need 40 or more; 0 for none.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=SEED, show_default=True, help="Seed of the draws.")
@click.option("--show", type=click.IntRange(min=0), default=20, show_default=True,
              help="Lines of each list of single pairs.")  # fmt: skip
@click.option("--classes", is_flag=True, help="Print the changes per finding too.")
@click.option("--quiet", is_flag=True, help="Print only the conditions of --fail-if.")
def compare(
    run_a: Path,
    run_b: Path | None,
    model_a: str | None,
    model_b: str | None,
    datasets: tuple[str, ...],
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

    Cells of the same model and dataset are compared on the rows both runs scored; what only one run has is counted and
    named. With --model-a and --model-b two models are compared, of two runs or of one.

    Exit status: 0, or 1 if a --fail-if condition holds or the runs cannot be compared, or 2 for wrong usage.
    """
    from ..reporting.comparison.comparison import compare_runs
    from ..reporting.comparison.gate import judge
    from ..results.load_rows import load_run
    from ..results.selected_pairs import Resampling

    wanted = _conditions(conditions)
    models = _models(run_b, model_a, model_b)
    a = load_run(run_a)
    b = load_run(run_b) if run_b else a
    for line in dict.fromkeys(filter(None, (a.running, b.running))):
        echo(line, err=True)
    found = compare_runs(a, b, models, datasets, Resampling(replicates, seed))
    verdicts = judge(found, wanted)
    _write(found, verdicts, output, markdown_file)
    if not quiet and not output.piped:
        _show(found, show, classes)
    for verdict in verdicts:
        output.say(str(verdict))
    return int(any(verdict.fired for verdict in verdicts))


def _conditions(texts: tuple[str, ...]) -> list[Condition]:
    from ..reporting.comparison.gate import parse_condition

    try:
        return [parse_condition(text) for text in texts]
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--fail-if") from error


def _models(run_b: Path | None, model_a: str | None, model_b: str | None) -> tuple[str, str] | None:
    if model_a is None and model_b is not None:
        raise click.UsageError("--model-b needs --model-a.")
    if run_b is None and (model_a is None or model_b is None):
        raise click.UsageError("Give a second run, or --model-a and --model-b for two models of one run.")
    if run_b is None and model_a == model_b:
        raise click.UsageError(
            f"--model-a and --model-b are both '{model_a}': within one run there is nothing to compare."
        )
    return None if model_a is None else (model_a, model_b or model_a)


def _show(found: Comparison, show: int, classes: bool) -> None:
    from ..reporting.comparison.comparison_tables import comparison_facts, comparison_tables
    from ..reporting.tables.console import make_console, print_line, print_table

    console = make_console()
    for line in comparison_facts(found):
        print_line(console, line)
    for table in comparison_tables(found, show, classes=classes):
        print_table(console, table)


def _write(found: Comparison, verdicts: list[Verdict], output: Output, markdown_file: Path | None) -> None:
    from ..reporting.comparison.comparison_record import to_record
    from ..reporting.comparison.comparison_tables import comparison_facts, comparison_tables
    from ..reporting.tables.markdown_csv import to_markdown
    from ..results.storage import write_bytes

    output.write(to_record(found, verdicts))
    if markdown_file:
        facts = [*comparison_facts(found), *map(str, verdicts)]
        text = to_markdown("Comparison", facts, comparison_tables(found, show=200))
        write_bytes(markdown_file, text.encode(), "--markdown")
        output.say(f"written: {markdown_file}")
