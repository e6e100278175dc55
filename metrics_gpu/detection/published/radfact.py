"""RadFact's scores of boxes: masks per pair, and grounded phrases per study where every finding entails itself."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...statistics.exact_sums import exact_mean, ratio
from ..boxes import Answers, BoxLists, Int, Rectangles
from ..overlaps import BoxOverlaps
from ..unions import UnionCounts, union_counts
from .scorer import Scorer, Values

_SIDE: Final = 224
_COVERED: Final = 0.5


def _boxes(answers: Answers, _table: BoxOverlaps) -> Values:
    counts = _masks(answers)
    precision = ratio(counts.overlap, counts.area)
    return {
        "iou": exact_mean(ratio(counts.overlap, counts.union)),
        "precision": exact_mean(precision),
        "recall": exact_mean(ratio(counts.overlap, counts.region)),
        "precision_is_nan": float(np.isnan(precision).sum()),
    }


def _phrases(answers: Answers, _table: BoxOverlaps) -> Values:
    """A finding is a phrase; its boxes are entailed if the boxes of the other side cover more than half of
    their area. Fractions per image, then means over the images where they are defined."""
    counts, images = _masks(answers), np.unique(answers.case_of, return_inverse=True)[1]
    entailed = (ratio(counts.overlap, total) > _COVERED for total in (counts.area, counts.region))
    phrases = answers.given.lengths > 0, np.ones(len(images), np.bool_)
    of_given, of_true = (
        exact_mean(ratio(np.bincount(images, side & true), np.bincount(images, side)))
        for side, true in zip(phrases, entailed, strict=True)
    )
    f1 = None
    if of_given is not None and of_true is not None:
        f1 = 2 * of_given * of_true / (of_given + of_true) if of_given + of_true else float("nan")
    return {
        "cases": float(len(np.unique(images))),
        "spatial_precision": of_given,
        "spatial_recall": of_true,
        "spatial_f1": f1,
        "grounding_precision": of_given,
        "grounding_recall": of_true,
    }


def _masks(answers: Answers) -> UnionCounts:
    return union_counts(_drawn(answers.given, answers.sizes), _drawn(answers.truth, answers.sizes))


def _drawn(lists: BoxLists, sizes: Int) -> Rectangles:
    """Corners truncated on the grid: a box that is thinner than a pixel can vanish."""
    spans = np.trunc(lists.per_side(sizes) * _SIDE).astype(np.int64)
    return Rectangles(np.clip(spans, 0, _SIDE), lists.offsets)


_SOURCE: Final = "microsoft/RadFact@72463ac3"

RADFACT: Final = Scorer(
    name="radfact",
    source=f"{_SOURCE} RadFactMetric",
    main="spatial_f1",
    note="Silent pairs leave the precision, and a box of the whole image has recall 100; every finding is taken to "
    "entail itself, so the logical part is not scored.",
    compute=_phrases,
)

RADFACT_BOXES: Final = Scorer(
    name="radfact_boxes",
    source=f"{_SOURCE} compute_box_metrics, means over pairs are ours",
    main="iou",
    note="Precision leaves silent pairs out, and a box that is thinner than 1/224 of the image can vanish.",
    compute=_boxes,
)
