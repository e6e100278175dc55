"""Results -> the numbers that are drawn, in percent. The only file here that knows how a report keeps its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ....metrics_gpu.sweep.thresholds import level
from ...results.numbers.cell_values import CellValues
from ...results.numbers.fields import Number
from ...results.numbers.run_numbers import Results
from ..paper import paper
from .style import worth

__all__ = [
    "Curve",
    "Point",
    "conditions",
    "delta_dice",
    "dice_curve",
    "mean_auc",
    "mean_pointing",
    "one_auc",
    "one_pointing",
    "paper_delta",
]


@dataclass(frozen=True)
class Point:
    """A value in percent (points for differences), None with a `reason` where there is none; its interval if known.

    datasets: how many it is a mean over.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    datasets: int = 1

    @property
    def text(self) -> str:
        """The value as a caption says it."""
        if self.value is None:
            return self.reason
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Curve:
    """Mean Dice of a model in percent at thresholds 0, 0.01 .. 1; `best` is the mean of best values of each class.

    fixed: whether threshold 0.5 means something in the protocol. first: level at which the search begins.
    """

    dice: tuple[float, ...]
    best: float
    datasets: int
    fixed: bool
    first: int = 0

    @property
    def top(self) -> int:
        """Level of the curve's own maximum from `first` on, the smallest of equal ones."""
        return self.first + int(np.argmax(self.dice[self.first :]))


def conditions(results: Results, cells: Iterable[CellValues]) -> tuple[str, ...]:
    """What a caption has to say last: protocols and choices that are not the defaults, and what numbers are worth."""
    cells = list(cells)
    protocols = sorted({cell.protocol for cell in cells if cell.protocol != "default"})
    lines = [*(f"protocol {name}" for name in protocols), *results.choices.told, *worth(cells)]
    return tuple(f"Note: {line}." for line in lines)


def one_auc(results: Results, model: str, dataset: str) -> Point:
    """AUC of a cell, mean over its findings."""
    return _one(results, model, dataset, "auc", "no AUC")


def one_pointing(results: Results, model: str, dataset: str) -> Point:
    """Pointing score of a cell, mean over its findings."""
    return _one(results, model, dataset, "pointing", "no region")


def mean_auc(results: Results, model: str) -> Point:
    """A model's AUC, mean over the datasets that have one."""
    return _mean(results, model, "auc", "no AUC")


def mean_pointing(results: Results, model: str) -> Point:
    """A model's pointing score, mean over the datasets that have regions."""
    return _mean(results, model, "pointing", "no region")


def delta_dice(results: Results, model: str) -> Point:
    """Dice at the best threshold of each finding minus Dice at 0.5, percentage points, mean over datasets."""
    return _mean(results, model, "delta_dice", "no region", scale=1.0)


def dice_curve(results: Results, model: str) -> Curve | None:
    """A model's mean Dice over thresholds, unweighted over its datasets that have regions; None without any."""
    cells = [cell for cell in results.row(model) if cell.dice_curve]
    best = results.mean_number(model, "dice_best").value
    if best is None or not cells:
        return None
    curve = 100 * np.mean([cell.dice_curve for cell in cells], axis=0)
    first = max(level(cell.grounding.options.tau_from) for cell in cells)
    return Curve(tuple(curve.tolist()), 100 * best, len(cells), _fixed(cells), first)


def paper_delta(results: Results, model: str) -> float | None:
    """The paper's delta Dice in percentage points, for a model of its seven run with published weights, else None."""
    families = {cell.family for cell in results.row(model) if cell.weights == "published"}
    printed = next((paper().delta_dice[name] for name in families if name in paper().delta_dice), None)
    return printed.value if printed else None


def _fixed(cells: Iterable[CellValues]) -> bool:
    return all(cell.grounding.macro.dice_fixed is not None for cell in cells)


def _one(results: Results, model: str, dataset: str, field: str, reason: str) -> Point:
    if (model, dataset) not in results.cells:
        return Point(None, reason="no result", datasets=0)
    return _point(results.number(model, dataset, field), reason, 1, 100.0)


def _mean(results: Results, model: str, field: str, reason: str, scale: float = 100.0) -> Point:
    datasets = sum(cell.number(field).value is not None for cell in results.row(model))
    return _point(results.mean_number(model, field), reason, datasets, scale)


def _point(number: Number, reason: str, datasets: int, scale: float) -> Point:
    if number.value is None:
        return Point(None, reason=reason, datasets=0)
    interval = number.interval
    low, high = (None, None) if interval is None else (scale * interval.low, scale * interval.high)
    return Point(scale * number.value, low, high, datasets=datasets)
