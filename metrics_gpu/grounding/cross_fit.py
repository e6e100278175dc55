"""Scores of one class at thresholds that are fitted on other patients, in the estimate and in each replicate.

Of each fold the best threshold is that of the other folds' drawn patients, so a replicate fits anew what it scores. The
search runs on curves that are rounded to 2^-32: their weighted sums are exact in float64, so that leaving a fold out is
a subtraction without rounding, and levels that are equally good stay so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..sweep.thresholds import LEVELS
from .grounding_options import GroundingOptions
from .search import at_level, best_levels

__all__ = ["Fitted", "cross_fitted"]

Float = NDArray[np.float64]

_EXACT: Final = 2.0**32


@dataclass(frozen=True, eq=False)
class Fitted:
    """Dice and IoU of a class at fitted thresholds.

    dice, iou: float64 [1 + B], sums over the drawn pairs, NaN where the drawn pairs are of a single fold, so that there
    is nothing to fit on. each_dice, each_iou: float64 [P], of each pair in the estimate.
    """

    dice: Float
    iou: Float
    each_dice: Float
    each_iou: Float


def cross_fitted(
    curves: tuple[Float, Float],
    fold_of: NDArray[np.integer],
    patient_of: NDArray[np.intp],
    weights: NDArray[np.uint16],
    options: GroundingOptions,
    *,
    keep: bool = False,
) -> Fitted:
    """The pairs of a class at thresholds fitted on the folds that they are not in; the mean over repeats.

    curves: Dice and IoU, float64 [P, 101] each. fold_of: integers [R, P]. patient_of: [P], columns of `weights`
    [1 + B, G], whose first row is the estimate. keep: the replicates keep the thresholds of the estimate.
    """
    dice, iou = curves
    searched = np.rint((dice if options.iou_at == "joint" else np.hstack(curves)) * _EXACT)
    counted = np.column_stack([np.ones(len(dice)), searched])
    whole, table = _drawn(counted, patient_of, weights), np.hstack([counted, dice, iou])
    width = counted.shape[1]
    sums, each = np.zeros((2, len(fold_of), len(weights))), np.zeros((2, len(fold_of), len(dice)))
    for repeat, folds in enumerate(fold_of):
        for fold in np.unique(folds):
            own = np.flatnonzero(folds == fold)
            drawn = _drawn(table[own], patient_of[own], weights)
            rest = whole - drawn[:, :width]
            levels = best_levels(rest[:, 1 : 1 + LEVELS], rest[:, width - LEVELS :], options)
            alone = (rest[:, 0] == 0) & (drawn[:, 0] > 0)
            if keep:
                levels, alone = (levels[0][:1], levels[1][:1]), alone[:1]
            scores = drawn[:, width : width + LEVELS], drawn[:, width + LEVELS :]
            for kind, (level, score, curve) in enumerate(zip(levels, scores, curves, strict=True)):
                sums[kind, repeat] += np.where(alone, np.nan, at_level(score, level))
                each[kind, repeat, own] = np.nan if alone[0] else curve[own, level[0]]
    of_pairs, of_rows = each.mean(axis=1), sums.mean(axis=1)
    of_rows[:, 0] = of_pairs.sum(axis=1)  # in the order of the pairs: the same with and without replicates
    return Fitted(of_rows[0], of_rows[1], of_pairs[0], of_pairs[1])


def _drawn(values: Float, patient_of: NDArray[np.intp], weights: NDArray[np.uint16]) -> Float:
    """Weighted sums float64 [1 + B, K] of `values` [N, K]."""
    order = np.argsort(patient_of, kind="stable")
    patients, starts = np.unique(patient_of[order], return_index=True)
    totals = np.add.reduceat(values[order], starts, axis=0) if len(starts) else values
    found: Float = weights[:, patients].astype(np.float64) @ totals
    return found
