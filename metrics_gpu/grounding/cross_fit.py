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
from .search import best_levels

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

    curves: Dice and IoU, float64 [P, 101] each. fold_of: integers [R, P], one fold for a patient. patient_of: [P],
    columns of `weights` [1 + B, G], whose first row is the estimate. keep: the replicates keep the thresholds of the
    estimate.
    """
    dice = curves[0]
    searched = np.rint((dice if options.iou_at == "joint" else np.hstack(curves)) * _EXACT)
    counted = np.column_stack([np.ones(len(dice)), searched])
    patients, of_patient = np.unique(patient_of, return_inverse=True)
    drawn = weights[:, patients].astype(np.float64)
    totals, scores = _totals(counted, of_patient), [_totals(curve, of_patient) for curve in curves]
    whole = drawn @ totals
    sums, each = np.zeros((2, len(fold_of), len(weights))), np.zeros((2, len(fold_of), len(dice)))
    for repeat, folds in enumerate(fold_of):
        for fold in np.unique(folds):
            own = np.flatnonzero(folds == fold)
            members = np.unique(of_patient[own])
            weight = drawn[:, members]
            rows = np.flatnonzero(weight.any(axis=1))  # the others add nothing
            weight = weight[rows]
            rest = whole[rows]
            rest -= weight @ totals[members]
            levels = best_levels(rest[:, 1 : 1 + LEVELS], rest[:, -LEVELS:], options)
            alone = rest[:, 0] == 0
            if keep:
                levels, alone = (levels[0][:1], levels[1][:1]), alone[:1]
            for kind, (level, score, curve) in enumerate(zip(levels, scores, curves, strict=True)):
                found = np.einsum("rp,rp->r", weight, np.ascontiguousarray(score[members].T)[level])
                sums[kind, repeat, rows] += np.where(alone, np.nan, found)
                each[kind, repeat, own] = np.nan if alone[0] else curve[own, level[0]]
    of_pairs, of_rows = each.mean(axis=1), sums.mean(axis=1)
    of_rows[:, 0] = of_pairs.sum(axis=1)  # in the order of the pairs: the same with and without replicates
    return Fitted(of_rows[0], of_rows[1], of_pairs[0], of_pairs[1])


def _totals(values: Float, patient_of: NDArray[np.intp]) -> Float:
    """Sums of `values` [N, K] over the items of each patient, float64 [G, K]; patients are 0..G-1, all with an item."""
    order = np.argsort(patient_of, kind="stable")
    starts = np.flatnonzero(np.diff(patient_of[order], prepend=-1))
    found: Float = np.add.reduceat(values[order], starts, axis=0) if len(starts) else values
    return found
