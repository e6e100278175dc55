"""DeLong's variance of an AUC and of the difference of two (E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson,
Biometrics 44, 1988), by mid-ranks in O(n log n) (X. Sun, W. Xu, IEEE Signal Processing Letters 21, 2014).

`auc_estimate` takes images as independent; `auc_parts` takes the images of a patient together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..statistics.intervals import Interval, normal_quantile
from ..statistics.ranks import mean_ranks


@dataclass(frozen=True)
class AucEstimate:
    """An AUC with half credit for ties, its DeLong variance (None if a class has a single image) and interval, which
    is the normal one, cut to [0, 1]."""

    auc: float
    variance: float | None
    interval: Interval | None


@dataclass(frozen=True)
class AucDifference:
    """The difference of two AUCs, or of two means over classes, on the same images: its normal interval and p.

    p is two-sided; without any variance it is 1 for equal AUCs and None otherwise.
    """

    difference: float
    variance: float
    interval: Interval
    p: float | None


def _components(
    score: NDArray[np.floating], truth: NDArray[np.bool_]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """AUC and its components: of each positive the number of negatives below it, and of each negative the number of
    positives above it, half for ties. Sums of numbers of halves are exact in any order of the images."""
    values = np.asarray(score, np.float64)
    positive, negative = values[truth], values[~truth]
    m, n = len(positive), len(negative)
    ranks = mean_ranks(values)
    of_positive = ranks[truth] - mean_ranks(positive)
    of_negative = m - (ranks[~truth] - mean_ranks(negative))
    return float(of_positive.sum()) / (m * n), of_positive, of_negative


def auc_estimate(score: NDArray[np.floating], label: NDArray[np.integer], level: float = 0.95) -> AucEstimate:
    """AUC of finite scores [N] against labels [N] of 0 and 1, with its DeLong interval.

    Raises ValueError for shapes that do not fit, other labels, a score that is not finite, one label value only or a
    level outside (0, 1).
    """
    truth = _checked(label, score)
    z = normal_quantile(level)
    auc, of_positive, of_negative = _components(score, truth)
    if min(len(of_positive), len(of_negative)) < 2:
        return AucEstimate(auc, None, None)
    variance = _variance_of_mean(of_positive, len(of_negative)) + _variance_of_mean(of_negative, len(of_positive))
    half = z * math.sqrt(variance)
    return AucEstimate(auc, variance, Interval(max(auc - half, 0.0), min(auc + half, 1.0), level, "delong"))


def auc_parts(
    score: NDArray[np.floating], label: NDArray[np.integer], patient_of: NDArray[np.intp], patients: int
) -> NDArray[np.float64]:
    """What each of G patients adds to the deviation of an AUC from its expectation, float64 [G].

    The sum of the squares is the variance of the AUC, for images of a patient that are alike (N. A. Obuchowski,
    Biometrics 53, 1997), and DeLong's where each patient has one image. Parts of several classes can be averaged, and
    of two models on the same images, subtracted. patient_of: [N] in 0..patients-1. Raises ValueError as
    `auc_estimate`, and if a label value has fewer than two patients.
    """
    truth = _checked(label, score)
    auc, *components = _components(score, truth)
    parts = np.zeros(patients)
    owners = patient_of[truth], patient_of[~truth]
    for numbers, others, patients_of in zip(components, components[::-1], owners, strict=True):
        of_label = len(np.unique(patients_of))
        if of_label < 2:
            raise ValueError("the variance of an AUC needs at least two patients of each label value")
        sums = np.bincount(patients_of, numbers, patients) / len(others)
        sums -= auc * np.bincount(patients_of, minlength=patients)
        parts += math.sqrt(of_label / (of_label - 1)) * sums / len(numbers)
    return parts


def auc_difference(difference: float, parts: NDArray[np.float64], level: float = 0.95) -> AucDifference:
    """Interval and test of a difference; `parts`: of one side minus the other, from `auc_parts`."""
    variance = float((parts**2).sum())
    half = normal_quantile(level) * math.sqrt(variance)
    interval = Interval(max(difference - half, -1.0), min(difference + half, 1.0), level, "delong")
    if variance > 0:
        p = math.erfc(abs(difference) / math.sqrt(2 * variance))
        return AucDifference(difference, variance, interval, p)
    return AucDifference(difference, variance, interval, 1.0 if abs(difference) < 1e-12 else None)


def _variance_of_mean(numbers: NDArray[np.float64], others: int) -> float:
    """Variance of the mean of the shares `numbers` / `others`, from integers: the numbers are of halves."""
    twice, n = (2 * numbers).astype(np.int64), len(numbers)
    total, squares = int(twice.sum()), int((twice * twice).sum())
    return (n * squares - total * total) / (4 * others * others * n * n * (n - 1))


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
