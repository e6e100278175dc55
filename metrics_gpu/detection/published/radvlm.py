"""RadVLM's evaluation: average precision within each pair without scores, and the mean of all IoUs."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numba import types

from ...compiled import compiled, readonly
from ...statistics.exact_sums import exact_mean
from ..boxes import Answers
from ..overlaps import BoxOverlaps
from .scorer import Scorer, Values

_F1, _I1 = readonly(types.float64, 1), readonly(types.int64, 1)
_THRESHOLDS: Final = (0.1, 0.25, 0.5)


def _compute(answers: Answers, table: BoxOverlaps) -> Values:
    """Boxes in the order of the text; a box looks only at its best true box, and misses if that one is taken."""
    areas = np.zeros((len(_THRESHOLDS), len(answers.truth)))
    _areas(table.values, table.offsets, table.given, table.truth, np.array(_THRESHOLDS), areas)
    scores: dict[str, float | None] = {"avg_iou": exact_mean(table.values)}
    for threshold, of_pairs in zip(_THRESHOLDS, areas, strict=True):
        scores[f"mAP_{threshold}"] = exact_mean(of_pairs) if len(of_pairs) else math.nan
    return scores


def _areas_loop(values: Any, offsets: Any, given: Any, truth: Any, thresholds: Any, out: Any) -> None:
    for p in range(len(offsets) - 1):
        n, m = given[p + 1] - given[p], truth[p + 1] - truth[p]
        if n == 0 or m == 0:
            continue
        free, precision, hits = np.empty(m, np.bool_), np.empty(n), np.empty(n, np.bool_)
        for t in range(len(thresholds)):
            free[:] = True
            true = 0
            for i in range(n):
                best = 0
                for j in range(1, m):
                    if values[offsets[p] + i * m + j] > values[offsets[p] + i * m + best]:
                        best = j
                hits[i] = free[best] and values[offsets[p] + i * m + best] >= thresholds[t]
                if hits[i]:
                    free[best] = False
                    true += 1
                precision[i] = true / (i + 1)
            envelope = 0.0
            for i in range(n - 1, -1, -1):
                envelope = max(envelope, precision[i])
                if hits[i]:
                    out[t, p] += envelope / m


_areas = compiled(_areas_loop, types.void(_F1, _I1, _I1, _I1, _F1, types.float64[:, ::1]))

RADVLM: Final = Scorer(
    name="radvlm",
    source="uzh-dqbm-cmi/RadVLM@69fe9462 evaluate_boxes",
    main="avg_iou",
    note="avg_iou averages over every given x true box and leaves silent pairs out: two regions answered perfectly "
    "give 0.5, and silence can raise it.",
    compute=_compute,
)
