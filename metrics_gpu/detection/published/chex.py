"""ChEX's sentence detection: IoU of all masks together, and average precision of all boxes as one class."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from ...compiled import compiled, readonly
from ..boxes import Answers, BoxLists, Float, Int, Rectangles
from ..overlaps import BoxOverlaps, overlaps
from ..unions import union_counts
from .scorer import Scorer, Values

_SIDE: Final = 1024
_AT_LEAST: Final = 0.3
_LEVELS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
_THRESHOLDS: Final = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
_F1, _I1 = readonly(types.float64, 1), readonly(types.int64, 1)


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    truth = _drawn(answers.truth, answers.sizes)
    ious = [_iou(answers.given, truth, answers.sizes, level) for level in _LEVELS]
    scores = answers.given.scores
    ranked = scores is not None and len(np.unique(scores)) == len(scores)
    precision = _precisions(answers) if ranked else None
    return {
        "IoU": _iou(answers.given, truth, answers.sizes, _AT_LEAST),
        "mIoU": sum(ious) / len(ious),
        "bIoU": max(ious),
        "mAP": None if precision is None else float(precision.mean()),
        "AP@0.5": None if precision is None else float(precision[_THRESHOLDS.index(0.5)]),
        "AP@0.75": None if precision is None else float(precision[_THRESHOLDS.index(0.75)]),
    }


def _iou(given: BoxLists, truth: Rectangles, sizes: Int, level: float) -> float:
    """Pixels of all intersections over those of all unions, of the boxes whose probability is above `level`."""
    if given.scores is not None:
        given = given.keep(given.scores.astype(np.float32) > np.float32(level))
    counts = union_counts(_drawn(given, sizes), truth)
    union = int((counts.area + counts.region - counts.overlap).sum())
    return int(counts.overlap.sum()) / max(union, 1)


def _drawn(lists: BoxLists, sizes: Int) -> Rectangles:
    """Corners from centre and size in fractions, truncated on a grid of 1024."""
    boxes = lists.per_side(sizes)
    centre, size = _SIDE * ((boxes[:, :2] + boxes[:, 2:]) / 2), _SIDE * (boxes[:, 2:] - boxes[:, :2])
    spans = np.trunc(np.hstack([centre - size / 2, centre + size / 2])).astype(np.int64)
    return Rectangles(np.ascontiguousarray(np.clip(spans, 0, _SIDE)), lists.offsets)


def _precisions(answers: Answers) -> Float:
    """Average precision at each threshold: an IoU strictly above it, 101 recall points."""
    given = answers.given.by_score()
    fractions = BoxLists(given.per_side(answers.sizes), given.offsets, given.scores)
    truth = BoxLists(answers.truth.per_side(answers.sizes), answers.truth.offsets)
    table = overlaps(fractions, truth)
    hits = np.zeros((len(_THRESHOLDS), len(given.boxes)), np.bool_)
    _match(table.values, table.offsets, table.given, table.truth, np.array(_THRESHOLDS), hits)
    assert given.scores is not None
    hits = hits[:, np.argsort(-given.scores, kind="stable")]
    found = np.cumsum(hits, axis=1)
    precision = found / (np.arange(hits.shape[1]) + 1)
    recall = found / len(answers.truth.boxes)
    points = np.linspace(0, 1, 101)
    out = np.zeros(len(_THRESHOLDS))
    for t in range(len(_THRESHOLDS)):
        envelope = np.append(np.maximum.accumulate(precision[t, ::-1])[::-1], 0.0)
        out[t] = envelope[np.searchsorted(recall[t], points, side="left")].mean()
    return out


def _match_loop(values: Any, offsets: Any, given: Any, truth: Any, thresholds: Any, hits: Any) -> None:
    for p in range(len(offsets) - 1):
        n, m = given[p + 1] - given[p], truth[p + 1] - truth[p]
        free = np.empty(m, np.bool_)
        for t in range(len(thresholds)):
            free[:] = True
            for i in range(n):
                best, at = thresholds[t], -1
                for j in range(m):
                    value = values[offsets[p] + i * m + j]
                    if free[j] and value > best:
                        best, at = value, j
                if at >= 0:
                    free[at] = False
                    hits[t, given[p] + i] = True


_match = compiled(_match_loop, types.void(_F1, _I1, _I1, _I1, _F1, types.boolean[:, ::1]))

CHEX: Final = Scorer(
    name="chex",
    source="philip-mueller/chex@c3f5d786 SentenceDetectionMetrics(obj_threshold=0.3)",
    main="mIoU",
    note="IoU pools the pixels of all pairs, so large regions decide and small ones hardly count; AP needs distinct "
    "scores.",
    compute=_compute,
)
