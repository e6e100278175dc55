"""Numbers -> printed cells with intervals, marks and the paper's value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from ...metrics_gpu.statistics.intervals import Interval
from ...metrics_gpu.statistics.measured_numbers import Measured
from ..results.comparability import on_one_basis
from ..results.numbers.run_numbers import Results
from .paper import Printed, why_apart, why_mean_apart
from .tables.metric_names import METRICS, difference_of, value_of
from .tables.table import BEST, SECOND, Cell

_METHODS = {"wilson": "Wilson", "t": "t"}
"""How an interval was made that is not the bootstrap's, as it is printed."""


def number_cell(number: Measured, key: str, basis: Hashable = None) -> Cell:
    """A number of `METRICS` with its interval, ranked among those of the same basis."""
    return Cell(
        value_of(key, number.value),
        interval_text(number.interval, key),
        note=_METHODS.get(number.interval.method, "") if number.interval else "",
        rank=number.value if METRICS[key].better else None,
        basis=basis,
    )


def entry(
    results: Results, model: str, field: str, dataset: str = "", name: str = "", *, printed: Printed | None = None
) -> Cell:
    """A model's number for a class, a dataset (no class) or the mean over datasets (no dataset), with the value that
    the paper `printed` and the difference to it where that means something.

    Models are ranked, baselines and controls are not.
    """
    cell, number = results.cells.get((model, dataset)), results.number(model, dataset, field, name)
    if cell and cell.unfitted(field, name):
        found = Cell("n/a (1 patient)")
    else:
        found = number_cell(number, field, results.basis(model, dataset, field, name))
    if not any(cell.ranked for cell in results.row(model)):
        found = replace(found, rank=None)
    if printed is None:
        return found
    difference = ""
    apart = why_apart(cell, name) if cell else why_mean_apart(results.row(model))
    if number.value is not None and not apart:
        scale = METRICS[field].scale
        difference = difference_of(field, (number.value * scale - printed.value) / scale)
    return replace(found, paper=printed.text, difference=difference)


def interval_text(interval: Interval | None, key: str) -> str:
    """The ends of an interval of the metric `key`, with the decimals of its intervals; empty for None."""
    if interval is None:
        return ""
    low, high = (value_of(key, end, METRICS[key].interval_digits) for end in (interval.low, interval.high))
    return f"[{low}, {high}]"


def marked(rows: Sequence[Sequence[Cell]]) -> tuple[list[tuple[Cell, ...]], list[bool]]:
    """The rows, in each column the best and the second best marked; and whether a row has a value that is not ranked.

    Values that print alike are equal. A second best is marked among three or more, a best among two or more. Only
    values of one basis are compared, that of most rows.
    """
    left = [False] * len(rows)
    if len(rows) < 2:
        return list(map(tuple, rows)), left
    done: list[list[Cell]] = [[] for _ in rows]
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
