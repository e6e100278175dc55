"""Results -> the numbers that are drawn, in percent. The only file here that reads the numbers of a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...results.numbers.cell_values import CellValues
from ...results.numbers.fields import GROUNDING
from ...results.numbers.run_numbers import Results
from ...tables.metrics import METRICS
from .figure import worth

__all__ = [
    "Point",
    "conditions",
    "point_of",
]


@dataclass(frozen=True)
class Point:
    """A value in percent (points for differences), None with a `reason` if there is none; its interval if known.

    datasets: how many it is a mean over.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    datasets: int = 1

    @property
    def text(self) -> str:
        """The value as a caption prints it."""
        if self.value is None:
            return self.reason
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def conditions(results: Results, cells: Iterable[CellValues]) -> tuple[str, ...]:
    """The end of a caption: protocols and choices that are not the defaults, and warnings about the numbers."""
    cells = list(cells)
    protocols = sorted({cell.protocol for cell in cells if cell.protocol != "default"})
    lines = [*(results.apart or (f"protocol {name}" for name in protocols)), *results.choices.told, *worth(cells)]
    return tuple(f"Note: {line}." for line in lines)


def point_of(results: Results, model: str, field: str, dataset: str = "") -> Point:
    """A number of a cell, or (no dataset) of a model: its mean over the datasets that have one."""
    datasets = 1
    if not dataset:
        number = results.mean_number(model, field)
        datasets = sum(cell.number(field).value is not None for cell in results.row(model))
    elif (model, dataset) in results.cells:
        number = results.number(model, dataset, field)
    else:
        return Point(None, reason="no result", datasets=0)
    if not dataset and (lacks := results.lacking(model, field)):
        return Point(None, reason=lacks, datasets=0)
    if number.value is None:
        return Point(None, reason="no region" if field in GROUNDING else f"no {METRICS[field].title}", datasets=0)
    scale, interval = METRICS[field].scale, number.interval
    low, high = (None, None) if interval is None else (scale * interval.low, scale * interval.high)
    return Point(scale * number.value, low, high, datasets=datasets)
