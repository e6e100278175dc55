"""DeLong's variance of an AUC and of the difference of two (E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson,
Biometrics 44, 1988), by mid-ranks in O(n log n) (X. Sun, W. Xu, IEEE Signal Processing Letters 21, 2014).

The images are taken as independent; where patients have several, the bootstrap over patients is the safer interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Interval

__all__ = ["AucDifference", "AucEstimate", "auc_differences", "auc_estimate"]


@dataclass(frozen=True)
class AucEstimate:
    """An AUC with half credit for ties, its DeLong variance (None if a class has a single image) and interval, which
    is the normal one, cut to [0, 1]."""

    auc: float
    variance: float | None
    interval: Interval | None


@dataclass(frozen=True)
class AucDifference:
    """AUC of `a` minus AUC of `b` on the same images: estimates, variance, normal interval of the difference, z and the
    two-sided p. Without any variance, z and p are 0 and 1 for equal AUCs and None otherwise."""

    a: float
    b: float
    difference: float
    variance: float
    interval: Interval
    z: float | None
    p: float | None


def _components(
    score: NDArray[np.floating], truth: NDArray[np.bool_]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """AUC and its components: of each positive the share of negatives below it, and of each negative the share of
    positives above it, half for ties."""
    from scipy.stats import rankdata

    values = np.asarray(score, np.float64)
    positive, negative = values[truth], values[~truth]
    m, n = len(positive), len(negative)
    ranks = rankdata(values)
    of_positive = (ranks[truth] - rankdata(positive)) / n
    of_negative = 1.0 - (ranks[~truth] - rankdata(negative)) / m
    return float(of_positive.mean()), of_positive, of_negative


def auc_estimate(score: NDArray[np.floating], label: NDArray[np.integer], level: float = 0.95) -> AucEstimate:
    """AUC of finite scores [N] against labels [N] of 0 and 1, with its DeLong interval.

    Raises ValueError for shapes that do not fit, other labels, a score that is not finite, one label value only or a
    level outside (0, 1).
    """
    truth = _checked(label, score)
    z = _quantile(level)
    auc, of_positive, of_negative = _components(score, truth)
    if min(len(of_positive), len(of_negative)) < 2:
        return AucEstimate(auc, None, None)
    variance = float(of_positive.var(ddof=1) / len(of_positive) + of_negative.var(ddof=1) / len(of_negative))
    half = z * math.sqrt(variance)
    return AucEstimate(auc, variance, Interval(max(auc - half, 0.0), min(auc + half, 1.0), level, "delong"))


def auc_differences(
    scores: Sequence[NDArray[np.floating]], label: NDArray[np.integer], level: float = 0.95
) -> dict[tuple[int, int], AucDifference]:
    """Paired comparison of every two of several scores [N] of the same images, by their indices (i, j), i < j.

    Raises ValueError as `auc_estimate`, and if a label value has fewer than two images.
    """
    truth = _checked(label, *scores)
    z = _quantile(level)
    if min(int(truth.sum()), int((~truth).sum())) < 2:
        raise ValueError("DeLong's variance needs at least two images of each label value")
    parts = [_components(score, truth) for score in scores]
    return {(i, j): _difference(parts[i], parts[j], z, level) for i, j in combinations(range(len(parts)), 2)}


_Parts = tuple[float, NDArray[np.float64], NDArray[np.float64]]


def _difference(a: _Parts, b: _Parts, z: float, level: float) -> AucDifference:
    (auc_a, positive_a, negative_a), (auc_b, positive_b, negative_b) = a, b
    spread = [(p - q).var(ddof=1) / len(p) for p, q in ((positive_a, positive_b), (negative_a, negative_b))]
    variance, difference = float(sum(spread)), auc_a - auc_b
    half = z * math.sqrt(variance)
    interval = Interval(max(difference - half, -1.0), min(difference + half, 1.0), level, "delong")
    if variance > 0:
        score = difference / math.sqrt(variance)
        return AucDifference(auc_a, auc_b, difference, variance, interval, score, math.erfc(abs(score) / math.sqrt(2)))
    same = abs(difference) < 1e-12
    return AucDifference(auc_a, auc_b, difference, variance, interval, 0.0 if same else None, 1.0 if same else None)


def _checked(label: NDArray[np.integer], *scores: NDArray[np.floating]) -> NDArray[np.bool_]:
    label = np.asarray(label)
    for score in scores:
        if label.ndim != 1 or np.shape(score) != label.shape:
            raise ValueError(f"scores and labels must have one shape [N], got {np.shape(score)} and {label.shape}")
        if not np.isfinite(score).all():
            raise ValueError(f"the score of image {np.flatnonzero(~np.isfinite(score))[0]} is not finite")
    if not np.isin(label, (0, 1)).all():
        raise ValueError("labels must be 1 or 0 here; leave out images whose label is unknown")
    truth: NDArray[np.bool_] = label == 1
    if truth.all() or not truth.any():
        raise ValueError("an AUC needs both label values")
    return truth


def _quantile(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    return NormalDist().inv_cdf(0.5 + level / 2)
