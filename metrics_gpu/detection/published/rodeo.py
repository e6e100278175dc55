"""RoDeO: boxes of all classes of an image matched at once, then classes, distances and shapes scored apart."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..boxes import Answers, Float, Int
from ..overlaps import BoxOverlaps
from .scorer import Scorer, Values


def _compute(answers: Answers, _table: BoxOverlaps) -> Values:
    given = np.concatenate([answers.given.boxes, answers.negatives.boxes])
    given_class = np.concatenate(
        [answers.class_of[answers.given.owner], answers.negative_class[answers.negatives.owner]]
    )
    given_case = np.concatenate([answers.case_of[answers.given.owner], answers.negative_case[answers.negatives.owner]])
    true, true_class = answers.truth.boxes, answers.class_of[answers.truth.owner]
    true_case = answers.case_of[answers.truth.owner]
    order, true_order = np.argsort(given_case, kind="stable"), np.argsort(true_case, kind="stable")
    presence = np.zeros((2, answers.cases, len(answers.names)), np.bool_)
    presence[0, given_case, given_class] = True
    presence[1, true_case, true_class] = True
    weight = max(0.0, _correlation(presence[0], presence[1]))

    cases = np.arange(answers.cases + 1)
    ends, true_ends = np.searchsorted(given_case[order], cases), np.searchsorted(true_case[true_order], cases)
    pairs: list[tuple[Int, Int]] = []
    for n in np.flatnonzero((np.diff(ends) > 0) & (np.diff(true_ends) > 0)):
        given_boxes, true_boxes = order[ends[n] : ends[n + 1]], true_order[true_ends[n] : true_ends[n + 1]]
        same = given_class[given_boxes][:, None] == true_class[true_boxes]
        rows, columns = linear_sum_assignment(-_generalised(given[given_boxes], true[true_boxes]) - weight * same)
        pairs.append((given_boxes[rows], true_boxes[columns]))
    if not pairs:
        return dict.fromkeys(("classification", "localization", "shape_matching", "total"), 0.0)
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    share = len(left) / (len(given) + len(true) - len(left))
    parts = {
        "classification": max(0.0, _matched_classes(given_class[left], true_class[right], len(answers.names))) * share,
        "localization": math.fsum(_near(given[left], true[right]).tolist()) / len(left) * share,
        "shape_matching": math.fsum(_alike(given[left], true[right]).tolist()) / len(left) * share,
    }
    return {**parts, "total": len(parts) / sum(1 / (value + 1e-6) for value in parts.values())}


def _generalised(given: Float, true: Float) -> Float:
    """float64 [n, m]: generalised IoU, with the share of the enclosing box that neither covers taken off."""
    a, b = given[:, None], true[None]
    both = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0).prod(axis=-1)
    around = (np.maximum(a[..., 2:], b[..., 2:]) - np.minimum(a[..., :2], b[..., :2])).prod(axis=-1)
    union = (a[..., 2:] - a[..., :2]).prod(axis=-1) + (b[..., 2:] - b[..., :2]).prod(axis=-1) - both
    overlap: Float = both / union - (around - union) / around
    return overlap


def _near(given: Float, true: Float) -> Float:
    """1 at the same centre, 1/2 at a distance of one true box, each axis in units of its side."""
    sides = true[:, 2:] - true[:, :2]
    apart = ((given[:, :2] + given[:, 2:]) / 2 - (true[:, :2] + true[:, 2:]) / 2) / sides
    closeness: Float = np.exp(-math.log(2) * (apart**2).sum(axis=1))
    return closeness


def _alike(given: Float, true: Float) -> Float:
    """IoU of boxes moved to one corner."""
    given_sides, true_sides = given[:, 2:] - given[:, :2], true[:, 2:] - true[:, :2]
    both = np.minimum(given_sides, true_sides).prod(axis=1)
    overlap: Float = both / (given_sides.prod(axis=1) + true_sides.prod(axis=1) - both)
    return overlap


def _matched_classes(given: Int, true: Int, classes: int) -> float:
    labels = np.arange(classes)
    return _correlation(given[:, None] == labels, true[:, None] == labels)


def _correlation(given: NDArray[np.bool_], true: NDArray[np.bool_]) -> float:
    """Matthews' correlation of two sets of flags; 0 where one is constant."""
    n, a, b, both = given.size, int(given.sum()), int(true.sum()), int((given & true).sum())
    spread = math.sqrt(a * (n - a)) * math.sqrt(b * (n - b))
    return (n * both - a * b) / spread if spread else 0.0


RODEO: Final = Scorer(
    name="rodeo",
    source="FeliMe/RoDeO@cc551932",
    main="total",
    note="Boxes are matched even without overlap, so distance costs little: mirrored boxes keep two thirds of a "
    "perfect score.",
    compute=_compute,
)
