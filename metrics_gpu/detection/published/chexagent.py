"""CheXagent's phrase grounding: the first given box against the first true one, on whole hundredths."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...statistics.exact_sums import exact_mean
from ..boxes import Answers, BoxLists, Int
from ..overlaps import BoxOverlaps
from .scorer import Scorer, Values, box_ious


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    """Means over pairs, with the given boxes in their order, and sorted as the true ones are."""
    truth = _hundredths(answers.truth, answers.sizes)
    true = truth[_leftmost(answers.truth, answers.sizes)]
    given = _hundredths(answers.given, answers.sizes)
    plain = np.where(answers.given.lengths > 0, answers.given.offsets[:-1], -1)
    return {
        "mean_iou": _mean(given, plain, true),
        "mean_iou_sorted": _mean(given, _leftmost(answers.given, answers.sizes), true),
    }


def _thousandths(lists: BoxLists, sizes: Int) -> Int:
    return np.trunc(lists.per_side(sizes) * 1000).astype(np.int64)


def _hundredths(lists: BoxLists, sizes: Int) -> Int:
    """Thousandths, at most 999, divided by ten and rounded half to even."""
    return np.rint(np.minimum(_thousandths(lists, sizes), 999) / 10).astype(np.int64)


def _leftmost(lists: BoxLists, sizes: Int) -> Int:
    """The first box of each list sorted by x, then y, in thousandths; -1 in an empty list."""
    corners = _thousandths(lists, sizes)
    order = np.lexsort((corners[:, 1], corners[:, 0], lists.owner))
    return np.where(lists.lengths > 0, np.append(order, -1)[lists.offsets[:-1]], -1)


def _mean(given: Int, chosen: Int, true: Int) -> float | None:
    """The mean IoU; a silent pair is scored with the box of the last pair before it that was not silent.

    None where there is none: the authors' code ends with an IndexError.
    """
    if not len(chosen) or chosen[0] < 0:
        return None
    spoke = np.maximum.accumulate(np.where(chosen >= 0, np.arange(len(chosen)), 0))
    return exact_mean(box_ious(given[chosen[spoke]], true))


CHEXAGENT: Final = Scorer(
    name="chexagent",
    source="Stanford-AIMI/CheXagent@e4f31e6e run_phrase_grounding.py main",
    main="mean_iou",
    note="It compares the first box with the leftmost true one and scores a silent pair with an earlier answer: "
    "perfect boxes in another order lose a third, and the order of the images counts.",
    compute=_compute,
)
