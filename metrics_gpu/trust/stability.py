"""Whether maps hold still under small changes of the image, and move when the score does (docs/trust-probes.md §4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws
from ..statistics.intervals import LEAST, Interval, percentile_interval
from ..statistics.ranks import mean_ranks
from .verdicts import Criterion

Float = NDArray[np.float64]

STILL: Final = Criterion(margin=0.0, direction="below", bound=0.10, share=True)
"""What the share of pointing flips must fulfil."""
LEAST_CHANGES, LEAST_SPREAD = 30, 1e-3
"""What a correlation of changes needs: pairs of a change, and a standard deviation of the changes of the score."""


def distances(before: NDArray[np.intp], after: NDArray[np.intp]) -> Float:
    """How far a maximum moved, float64 [n], in pixels of 224: from places [n, 2] (row, column) to others."""
    return np.asarray(np.hypot(*(after - before).T.astype(np.float64)))


def rank_changes(before: Float, after: Float, class_of: NDArray[np.integer]) -> Float:
    """By how much of the list of its class a pair moves when pairs are ordered by score, float64 [n] in 0..1.

    before, after: float64 [n], scores; tied scores share the mean rank. NaN for the only pair of a class.
    """
    changes = np.full(len(before), np.nan)
    for name in np.unique(class_of):
        pairs = np.flatnonzero(class_of == name)
        if len(pairs) > 1:
            changes[pairs] = np.abs(mean_ranks(after[pairs]) - mean_ranks(before[pairs])) / (len(pairs) - 1)
    return changes


@dataclass(frozen=True)
class ChangeCorrelation:
    """Correlation over n changes of an image between the change of the score and the change of the map.

    pearson, with the patient bootstrap `interval`; spearman. None where `reason` says why.
    """

    n: int
    pearson: float | None = None
    spearman: float | None = None
    interval: Interval | None = None
    reason: str | None = None


def change_correlation(
    score: Float, saliency: Float, patient_of: NDArray[np.intp], draws: Draws, level: float = 0.95
) -> ChangeCorrelation:
    """The correlation of |change of the score| with 1 - similarity of the maps.

    score, saliency: float64 [n]; a NaN in either, from a degenerate map, is left out. patient_of: [n], of `draws`.
    """
    defined = ~(np.isnan(score) | np.isnan(saliency))
    x, y, patient_of = score[defined], saliency[defined], np.asarray(patient_of)[defined]
    if len(x) < LEAST_CHANGES:
        return ChangeCorrelation(len(x), reason=f"{len(x)} changes, fewer than {LEAST_CHANGES}")
    if x.std() <= LEAST_SPREAD:
        return ChangeCorrelation(
            len(x), reason=f"the scores change by the same {x.mean():.4f}: stable, not informative"
        )
    if np.ptp(y) == 0:
        return ChangeCorrelation(len(x), reason=f"the maps all change by the same {y[0]:.4f}: stable, not informative")
    drawn = _correlations(x, y, draws, patient_of)
    ranks = _correlations(mean_ranks(x), mean_ranks(y), Draws(draws.counts[:0], draws.seed), patient_of)
    enough = len(np.unique(patient_of)) >= LEAST["patients"]
    interval = percentile_interval(drawn[1:], level) if enough else None
    return ChangeCorrelation(len(x), float(drawn[0]), float(ranks[0]), interval)


def _correlations(x: Float, y: Float, draws: Draws, patient_of: NDArray[np.intp]) -> Float:
    """float64 [1 + B]: Pearson's r of all points, and of the points of each draw; NaN where they have no spread."""
    x, y = _standardised(x), _standardised(y)  # the sums are of multiples of 2^-32, fine enough for values of order 1
    n, sx, sy, sxx, syy, sxy = draws.sums(patient_of, np.column_stack([np.ones(len(x)), x, y, x * x, y * y, x * y])).T
    with np.errstate(invalid="ignore", divide="ignore"):
        vx, vy = sxx - sx * sx / n, syy - sy * sy / n
        flat = (vx <= 1e-12 * sxx) | (vy <= 1e-12 * syy)
        return np.where(flat, np.nan, np.clip((sxy - sx * sy / n) / np.sqrt(vx * vy), -1.0, 1.0))


def _standardised(values: Float) -> Float:
    """Less their mean, over their standard deviation if they have one; the same in any order of the values."""
    away = values - math.fsum(values.tolist()) / len(values)
    spread = math.sqrt(math.fsum((away * away).tolist()) / len(values))
    return away / spread if spread else away
