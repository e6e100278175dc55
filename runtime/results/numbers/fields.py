"""The numbers of a cell: which there are, and each with its interval and its bootstrap replicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.recognition.scores import Recognition
from ....metrics_gpu.statistics.aggregate import macro_mean
from ....metrics_gpu.statistics.bootstrap import Interval
from ..choices import Choices
from .intervals import find_interval
from .sample import Sample

__all__ = ["BEST", "FIELDS", "GROUNDING", "RECOGNITION", "Number", "find_numbers"]


@dataclass(frozen=True)
class Number:
    """A value, None where it does not exist, with its interval, None where that would mean nothing.

    A fraction, or percentage points for `delta_dice`. drawn: its bootstrap replicates, float64 [B], NaN where
    undefined; None where there are none. Best thresholds are chosen again in each replicate, those of `cross_fitted` on
    the drawn patients of other folds.
    """

    value: float | None = None
    interval: Interval | None = None
    drawn: NDArray[np.float64] | None = field(default=None, repr=False, compare=False)


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

BEST: Final = ("dice_best", "iou_best", "delta_dice")
"""The fields that rest on a best threshold."""

_VARIANTS = {("auprc", "trapezoid"): "auprc_trapezoid", ("f1", "best"): "f1_best"}


def find_numbers(
    found: Mapping[str, Grounding | Recognition], choices: Choices, sample: Sample
) -> dict[tuple[str, str], Number]:
    """All numbers of a cell by field and class; those of the dataset have an empty name.

    found: the sources of `FIELDS`; sample: what they rest on.
    """
    numbers = {}
    for name, (source, key) in FIELDS.items():
        scores = found[source]
        key = _VARIANTS.get((key, getattr(choices, key, "")), key)
        values: dict[str, float | None] = {item.name: getattr(item, key) for item in scores.classes}
        if isinstance(scores, Grounding):
            kind = choices.mean
            values[""] = getattr(getattr(scores, kind), key)
        elif key == "accuracy":
            kind, values[""] = "micro", scores.hamming  # over all known (image, class) cells
        else:
            kind, values[""] = "macro", macro_mean(values.values())
        if source == "pair" and len(scores.classes) != len(found["recognition"].classes):
            values[""] = None  # a mean over only some classes is not comparable with the others
        drawn = _drawn(scores, key, kind)
        for part, value in values.items():
            if value is not None:
                interval = find_interval(scores, key, part, drawn.get(part), sample)
                numbers[name, part] = Number(value, interval, drawn.get(part))
    return numbers


def _drawn(scores: Grounding | Recognition, key: str, whole: str) -> dict[str, NDArray[np.float64]]:
    """The replicates of a field by class, and of the dataset's value under the empty name; {} if there are none."""
    replicates = scores.drawn
    if replicates is None or key not in replicates.classes or not any(item.n for item in scores.classes):
        return {}
    return {**dict(zip(replicates.names, replicates.classes[key].T, strict=True)), "": replicates.of(key, whole)}
