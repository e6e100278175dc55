"""RadFact's scores of boxes: masks per pair, and grounded phrases per study where every finding entails itself."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...statistics.exact_sums import exact_mean
from ..boxes import Answers, BoxLists, Float, Int, Rectangles
from ..overlaps import BoxOverlaps
from ..unions import UnionCounts, union_counts
from .scorer import Scorer, Values

_SIDE: Final = 224
_COVERED: Final = 0.5


def _boxes(answers: Answers, _table: BoxOverlaps) -> Values:
    counts = _masks(answers)
    precision, recall = _shares(counts)
    union = counts.area + counts.region - counts.overlap
    return {
        "iou": exact_mean(_divided(counts.overlap, union)),
        "precision": exact_mean(precision),
        "recall": exact_mean(recall),
        "precision_is_nan": float(np.isnan(precision).sum()),
    }


def _phrases(answers: Answers, _table: BoxOverlaps) -> Values:
    """A finding is a phrase; its boxes are entailed if more than half of their area is covered by those of the other
    side. Fractions per image, then means over the images where they are defined."""
    precision, recall = _shares(_masks(answers))
    spoke = answers.given.lengths > 0
    images = np.unique(answers.case_of)
    of_given = exact_mean(_fractions(precision > _COVERED, spoke, answers.case_of, images))
    of_true = exact_mean(_fractions(recall > _COVERED, np.ones(len(spoke), np.bool_), answers.case_of, images))
    f1 = None
    if of_given is not None and of_true is not None:
        f1 = 2 * of_given * of_true / (of_given + of_true) if of_given + of_true else float("nan")
    return {
        "cases": float(len(images)),
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
    return Rectangles(np.ascontiguousarray(np.clip(spans, 0, _SIDE)), lists.offsets)


def _shares(counts: UnionCounts) -> tuple[Float, Float]:
    return _divided(counts.overlap, counts.area), _divided(counts.overlap, counts.region)


def _divided(part: Int | Float, whole: Int | Float) -> Float:
    """NaN where the whole is 0."""
    found: Float = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return found


def _fractions(entailed: NDArray[np.bool_], phrases: NDArray[np.bool_], case_of: Int, images: Int) -> Float:
    """float64 [images]: the share of entailed phrases; NaN where an image has no phrase."""
    place = np.searchsorted(images, case_of)
    entailed_phrases = np.bincount(place, phrases & entailed, len(images))
    return _divided(entailed_phrases, np.bincount(place, phrases, len(images)))


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
