"""Numbers -> printed cells with intervals, marks and the paper's value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...metrics_gpu.statistics.intervals import Interval
from ...metrics_gpu.statistics.measured_numbers import Measured
from ..results.comparability import on_one_basis
from .paper import Printed
from .tables.metric_names import METRICS, difference_of, value_of
from .tables.table import BEST, SECOND, Cell

_METHODS = {"wilson": "Wilson", "t": "t"}
"""How an interval was made that is not the bootstrap's, as it is printed."""


def number_cell(
    number: Measured, key: str, printed: Printed | None = None, why_no_difference: Sequence[str] = ()
) -> Cell:
    """A number of `METRICS` with its interval, the value that the paper `printed` and the difference to it.

    There is no difference for a reason that it would mean nothing.
    """
    metric = METRICS[key]
    difference = ""
    if printed is not None and number.value is not None and not why_no_difference:
        difference = difference_of(key, (number.value * metric.scale - printed.value) / metric.scale)
    return Cell(
        f"n/a ({number.missing})" if number.missing else value_of(key, number.value),
        interval_text(number.interval, key),
        note=_METHODS.get(number.interval.method, "") if number.interval else "",
        paper=printed.text if printed else "",
        difference=difference,
        number=number if metric.better else replace(number, ranked=False),
    )


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
    unranked = [False] * len(rows)
    if len(rows) < 2:
        return list(map(tuple, rows)), unranked
    marked_rows: list[list[Cell]] = [[] for _ in rows]
    for column in zip(*rows, strict=True):
        numbers = [item.number if item.number and item.number.ranked else Measured() for item in column]
        alike = iter(on_one_basis([number.basis for number in numbers if number.value is not None]))
        ranks = [round(n.value, 4) if n.value is not None and next(alike) else None for n in numbers]
        ordered = sorted((rank for rank in ranks if rank is not None), reverse=True)
        best, second, *_ = [*dict.fromkeys(ordered), None, None]
        for place, (item, number, rank) in enumerate(zip(column, numbers, ranks, strict=True)):
            unranked[place] |= number.value is not None and rank is None
            if rank is not None and rank == best and second is not None:
                item = replace(item, mark=BEST)
            elif rank is not None and rank == second and len(ordered) > 2:
                item = replace(item, mark=SECOND)
            marked_rows[place].append(item)
    return list(map(tuple, marked_rows)), unranked
