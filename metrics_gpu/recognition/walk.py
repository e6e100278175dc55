"""The compiled loop of `recognition`: scores of one class, for the estimate and all replicates."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly

_COLUMNS: Final = 9


def _walk(
    weights: NDArray[np.uint16],
    patient: NDArray[np.int64],
    truth: NDArray[np.bool_],
    last: NDArray[np.bool_],
    positive: NDArray[np.int64],
    cut: int,
) -> NDArray[np.float64]:
    out = np.empty((len(weights), _COLUMNS))
    for b in range(len(weights)):
        drawn = weights[b]
        hits = alarms = 0  # drawn positives and negatives down to here
        hits_before = alarms_before = 0  # and down to the distinct score above
        pairs = 0.0  # (positive above negative) pairs, ties by half
        precision_sum = trapezoid_sum = best = 0.0
        best_at = 0
        marked_hits = marked_alarms = 0
        positives = 0
        for i in range(len(positive)):
            positives += drawn[positive[i]]
        for i in range(len(patient)):
            if i == cut:
                marked_hits, marked_alarms = hits, alarms
            weight = int(drawn[patient[i]])
            if truth[i]:
                hits += weight
            else:
                alarms += weight
            if last[i]:
                new_hits, new_alarms = hits - hits_before, alarms - alarms_before
                pairs += new_alarms * (hits_before + 0.5 * new_hits)
                # Without a new positive recall does not change, so neither area grows and F1 falls.
                if new_hits > 0:
                    precision = hits / (hits + alarms)
                    seen = hits_before + alarms_before
                    precision_before = hits_before / seen if seen > 0 else 1.0
                    precision_sum += new_hits * precision
                    trapezoid_sum += new_hits * 0.5 * (precision + precision_before)
                    f1 = 2.0 * hits / (hits + alarms + positives)
                    if f1 > best:
                        best, best_at = f1, i
                hits_before, alarms_before = hits, alarms
        if cut >= len(patient):
            marked_hits, marked_alarms = hits, alarms
        n = hits + alarms
        right = marked_hits + alarms - marked_alarms
        out[b, 0] = pairs / (np.float64(hits) * alarms) if hits > 0 and alarms > 0 else np.nan
        out[b, 1] = precision_sum / hits if hits > 0 else np.nan
        out[b, 2] = trapezoid_sum / hits if hits > 0 else np.nan
        both = marked_hits + marked_alarms + hits
        out[b, 3] = (2.0 * marked_hits / both if both > 0 else 0.0) if n > 0 else np.nan
        out[b, 4] = best if n > 0 else np.nan
        out[b, 5] = right / n if n > 0 else np.nan
        out[b, 6], out[b, 7], out[b, 8] = right, n, best_at
    return out


walk = compiled(
    _walk,
    types.float64[:, ::1](
        readonly(types.uint16, 2),
        readonly(types.int64, 1),
        *([readonly(types.boolean, 1)] * 2),
        readonly(types.int64, 1),
        types.int64,
    ),
)
"""weights uint16 [R, G]; per image in order of falling score: patient int64 [N], truth and last of its score, both
bool [N]; positive int64, the patients of the true ones; cut: how many of the N are marked as positive, the first of
them. Returns float64 [R, 9]: the fields of `scores.FIELDS`, cells predicted right, known cells, and the last image, in
that order, of the score at which F1 is best."""
