"""The default protocol's scores of single boxes: matched boxes and invented boxes.

Every pair counts, answered or not (docs/detection.md §1). F1 = 2 tp / (given + true boxes), summed over pairs, where tp
is the size of the largest matching of a pair. Row 0 is the estimate, in which every patient counts once; the others are
bootstrap replicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, drawn_or_not, mean_over_classes
from .boxes import Answers, Float
from .overlaps import BoxOverlaps, matched

THRESHOLDS: Final = (0.1, 0.25, 0.5)


@dataclass(frozen=True, eq=False)
class MatchedScores:
    """Scores at one threshold; float64 [1 + B] each, NaN where nothing was drawn, and [1 + B, C] by class.

    f1, precision and recall are of all boxes together, f1_classes is the mean of the classes' F1, f1_with_negatives has
    the boxes given for absent classes in its denominator. tp: of the estimate.
    """

    threshold: float
    tp: int
    by_class: Float
    f1_classes: Float
    f1: Float
    precision: Float
    recall: Float
    f1_with_negatives: Float


@dataclass(frozen=True)
class Hallucination:
    """asked: absent classes that were asked; with_boxes: of those answered with a box; boxes: how many in all."""

    asked: int
    with_boxes: int
    boxes: int

    @property
    def share(self) -> float | None:
        """Of the answers, those with a box."""
        return self.with_boxes / self.asked if self.asked else None

    @property
    def boxes_per_answer(self) -> float | None:
        """Boxes given for an absent class."""
        return self.boxes / self.asked if self.asked else None


def matched_scores(
    answers: Answers,
    table: BoxOverlaps,
    draws: Draws | None = None,
    patient_of: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
) -> list[MatchedScores]:
    """Scores at each threshold. patient_of: the patient of each pair and of each negative; needed with `draws`.

    Raises ValueError if they do not fit together.
    """
    of_pairs, of_negatives = patient_of if patient_of is not None else (None, None)
    draws_of, patients = drawn_or_not(draws, of_pairs, len(answers.truth))
    _, negative_patients = drawn_or_not(draws, of_negatives, len(answers.negatives))
    tp = matched(table, thresholds)
    columns = np.column_stack([answers.given.lengths, answers.truth.lengths, *tp]).astype(np.float64)
    members = [np.flatnonzero(answers.class_of == c) for c in range(len(answers.names))]
    sums = np.stack([draws_of.sums(patients[pairs], columns[pairs]) for pairs in members])
    extra = draws_of.sums(negative_patients, answers.negatives.lengths[:, None].astype(np.float64))[:, 0]
    totals = sums.sum(axis=0)
    scores = []
    with np.errstate(invalid="ignore", divide="ignore"):
        for t, threshold in enumerate(thresholds):
            by_class = (2 * sums[..., 2 + t] / (sums[..., 0] + sums[..., 1])).T
            hits, given, true = totals[:, 2 + t], totals[:, 0], totals[:, 1]
            nothing = np.where(true > 0, 0.0, np.nan)
            scores.append(
                MatchedScores(
                    threshold=threshold,
                    tp=int(tp[t].sum()),
                    by_class=by_class,
                    f1_classes=mean_over_classes(by_class),
                    f1=2 * hits / (given + true),
                    precision=np.where(given > 0, hits / given, nothing),
                    recall=hits / true,
                    f1_with_negatives=nothing + 2 * hits / (given + true + extra),
                )
            )
    return scores


def hallucination(answers: Answers) -> Hallucination:
    """What was given for absent classes."""
    given = answers.negatives.lengths
    return Hallucination(len(given), int(((given > 0) | answers.tried).sum()), int(given.sum()))
