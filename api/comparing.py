"""Compare two runs: the differences of their numbers, with paired tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from .engines.errors import ConfigError
from .frames import frame
from .options import CompareOptions, FilePath, check_options
from .runs import Run, load_run
from .runtime.reporting.comparison.comparison import Comparison, compare_runs
from .runtime.results.choices import Choices
from .runtime.results.comparing.difference import Difference
from .runtime.results.selected_pairs import Resampling

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RunComparison", "compare"]


class RunComparison:
    """Every number that both runs have, on the rows that both scored, with paired tests. `compare` returns one."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    @property
    def missing_rows(self) -> int:
        """Number of rows that only one of the runs has; no compared number uses them."""
        return self._comparison.missing_rows

    def table(self) -> pd.DataFrame:
        """A row for each number: model, dataset, finding, metric, a, b, value (b minus a), low, high, n, p, p_bound,
        p_holm, family, protocol.

        Values are fractions; low and high are the ends of the 95 % interval of the difference; p is two-sided, of
        sign flips by patient (AUC: DeLong's by patient); p_bound: no sign pattern was as extreme, so that the true p is
        below it; p_holm is corrected for the `family` of all comparisons of the number. An empty `finding` is the mean
        over findings, an empty `dataset` the mean over n datasets.
        """
        return frame("changes", _rows(self._comparison))


def compare(
    run_a: Run | FilePath,
    run_b: Run | FilePath | None = None,
    *,
    models: tuple[str, str] | None = None,
    datasets: Sequence[str] = (),
    **options: Unpack[CompareOptions],
) -> RunComparison:
    """Compares run B with run A, for the models and datasets that both have.

    models: one of A and one of B, to compare two models with different names; without `run_b` two of one run. datasets:
    only these. options: the resampling and metrics of one's own, see `CompareOptions`. Raises RunError when there is
    nothing to compare, a name does not exist, or results cannot be read, and ConfigError for an invalid option.
    """
    if run_b is None and models is None:
        raise ConfigError("Give a second run, or models=(A, B) for two models of one run.")
    check_options("compare", CompareOptions, options)
    given: dict[str, Any] = {name: options[name] for name in ("replicates", "seed") if options.get(name) is not None}
    own = Choices.metrics_of(options.get("metrics", {}))
    a = run_a if isinstance(run_a, Run) else load_run(run_a)
    b = a if run_b is None else run_b if isinstance(run_b, Run) else load_run(run_b)
    return RunComparison(compare_runs(a._stored, b._stored, models, datasets, Resampling(**given), own))


def _rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for cell in comparison.cells:
        for change in (*cell.whole, *cell.classes):
            yield {**_row(cell.match.models, cell.match.dataset, change), "protocol": cell.protocol}
    for mean in comparison.models:
        for change in mean.whole:
            yield {**_row(mean.models, "", change), "protocol": mean.protocol}


def _row(model: str, dataset: str, change: Difference) -> dict[str, Any]:
    return {
        "model": model,
        "dataset": dataset,
        "finding": change.name,
        "metric": change.field,
        "a": change.reference,
        "b": change.minuend,
        **change.limits(),
        "n": change.n,
        **change.test,
    }
