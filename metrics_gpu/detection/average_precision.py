"""Average precision by COCO's rules: one ranking of a class over all images, 101 recall points.

In each image and class the surest 100 boxes are matched one after the other with the free true box of the largest IoU
(of equal ones the last) if it reaches the threshold. All boxes of a class are then ranked by score; of equal scores the
earlier image comes first, so that a constant score makes the value depend on the order of the images.

A true box that is marked as a crowd is ignored. A given box that matches no other true box, and whose own area is
covered by a crowd up to the threshold, is neither right nor wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .boxes import Answers, BoxLists, Float, Int
from .overlaps import overlaps

COCO: Final = (0.1, 0.25, *np.linspace(0.5, 0.95, 10).tolist())
"""The thresholds: 0.1, 0.25 and COCO's ten."""

_MOST: Final = (1, 10, 100)
_HIT: Final = 1
_IGNORED: Final = 2
_F1, _I1 = readonly(types.float64, 1), readonly(types.int64, 1)


@dataclass(frozen=True)
class Ranked:
    """Values in 0..1 at each of `COCO`, NaN for a class without a true box that is no crowd.

    precision: float64 [T, C]. recall: float64 [3, T, C], with the surest 1, 10 and 100 boxes of each image.
    """

    precision: Float
    recall: Float

    def mean(self, values: Float) -> float:
        """The mean over the entries that are defined."""
        return float(np.nanmean(values)) if not np.isnan(values).all() else float("nan")


def average_precision(answers: Answers) -> dict[str, float]:
    """AP at 0.1, 0.25 and 0.5 and over 0.50 to 0.95, the mean over classes. Raises ValueError without scores."""
    if answers.given.scores is None:
        raise ValueError("average precision needs a score for each box")
    found = ranked(answers)
    named = {"0.1": found.precision[0], "0.25": found.precision[1], "0.5": found.precision[2]}
    return {
        **{f"ap@{name}": found.mean(values) for name, values in named.items()},
        "ap": found.mean(found.precision[2:]),
    }


def ranked(answers: Answers) -> Ranked:
    """Precision and recall of all classes; boxes without scores are ranked by their order."""
    given, order = _together(answers)
    images = np.concatenate([answers.case_of, answers.negative_case])
    classes = np.concatenate([answers.class_of, answers.negative_class])
    truth = _truth(answers)
    crowd = np.zeros(len(truth.boxes), np.bool_) if answers.crowd is None else answers.crowd
    table = overlaps(given, truth, crowd)
    outcome = np.zeros((len(COCO), len(given.boxes)), np.int8)
    _match(table.values, table.offsets, table.given, table.truth, np.minimum(np.array(COCO), 1 - 1e-10), outcome)
    hits = outcome == _HIT
    place = np.arange(len(given.boxes)) - given.offsets[:-1][given.owner]
    scores = np.ones(len(given.boxes)) if given.scores is None else given.scores
    precision = np.full((len(COCO), len(answers.names)), np.nan)
    recall = np.full((len(_MOST), len(COCO), len(answers.names)), np.nan)
    for c in range(len(answers.names)):
        true = int((~crowd & (answers.class_of[answers.truth.owner] == c)).sum())
        if not true:
            continue
        own = np.flatnonzero((classes[given.owner] == c) & (place < _MOST[-1]))
        own = own[np.lexsort((place[own], order[given.owner[own]], images[given.owner[own]], -scores[own]))]
        for m, most in enumerate(_MOST):
            recall[m, :, c] = hits[:, own[place[own] < most]].sum(axis=1) / true
        for t in range(len(COCO)):
            precision[t, c] = _area(hits[t, own[outcome[t, own] != _IGNORED]], true)
    return Ranked(precision, recall)


def _together(answers: Answers) -> tuple[BoxLists, Int]:
    """The boxes of pairs, then those of negatives, surest first in each list; and the order of the lists."""
    given, negatives = answers.given, answers.negatives
    scores = None
    if given.scores is not None:
        extra = np.zeros(len(negatives.boxes)) if negatives.scores is None else negatives.scores
        scores = np.concatenate([given.scores, extra])
    ends = np.concatenate([given.offsets, given.offsets[-1] + negatives.offsets[1:]])
    both = BoxLists(np.concatenate([given.boxes, negatives.boxes]), ends, scores)
    return both.by_score(), np.arange(len(both))


def _truth(answers: Answers) -> BoxLists:
    """The true boxes of pairs, and an empty list for each negative."""
    truth = answers.truth
    ends = np.concatenate([truth.offsets, np.full(len(answers.negatives), truth.offsets[-1], np.int64)])
    return BoxLists(truth.boxes, ends)


def _area(hits: NDArray[np.bool_], true: int) -> float:
    """The mean of the precision envelope at recall 0, 0.01, ..., 1; 0 beyond the largest recall."""
    found = np.cumsum(hits)
    precision = found / (np.arange(len(hits)) + 1 + np.spacing(1))
    envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    points = np.searchsorted(found / true, np.linspace(0.0, 1.0, 101), side="left")
    return float(envelope[points].mean())


def _match_loop(values: Any, offsets: Any, given: Any, truth: Any, thresholds: Any, outcome: Any) -> None:
    # The value of a crowd is negative (see `overlaps`), so that it matches none and stays free.
    for p in range(len(offsets) - 1):
        n, m = given[p + 1] - given[p], truth[p + 1] - truth[p]
        if n == 0 or m == 0:
            continue
        free = np.empty(m, np.bool_)
        for t in range(len(thresholds)):
            free[:] = True
            for i in range(min(n, 100)):
                best, at, crowded = thresholds[t], -1, False
                for j in range(m):
                    value = values[offsets[p] + i * m + j]
                    if free[j] and value >= best:
                        best, at = value, j
                    crowded |= -value >= thresholds[t]
                if at >= 0:
                    free[at] = False
                    outcome[t, given[p] + i] = _HIT
                elif crowded:
                    outcome[t, given[p] + i] = _IGNORED


_match = compiled(_match_loop, types.void(_F1, _I1, _I1, _I1, _F1, types.int8[:, ::1]))
