"""Average precision by COCO's rules: one ranking of a class over all images, 101 recall points.

In each image and class the surest 100 boxes are matched one after the other with the free true box of the largest IoU
(of equal ones the last) if it reaches the threshold. All boxes of a class are then ranked by score; of equal scores the
earlier image comes first, so that a constant score makes the value depend on the order of the images.

A true box that is marked as a crowd is ignored. A given box that matches no other true box, and whose own area is
covered by a crowd up to the threshold, is neither right nor wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .boxes import Answers, BoxLists, Float
from .overlaps import HIT, IGNORED, matched_in_order, overlaps

COCO: Final = (0.1, 0.25, *np.linspace(0.5, 0.95, 10).tolist())
"""The thresholds: 0.1, 0.25 and COCO's ten."""

_MOST: Final = (1, 10, 100)


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
    ranking = ranked(answers)
    named = {"0.1": ranking.precision[0], "0.25": ranking.precision[1], "0.5": ranking.precision[2]}
    return {
        **{f"ap@{name}": ranking.mean(values) for name, values in named.items()},
        "ap": ranking.mean(ranking.precision[2:]),
    }


def ranked(answers: Answers) -> Ranked:
    """Precision and recall of all classes; boxes without scores are ranked by their order."""
    asked = len(answers.negatives)
    given = answers.given.followed_by(answers.negatives).by_score()
    truth = answers.truth.followed_by(BoxLists(np.zeros((0, 4)), np.zeros(asked + 1, np.int64)))
    images = np.append(answers.case_of, answers.negative_case)[given.owner]
    classes = np.append(answers.class_of, answers.negative_class)[given.owner]
    crowd = np.zeros(len(truth.boxes), np.bool_) if answers.crowd is None else answers.crowd
    # A box behind the 100th is matched after them, so that it takes no true box from them, and is not ranked.
    outcome = matched_in_order(overlaps(given, truth, crowd), COCO, above=False)
    hits = outcome == HIT
    rank = np.arange(len(given.boxes)) - given.offsets[:-1][given.owner]
    scores = np.ones(len(given.boxes)) if given.scores is None else given.scores
    precision = np.full((len(COCO), len(answers.names)), np.nan)
    recall = np.full((len(_MOST), len(COCO), len(answers.names)), np.nan)
    for c in range(len(answers.names)):
        true = int((~crowd & (answers.class_of[answers.truth.owner] == c)).sum())
        if not true:
            continue
        boxes = np.flatnonzero((classes == c) & (rank < _MOST[-1]))
        boxes = boxes[np.lexsort((images[boxes], -scores[boxes]))]
        for m, most in enumerate(_MOST):
            recall[m, :, c] = hits[:, boxes[rank[boxes] < most]].sum(axis=1) / true
        for t in range(len(COCO)):
            # COCO's code adds the distance from 1 to the next number to each count of boxes.
            precision[t, c] = interpolated(hits[t, boxes[outcome[t, boxes] != IGNORED]], true, np.spacing(1))
    return Ranked(precision, recall)


def interpolated(hits: NDArray[np.bool_], true: int, more: float = 0.0) -> float:
    """The mean of the precision envelope at recall 0, 0.01, ..., 1 of ranked boxes; 0 beyond the largest recall.

    true: the number of true boxes. more: what is added to each number of boxes before it divides.
    """
    right = np.cumsum(hits)
    precision = right / (np.arange(len(hits)) + 1 + more)
    envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    points = np.searchsorted(right / true, np.linspace(0.0, 1.0, 101), side="left")
    return float(envelope[points].mean())
