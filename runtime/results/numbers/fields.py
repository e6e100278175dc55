"""What a number of a report is, and where the cell keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ....metrics_gpu.statistics.bootstrap import Interval

__all__ = ["FIELDS", "GROUNDING", "RECOGNITION", "Number"]


@dataclass(frozen=True)
class Number:
    """A value, None where it does not exist, with its interval; `beside`: a second interval where pairs are few.

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
