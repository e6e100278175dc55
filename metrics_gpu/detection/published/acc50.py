"""Referring expression accuracy as MedRPG and TransVG compute it: one box a phrase, IoU of at least 0.5."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...statistics.exact_sums import exact_mean
from ..boxes import Answers, Float
from ..overlaps import BoxOverlaps
from .scorer import Scorer, Values, box_ious


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    """The surest box, else the first; a silent pair has a box without area. Pairs with one true box, then all pairs
    against their first true box."""
    given = np.vstack([answers.given.per_side(answers.sizes), np.zeros((1, 4))])[answers.given.first]
    true = answers.truth.per_side(answers.sizes)[answers.truth.offsets[:-1]]
    ious = box_ious(np.clip(_through_centre(given), 0.0, 1.0), _through_centre(true))
    scores: dict[str, float | None] = {}
    for name, part in (("pairs_with_one_box", ious[answers.truth.lengths == 1]), ("first_box_of_all_pairs", ious)):
        scores[f"{name}.acc_0.5"] = float((part >= 0.5).mean()) if len(part) else None
        scores[f"{name}.mean_iou"] = exact_mean(part)
        scores[f"{name}.at_threshold"] = float((np.abs(part - 0.5) < 1e-9).sum())
        scores[f"{name}.n"] = float(len(part))
    return scores


def _through_centre(boxes: Float) -> Float:
    """The corners that centre and size give, with the rounding of that way."""
    centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2.0, boxes[:, 2:] - boxes[:, :2]
    return np.hstack([centre - 0.5 * size, centre + 0.5 * size])


ACC50: Final = Scorer(
    name="acc50",
    source="eraserNut/MedRPG@46e16d24 eval_utils",
    main="pairs_with_one_box.acc_0.5",
    note="It sees one given and one true box: pairs with several true boxes are left out, and boxes after the first "
    "cost nothing.",
    compute=_compute,
)
