"""A finished cell -> AUC and pointing of each finding, from one bootstrap over patients, and where they place it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from .....metrics_gpu.grounding.scores import Grounding
from .....metrics_gpu.recognition.scores import Recognition, recognition
from .....metrics_gpu.statistics.correlation import replicated_r
from .....metrics_gpu.statistics.intervals import Interval, mean_interval
from .....metrics_gpu.statistics.measured_numbers import Measured
from .....metrics_gpu.statistics.multiple_tests import holm
from .....metrics_gpu.statistics.quadrants import QUADRANTS, auc_test, pointing_test, quadrants, share_inside
from ....results.numbers.fields import number_of
from ..columns import measured
from ..study_cell import StudyCell

GAP, REVERSE = QUADRANTS[2], QUADRANTS[1]
"""The quadrants of findings that are recognised but not grounded, and the reverse."""
NO_SKILL: Final = 0.5
"""The AUC of a score that does not know the finding."""


@dataclass(frozen=True)
class Quadrants:
    """auc: from which AUC on a finding is recognised; pointing: from which pointing on it is grounded; level: of
    intervals, whose complement p is compared with."""

    auc: float
    pointing: float
    level: float

    @property
    def bounds(self) -> tuple[float, float]:
        return self.auc, self.pointing


@dataclass(frozen=True, eq=False)
class FindingPoint:
    """One finding of one cell.

    auc, pointing: with replicates of the same draws; their p are against the bounds. over_auc, over_chance: the same
    less 0.5, and less the mean share of the image that regions cover; their p are against 0. positives: images with the
    finding. quadrant: by the two values. membership: its value is the share of joint replicates in this quadrant, its
    p the larger one of both numbers. together: correlation of both numbers over the replicates.
    """

    cell: StudyCell
    name: str
    auc: Measured
    pointing: Measured
    over_auc: Measured
    over_chance: Measured
    chance: float
    positives: int
    quadrant: str
    membership: Measured
    together: float | None

    @property
    def row(self) -> dict[str, Any]:
        return {
            "model": self.cell.model,
            "dataset": self.cell.dataset,
            "class": self.name,
            "n": self.pointing.n,
            "positives": self.positives,
            **measured("auc", self.auc),
            **measured("pointing", self.pointing, method=True),
            "chance": self.chance,
            "together": self.together,
            "quadrant": self.quadrant,
            "share": self.membership.value,
            "auc_p": self.auc.p,
            "pointing_p": self.pointing.p,
            **self.membership.test,
        }


def finding_points(cell: StudyCell, bounds: Quadrants) -> list[FindingPoint] | str:
    """The findings of a cell that have both numbers, or the reason why there is none."""
    if not cell.n:
        return "it has no pair with a region"
    if not (cell.scored and cell.rows.scored):
        return "it has no finite score for each image, so there is no AUC"
    scores = recognition(cell.rows.logits, cell.rows.labels, cell.classes, cell.draws, cell.image_patients)
    grounding = cell.drawn_scores()
    points = [_point(cell, name, scores, grounding, bounds) for name in cell.classes]
    return [point for point in points if point] or (
        "no finding has a region and images both with and without it, so there is no AUC beside a pointing"
    )


def _point(
    cell: StudyCell, name: str, scores: Recognition, grounding: Grounding, bounds: Quadrants
) -> FindingPoint | None:
    sample, level = cell.sample, bounds.level
    auc, pointing = number_of(scores, "auc", name, sample, level), number_of(grounding, "pointing", name, sample, level)
    chance = grounding.number("chance", name)
    if auc.value is None or pointing.value is None or chance.value is None:
        return None
    assert auc.drawn is not None and pointing.drawn is not None and chance.drawn is not None  # a study has draws
    parts, label = sample.auc_parts([name]), cell.rows.labels[:, cell.classes.index(name)]
    counts = [len(np.unique(sample.image_patient[label == value])) for value in (1, 0)]
    auc_ps = [None if parts is None else auc_test(auc.value, parts, counts, bound) for bound in (bounds.auc, NO_SKILL)]
    pairs = sample.pairs_of(name)
    hits, owners = grounding.each["pointing"][pairs], sample.pair_patient[pairs]
    pointing_ps = [pointing_test(hits, owners, bound) for bound in (bounds.pointing, chance.value)]
    place = int(quadrants(np.array(auc.value), np.array(pointing.value), bounds.bounds))
    above = sample.shares(grounding.each["pointing"] - grounding.each["chance"], name)
    gap = pointing.drawn - chance.drawn
    known = ~np.isnan(auc.drawn + pointing.drawn)
    return FindingPoint(
        cell=cell,
        name=name,
        auc=replace(auc, p=auc_ps[0]),
        pointing=replace(pointing, p=pointing_ps[0]),
        over_auc=Measured(auc.value - NO_SKILL, _less(auc.interval, NO_SKILL), p=auc_ps[1]),
        over_chance=Measured(pointing.value - chance.value, mean_interval(gap, above, level, None), p=pointing_ps[1]),
        chance=chance.value,
        positives=scores.count("positives", name),
        quadrant=QUADRANTS[place],
        membership=Measured(
            share_inside(auc.drawn, pointing.drawn, bounds.bounds, place),
            p=None if auc_ps[0] is None else max(auc_ps[0], pointing_ps[0]),
        ),
        together=_defined(replicated_r(auc.drawn[None, known], pointing.drawn[None, known])[0]),
    )


def _less(interval: Interval | None, value: float) -> Interval | None:
    return None if interval is None else replace(interval, low=interval.low - value, high=interval.high - value)


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def with_holm(items: Sequence[Measured]) -> list[Measured]:
    """The same with p corrected for all of them that have one, as one family."""
    adjusted = holm([item.p for item in items])
    family = sum(item.p is not None for item in items)
    return [replace(item, p_holm=p, family=family) for item, p in zip(items, adjusted, strict=True)]
