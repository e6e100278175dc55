"""Referring expression accuracy as MedRPG and TransVG compute it: one box a phrase, IoU of at least 0.5."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...statistics.exact_sums import exact_mean
from ..boxes import Answers, Float
from ..overlaps import BoxOverlaps
from .scorer import Scorer, Values


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    """The surest box, else the first; a silent pair has a box without area. Pairs with one true box, then all pairs
    against their first true box."""
    one = answers.truth.lengths == 1
    chosen = answers.given.first
    given = np.vstack([answers.given.per_side(answers.sizes), np.zeros((1, 4))])[chosen]
    true = answers.truth.per_side(answers.sizes)[answers.truth.offsets[:-1]]
    ious = _iou(np.clip(_through_centre(given), 0.0, 1.0), _through_centre(true))
    found: dict[str, float | None] = {}
    for name, pairs in (("pairs_with_one_box", one), ("first_box_of_all_pairs", np.ones(len(one), np.bool_))):
        found |= {f"{name}.{key}": value for key, value in _summary(ious, pairs).items()}
    return found


def _summary(ious: Float, pairs: NDArray[np.bool_]) -> Values:
    own = ious[pairs]
    return {
        "acc_0.5": float((own >= 0.5).mean()) if len(own) else None,
        "mean_iou": exact_mean(own),
        "at_threshold": float((np.abs(own - 0.5) < 1e-9).sum()),
        "n": float(len(own)),
    }


def _through_centre(boxes: Float) -> Float:
    """The corners that centre and size give, with the rounding of that way."""
    centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2.0, boxes[:, 2:] - boxes[:, :2]
    return np.hstack([centre - 0.5 * size, centre + 0.5 * size])


def _iou(given: Float, true: Float) -> Float:
    sides = np.minimum(given[:, 2:], true[:, 2:]) - np.maximum(given[:, :2], true[:, :2])
    both = np.maximum(sides, 0.0).prod(axis=1)
    areas = (given[:, 2:] - given[:, :2]).prod(axis=1) + (true[:, 2:] - true[:, :2]).prod(axis=1)
    found: Float = both / (areas - both + 1e-16)
    return found


ACC50: Final = Scorer(
    name="acc50",
    source="eraserNut/MedRPG@46e16d24 eval_utils",
    main="pairs_with_one_box.acc_0.5",
    note="It sees one given and one true box: pairs with several true boxes are left out, and boxes beside the first "
    "cost nothing.",
    compute=_compute,
)
