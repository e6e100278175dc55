"""The numbers of a report: their type, their fields in a cell, and their bootstrap replicates and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.recognition.scores import Recognition
from ....metrics_gpu.statistics.bootstrap import Interval, Replicates, percentile_intervals

__all__ = ["FIELDS", "GROUNDING", "RECOGNITION", "Number", "Spread", "spread_of"]


@dataclass(frozen=True)
class Number:
    """A value, None where it does not exist, with its interval; `beside`: a second interval if there are few pairs.

    A fraction, or percentage points for `delta_dice`.
    """

    value: float | None = None
    interval: Interval | None = None
    beside: Interval | None = None


FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "pointing": ("grounding", "pointing"),
    "dice_best": ("grounding", "dice_best"),
    "iou_best": ("grounding", "iou_best"),
    "dice_fixed": ("grounding", "dice_fixed"),
    "iou_fixed": ("grounding", "iou_fixed"),
    "delta_dice": ("grounding", "delta_dice"),
    "floor_dice": ("grounding", "floor_dice"),
    "floor_iou": ("grounding", "floor_iou"),
    "chance": ("grounding", "chance"),
    "dice_cross_fitted": ("cross_fitted", "dice_best"),
    "iou_cross_fitted": ("cross_fitted", "iou_best"),
    "delta_cross_fitted": ("cross_fitted", "delta_dice"),
    "auc": ("recognition", "auc"),
    "auprc": ("recognition", "auprc"),
    "f1": ("recognition", "f1"),
    "accuracy": ("recognition", "accuracy"),
    "pair_f1": ("pair", "f1"),
    "pair_accuracy": ("pair", "accuracy"),
}
"""A number's name -> the source it comes from and its field there."""

GROUNDING: Final = tuple(name for name, (source, _) in FIELDS.items() if source in ("grounding", "cross_fitted"))
RECOGNITION: Final = tuple(name for name, (source, _) in FIELDS.items() if source in ("recognition", "pair"))


@dataclass(frozen=True, eq=False)
class Spread:
    """Replicates by source (`grounding`, `cross_fitted`, `recognition`, `pair`) and percentile intervals.

    Best thresholds are chosen again in each replicate, those of `cross_fitted` on the other half of the drawn patients.
    """

    replicates: Mapping[str, Replicates]
    intervals: Mapping[tuple[str, str, str], Interval | None]

    def interval(self, source: str, field: str, name: str) -> Interval | None:
        """Interval of a field for a class, `macro` or `micro`; None if it is undefined in all replicates."""
        return self.intervals.get((source, field, name))

    def drawn(self, source: str, field: str, name: str) -> NDArray[np.float64] | None:
        """float64 [B]: replicates of a field for a class, `macro` or `micro`; None where there are none."""
        found = self.replicates.get(source)
        if found is None or (name not in ("macro", "micro") and name not in found.names):
            return None
        if field not in {"macro": found.macro, "micro": found.micro}.get(name, found.classes):
            return None
        return found.of(field, name)


def spread_of(numbers: Mapping[str, Grounding | Recognition]) -> Spread:
    """Replicates of the numbers of a cell by source, without numbers that have no pair or image."""
    replicates = {
        source: found.drawn for source, found in numbers.items() if found.drawn and any(one.n for one in found.classes)
    }
    return Spread(replicates, dict(_intervals(replicates)))


def _intervals(replicates: Mapping[str, Replicates]) -> Iterator[tuple[tuple[str, str, str], Interval | None]]:
    for source, found in replicates.items():
        for field, values in found.classes.items():
            for name, interval in zip(found.names, percentile_intervals(values), strict=True):
                yield (source, field, name), interval
        for whole, fields in (("macro", found.macro), ("micro", found.micro)):
            columns = np.column_stack(list(fields.values())) if fields else np.zeros((0, 0))
            for field, interval in zip(fields, percentile_intervals(columns), strict=True):
                yield (source, field, whole), interval
