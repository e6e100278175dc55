"""Numbers -> printed cells with intervals, marks and the paper's value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ...metrics_gpu.statistics.bootstrap import Interval
from ..results.comparability import on_one_basis
from ..results.numbers.fields import Number
from ..results.numbers.run_numbers import Results
from ..tables.metrics import METRICS, difference_of, value_of
from ..tables.table import BEST, SECOND, Cell
from .paper import Printed

__all__ = [
    "compared",
    "entry",
    "interval_text",
    "marked",
    "number_cell",
]


_METHODS = {"wilson": "Wilson", "t": "t"}
"""How an interval was made that is not the bootstrap's, as it is printed."""


def number_cell(number: Number, key: str, basis: Hashable = None) -> Cell:
    """A number of `METRICS` with its interval, ranked among those of the same basis."""
    return Cell(
        value_of(key, number.value),
        interval_text(number.interval, key),
        note=_METHODS.get(number.interval.method, "") if number.interval else "",
        rank=number.value if METRICS[key].better else None,
        basis=basis,
    )


def entry(results: Results, model: str, field: str, dataset: str = "", name: str = "") -> Cell:
    """A model's number for a class, a dataset (no class) or the mean over datasets (no dataset).

    Models are ranked, baselines and controls are not.
    """
    cell = results.cells.get((model, dataset))
    if cell and cell.unfitted(field, name):
        found = Cell("n/a (1 patient)")
    elif dataset:
        found = number_cell(
            results.number(model, dataset, field, name), field, results.basis(model, dataset, field, name)
        )
    else:
        found = number_cell(results.mean_number(model, field), field, results.mean_basis(model, field))
    return found if any(cell.ranked for cell in results.row(model)) else replace(found, rank=None)


def interval_text(interval: Interval | None, key: str) -> str:
    """The ends of an interval of the metric `key`, with the decimals of its intervals; empty for None."""
    if interval is None:
        return ""
    low, high = (value_of(key, end, METRICS[key].interval_digits) for end in (interval.low, interval.high))
    return f"[{low}, {high}]"


def compared(found: Cell, number: Number, key: str, printed: Printed | None, means: bool) -> Cell:
    """The cell of a number with the value in the paper, and the difference if `means` says it is meaningful."""
    if printed is None:
        return found
    difference = ""
    if means and number.value is not None:
        metric = METRICS[key]
        difference = difference_of(key, (number.value * metric.scale - printed.value) / metric.scale)
    return replace(found, paper=printed.text, difference=difference)


def marked(rows: Sequence[Sequence[Cell]]) -> tuple[list[tuple[Cell, ...]], list[bool]]:
    """The rows, in each column the best and the second best marked; and whether a row has a value that is not ranked.

    Values that print alike are equal. A second best is marked among three or more, a best among two or more. Only
    values of one basis are compared, that of most rows.
    """
    done: list[list[Cell]] = [[] for _ in rows]
    left = [False] * len(rows)
    for column in zip(*rows, strict=True):
        alike = iter(on_one_basis([item.basis for item in column if item.rank is not None]))
        ranks = [round(item.rank, 4) if item.rank is not None and next(alike) else None for item in column]
        known = sorted((rank for rank in ranks if rank is not None), reverse=True)
        best, second, *_ = [*dict.fromkeys(known), None, None]
        for place, (item, rank) in enumerate(zip(column, ranks, strict=True)):
            left[place] |= item.rank is not None and rank is None
            if rank is not None and rank == best and second is not None:
                item = replace(item, mark=BEST)
            elif rank is not None and rank == second and len(known) > 2:
                item = replace(item, mark=SECOND)
            done[place].append(item)
    return list(map(tuple, done)), left
