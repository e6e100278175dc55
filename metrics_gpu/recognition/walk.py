"""The compiled walk behind `recognition_bootstrap`: one class, all replicates."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly

__all__ = ["walk"]


def _walk(
    counts: NDArray[np.uint16],
    patient: NDArray[np.int64],
    truth: NDArray[np.bool_],
    last: NDArray[np.bool_],
    positive: NDArray[np.int64],
    cut: int,
    out: NDArray[np.float64],
    cells: NDArray[np.float64],
) -> None:
    for b in range(len(counts)):
        drawn = counts[b]
        hits = alarms = 0  # drawn positives and negatives down to here
        hits_before = alarms_before = 0  # and down to the distinct score above
        pairs = 0.0  # (positive above negative) pairs, ties by half
        precision_sum = trapezoid_sum = best = 0.0
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
                # Without a new positive recall stands still, so neither area grows and F1 falls.
                if new_hits > 0:
                    precision = hits / (hits + alarms)
                    seen = hits_before + alarms_before
                    precision_before = hits_before / seen if seen > 0 else 1.0
                    precision_sum += new_hits * precision
                    trapezoid_sum += new_hits * 0.5 * (precision + precision_before)
                    best = max(best, 2.0 * hits / (hits + alarms + positives))
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
        cells[b, 0], cells[b, 1] = right, n


walk = compiled(
    _walk,
    types.void(
        readonly(types.uint16, 2),
        readonly(types.int64, 1),
        *([readonly(types.boolean, 1)] * 2),
        readonly(types.int64, 1),
        types.int64,
        types.float64[:, ::1],
        types.float64[:, ::1],
    ),
)
"""counts uint16 [B, G]; per image in order of falling score: patient int64 [N], truth and last of its score, both
bool [N]; positive int64, the patients of the true ones; cut: how many of the N are marked as positive, the first of
them. Written: out float64 [B, 6], the fields of `RECOGNITION_FIELDS`; cells float64 [B, 2], cells predicted right and
known cells."""
