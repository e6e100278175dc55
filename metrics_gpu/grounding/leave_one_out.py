"""The compiled loop of `cross_fitted` where each patient is a fold: every patient is left out alone."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly

Float = NDArray[np.float64]


def _leave_one_out(
    drawn: Float, all_patients: Float, totals: Float, scores: Float, first: int, kept: bool
) -> tuple[Float, NDArray[np.int64]]:
    kinds, patients, levels = scores.shape
    sums = np.zeros((kinds, len(drawn)))
    chosen = np.empty((kinds, patients), np.int64)
    for row in range(len(drawn)):
        for patient in range(patients):
            weight = drawn[row, patient]
            if weight == 0.0:
                continue
            alone = all_patients[row, 0] == weight * totals[patient, 0]
            for measure in range(kinds):
                start = 1 + measure * levels if totals.shape[1] > 1 + levels else 1
                at = chosen[measure, patient]
                if row == 0 or not kept:
                    at = first
                    top = all_patients[row, start + first] - weight * totals[patient, start + first]
                    for level in range(first + 1, levels):
                        value = all_patients[row, start + level] - weight * totals[patient, start + level]
                        if value > top:
                            at, top = level, value
                    if row == 0:
                        chosen[measure, patient] = -1 if alone else at
                else:
                    alone = at < 0
                sums[measure, row] += np.nan if alone else weight * scores[measure, patient, at]
    return sums, chosen


_TABLE = readonly(types.float64, 2)

leave_one_out = compiled(
    _leave_one_out,
    types.Tuple((types.float64[:, ::1], types.int64[:, ::1]))(
        _TABLE, _TABLE, _TABLE, readonly(types.float64, 3), types.int64, types.boolean
    ),
)
"""Dice and IoU, or one other score, at levels that are fitted without each patient: float64 [S, R], sums over the drawn
patients of a row, NaN where one of them is alone in it; and int64 [S, P], the levels of row 0, -1 for a patient who is
alone.

drawn [R, P]: how often each patient counts. whole [R, 1 + K]: number of pairs, and sums of the searched curves: of each
score, or of Dice for both; totals [P, 1 + K]: sums of each patient. scores [S, P, 101]: of each one.
first: the level at which the search begins. kept: all rows take the levels of row 0."""
