"""The search for a best threshold (docs/metrics.md §4.2).

Curves hold a mean score per threshold in their last axis, float64 [..., 101]; the leading axes are classes or bootstrap
replicates. A level is the index of a threshold; ties go to the smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.aggregate import macro_curve
from ..sweep.counts import Counts
from ..sweep.thresholds import level
from .curves import dice_curves, iou_curves
from .grounding_options import GroundingOptions

__all__ = ["FIXED", "at_level", "best_levels", "model_levels"]

FIXED: Final = level(0.5)


def best_levels(
    dice: NDArray[np.float64], iou: NDArray[np.float64], options: GroundingOptions
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Best level for Dice and the level at which IoU is read, intp [...]; 0.5 where a curve is not defined (NaN)."""
    first = level(options.tau_from)

    def search(curve: NDArray[np.float64]) -> NDArray[np.intp]:
        found = first + np.argmax(curve[..., first:], axis=-1)
        return np.where(np.isnan(curve[..., -1]), FIXED, found).astype(np.intp)

    k = search(dice)
    return k, (k if options.iou_at == "joint" else search(iou))


def at_level(curve: NDArray[np.float64], k: NDArray[np.intp] | int) -> NDArray[np.float64]:
    """float64 [...]: each curve of [..., 101] at its level, or all at the same."""
    index = np.broadcast_to(np.asarray(k, np.intp), curve.shape[:-1])[..., None]
    values: NDArray[np.float64] = np.take_along_axis(curve, index, axis=-1)[..., 0]
    return values


def model_levels(
    datasets: Sequence[tuple[Counts, NDArray[np.integer]]], options: GroundingOptions | None = None
) -> tuple[int, int] | None:
    """One threshold for all datasets of a model, best for the mean over datasets of the mean over classes.

    datasets: the counts and the class of each pair, per dataset. Returns the levels of Dice and IoU for `grounding`,
    None if there is no pair at all. Raises ValueError if a pair has no region.
    """
    options = options or GroundingOptions(unit="per_model")
    dice, iou = [], []
    for counts, class_of in datasets:
        if len(counts):
            each_dice, each_iou = dice_curves(counts), iou_curves(counts)
            members = [np.flatnonzero(class_of == c) for c in np.unique(class_of)]
            dice.append(macro_curve([each_dice[pairs].mean(axis=0) for pairs in members]))
            iou.append(macro_curve([each_iou[pairs].mean(axis=0) for pairs in members]))
    if not dice:
        return None
    k, k_iou = best_levels(macro_curve(dice), macro_curve(iou), options)
    return int(k), int(k_iou)
