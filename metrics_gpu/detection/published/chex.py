"""ChEX's sentence detection: IoU of all masks together, and average precision of all boxes as one class."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..average_precision import interpolated
from ..boxes import Answers, BoxLists, Int, Rectangles
from ..overlaps import HIT, BoxOverlaps, matched_in_order, overlaps
from ..unions import union_counts
from .scorer import Scorer, Values

_SIDE: Final = 1024
_AT_LEAST: Final = 0.3
_LEVELS: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
_THRESHOLDS: Final = (0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75)


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
        "mAP": None if precision is None else float(np.mean(precision)),
        "AP@0.5": None if precision is None else precision[_THRESHOLDS.index(0.5)],
        "AP@0.75": None if precision is None else precision[_THRESHOLDS.index(0.75)],
    }


def _iou(given: BoxLists, truth: Rectangles, sizes: Int, level: float) -> float:
    """Pixels of all intersections over pixels of all unions, of the boxes whose probability is above `level`."""
    if given.scores is not None:
        given = given.keep(given.scores.astype(np.float32) > np.float32(level))
    counts = union_counts(_drawn(given, sizes), truth)
    return int(counts.overlap.sum()) / max(int(counts.union.sum()), 1)


def _drawn(lists: BoxLists, sizes: Int) -> Rectangles:
    """Corners from centre and size in fractions, truncated on a grid of 1024."""
    boxes = lists.per_side(sizes)
    centre, size = _SIDE * ((boxes[:, :2] + boxes[:, 2:]) / 2), _SIDE * (boxes[:, 2:] - boxes[:, :2])
    spans = np.trunc(np.hstack([centre - size / 2, centre + size / 2])).astype(np.int64)
    return Rectangles(np.clip(spans, 0, _SIDE), lists.offsets)


def _precisions(answers: Answers) -> list[float]:
    """Average precision at each threshold: an IoU strictly above it, 101 recall points."""
    given, truth = answers.given.by_score(), answers.truth
    fractions = BoxLists(given.per_side(answers.sizes), given.offsets)
    table = overlaps(fractions, BoxLists(truth.per_side(answers.sizes), truth.offsets))
    hits = matched_in_order(table, _THRESHOLDS, above=True) == HIT
    assert given.scores is not None
    order = np.argsort(-given.scores, kind="stable")
    return [interpolated(row[order], len(truth.boxes)) for row in hits]


CHEX: Final = Scorer(
    name="chex",
    source="philip-mueller/chex@c3f5d786 SentenceDetectionMetrics(obj_threshold=0.3)",
    main="mIoU",
    note="IoU pools the pixels of all pairs, so large regions decide and small ones hardly count; AP needs distinct "
    "scores.",
    compute=_compute,
)
