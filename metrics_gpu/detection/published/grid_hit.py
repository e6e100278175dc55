"""The hit of a grid: whether at least half of the first cell that is named is region."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...statistics.exact_sums import exact_mean
from ..boxes import Answers, BoxLists
from ..overlaps import BoxOverlaps
from ..unions import pixel_rectangles, union_counts
from .scorer import Scorer, Values

_HALF: Final = 0.5


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    """The surest box, else the first; a silent pair misses."""
    given = answers.given
    some = given.first >= 0
    ends = np.concatenate([[0], np.cumsum(some)]).astype(np.int64)
    first = BoxLists(given.boxes[given.first[some]], ends)
    counts = union_counts(*(pixel_rectangles(lists, answers.sizes) for lists in (first, answers.truth)))
    hits = counts.inside >= _HALF
    classes = [hits[answers.class_of == c] for c in np.unique(answers.class_of)]
    return {
        "hit_rate": exact_mean(hits.astype(np.float64)),
        "mean_over_classes": exact_mean(np.array([part.mean() for part in classes])),
        "n": float(len(hits)),
    }


GRID_HIT: Final = Scorer(
    name="grid_hit",
    source="arXiv 2509.18015",
    main="hit_rate",
    note="One cell decides: cells after the first cost nothing, and a region that fills no half of a cell is missed.",
    compute=_compute,
)
