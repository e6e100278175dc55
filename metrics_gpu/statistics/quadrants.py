"""Findings by two numbers, recognition (AUC) and grounding (pointing): in which quadrant each lies, and how sure that
is (docs/metrics.md §17)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .intervals import effective_number

Float = NDArray[np.float64]

QUADRANTS: Final = (
    "neither",
    "grounded, not recognised",
    "recognised, not grounded",
    "recognised and grounded",
)
"""Names of the quadrants; a number at its bound counts as above it."""


def quadrants(auc: Float, pointing: Float, bounds: tuple[float, float]) -> NDArray[np.intp]:
    """intp, the place in `QUADRANTS` of each pair of numbers, -1 where one of them is NaN. bounds: of AUC, of
    pointing."""
    place = 2 * (auc >= bounds[0]) + (pointing >= bounds[1])
    return np.where(np.isnan(auc) | np.isnan(pointing), -1, place)


def auc_test(auc: float, parts: Float, patients: Sequence[int], bound: float) -> float:
    """Two-sided p of an AUC against a bound.

    parts: float64 [G], what patients add to its deviation (`recognition.delong.auc_parts`). patients: how many have an
    image with the finding, and how many one without it. The standard error is the larger of DeLong's by patient and
    that at the bound by J. A. Hanley and B. J. McNeil (Radiology 143, 1982): DeLong's is 0 for an AUC of 1, however few
    patients it is of.
    """
    positives, negatives = patients
    above, below = bound / (2 - bound), 2 * bound * bound / (1 + bound)
    spread = bound * (1 - bound) + (positives - 1) * (above - bound**2) + (negatives - 1) * (below - bound**2)
    variance = max(float((parts**2).sum()), spread / (positives * negatives))
    if variance <= 0:
        return 1.0 if auc == bound else 0.0
    return math.erfc(abs(auc - bound) / math.sqrt(2 * variance))


def pointing_test(hits: Float, patient_of: NDArray[np.intp], bound: float) -> float:
    """Two-sided p of the pointing of one class against a bound: twice the smaller tail of the binomial distribution.

    hits: float64 [n] in [0, 1], n > 0. The number of trials is that of the pairs they are worth where those of a
    patient are alike (`effective_number`). Of unequal chances with this mean, the tail that begins a hit beyond the
    mean is smaller (W. Hoeffding, Annals of Mathematical Statistics 27, 1956), so that p is not too small.
    """
    from scipy.special import betainc

    n = effective_number(hits, patient_of)
    k = float(hits.mean()) * n
    # P(X >= k) and P(X <= k) of n trials; both are defined for fractions of a trial.
    most = 1.0 if k <= 0 else float(betainc(k, n - k + 1, bound))
    least = 1.0 if k >= n else float(betainc(n - k, k + 1, 1 - bound))
    return min(1.0, 2 * min(most, least))


def share_inside(auc: Float, pointing: Float, bounds: tuple[float, float], place: int) -> float | None:
    """The share of joint replicates, both float64 [B] of the same draws, that lie in the quadrant `place`; None if in
    no replicate both numbers are defined."""
    found = quadrants(auc, pointing, bounds)
    defined = int((found >= 0).sum())
    return float((found == place).sum()) / defined if defined else None
