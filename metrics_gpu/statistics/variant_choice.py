"""Many variants of one result on the same pairs, such as wordings of a prompt: changes above a bound, and the best, the
worst and the farthest variant, chosen on other patients (docs/metrics.md §8.4).

The largest of K noisy values is above the true one. A variant that was chosen without a patient is fair on this
patient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .exact_sums import exact_values, ratio

Float = NDArray[np.float64]
Index = NDArray[np.intp]
HALVES: Final = 20
"""Repeats of two halves of the patients. Leaving out one patient, or a tenth, is as unbiased and much less exact where
variants are nearly equal: the choice then turns on the patients left out, always against them. Of 20 equal variants
with 80 pairs the standard deviation of the gain is 0.072 with one left out, 0.050 with tenths and 0.032 with halves,
and its 95 % interval covers 0 in 69, 80 and 90 % of 300 samples."""
BOUND: Final = 0.1
"""A change is large if it is above this: as a share of the reference (relative), or as a fraction (absolute)."""


def chosen_elsewhere(
    values: Float, class_of: NDArray[np.integer], fold_of: NDArray[np.integer], score: Callable[[Float], Float]
) -> Index:
    """The variant of the largest score on the pairs of all other folds, intp [R, P], of equal ones the first; -1 where
    there is no other fold.

    values: float64 [P, K], of each pair under each variant. fold_of: integers [R, P]. score: means over classes of the
    pairs of other folds, float64 [F, K], to scores [F, K]; a class without a pair there is left out of a mean.
    """
    pairs, variants = values.shape
    exact, chosen = exact_values(values), np.full((len(fold_of), pairs), -1, np.intp)
    class_at = np.unique(class_of, return_inverse=True)[1]
    for repeat, folds in enumerate(fold_of):
        names, fold_at = np.unique(folds, return_inverse=True)
        shape = len(names), int(class_at.max(initial=-1)) + 1
        sums, counts = np.zeros((*shape, variants)), np.zeros(shape)
        np.add.at(sums, (fold_at, class_at), exact)
        np.add.at(counts, (fold_at, class_at), 1)
        # Exact, as the values are multiples of 2^-32: the rest of a sum is the sum of the rest, and ties stay ties.
        means = ratio(sums.sum(axis=0) - sums, (counts.sum(axis=0) - counts)[..., None])
        defined = ~np.isnan(means)
        mean = ratio(np.where(defined, means, 0.0).sum(axis=1), defined.sum(axis=1))
        known = ~np.isnan(mean[:, 0])
        best = np.where(known, np.argmax(score(mean), axis=1), -1)
        chosen[repeat] = best[fold_at]
    return chosen


def taken(values: Float, chosen: Index) -> Float:
    """float64 [P]: the value of each pair under the variants chosen for it, mean over the repeats with a choice; NaN
    where none has one."""
    known = (chosen >= 0).T
    picked = np.where(known, np.take_along_axis(exact_values(values), np.maximum(chosen, 0).T, axis=1), 0.0)
    return exact_values(ratio(picked.sum(axis=1), known.sum(axis=1)))


def residuals(values: Float, patient_of: Index) -> Float:
    """float64 [G, K]: what each of G patients with a pair adds to the mean over pairs beyond the mean itself.

    values: float64 [P, K], P > 0; patient_of: [P]. As `Shares.residuals` of one class, for all variants at once.
    """
    patients, at = np.unique(patient_of, return_inverse=True)
    sums, counts = np.zeros((len(patients), values.shape[1])), np.bincount(at)
    np.add.at(sums, at, exact_values(values))
    parts: Float = (sums - counts[:, None] * (sums.sum(axis=0) / len(values))) / len(values)
    return parts


def change_tests(means: Float, parts: Float, patients: int, *, ranked: bool = False) -> Float:
    """p of the null hypothesis that a variant differs from the first by at most `BOUND`, float64 [2, K - 1]: relative
    to the mean of the first, and absolute. NaN where the mean of the first is 0 and nothing is relative to it.

    A relative change is above the bound if m - 1.1 m_0 > 0 or 0.9 m_0 - m > 0, an absolute one if m - m_0 - 0.1 > 0 or
    m_0 - m - 0.1 > 0: contrasts that are linear in what patients add. Each has a one-sided t test with G - 1 degrees of
    freedom, and p is twice the smaller one, at most 1. It is not below 2^(1 - G), the smallest p of sign flips: if all
    patients agree, there is no variance to divide by. means: float64 [K]. parts: float64 [G, K], `residuals`, or
    (ranked) the parts of AUCs, which hold the factor G / (G - 1). patients: G with a part.
    """
    from scipy.special import stdtr

    first, own = parts[:, :1], parts[:, 1:]
    factor = 1.0 if ranked else patients / (patients - 1)
    p = np.ones((2, 2, len(means) - 1))
    for row, (shares, offset) in enumerate((((1 + BOUND, 1 - BOUND), 0.0), ((1.0, 1.0), BOUND))):
        for side, (sign, share) in enumerate(zip((1.0, -1.0), shares, strict=True)):
            beyond = sign * (means[1:] - share * means[0]) - offset
            error = np.sqrt(factor * ((own - share * first) ** 2).sum(axis=0))
            with np.errstate(divide="ignore", invalid="ignore"):
                t = np.where(error > 1e-12, beyond / error, np.where(beyond > 1e-12, np.inf, -np.inf))
            p[row, side] = stdtr(patients - 1, -t)
    least = 2.0 ** (1 - min(patients, 1000))
    both: Float = np.clip(2 * p.min(axis=1), least, 1.0)
    if means[0] <= 0:
        both[0] = np.nan
    return both


def above_bound(changes: Float, reference: Float) -> NDArray[np.bool_]:
    """bool [2, ...]: whether a change is above `BOUND`, relative to the reference and absolute."""
    return np.stack([(reference > 0) & (changes > BOUND * reference + 1e-12), changes > BOUND + 1e-12])
