"""The difference between two groups of patients: interval of two shares, permutation test, and strata put together."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bootstrap import SEED
from .intervals import Interval, wilson_interval
from .sign_flips import LEAST_DRAWS, Tested

Float = NDArray[np.float64]


def newcombe_interval(hits_a: float, n_a: float, hits_b: float, n_b: float, level: float = 0.95) -> Interval:
    """Newcombe's interval of hits_a / n_a - hits_b / n_b, two independent shares, from the Wilson interval of each
    (R. G. Newcombe, Statistics in Medicine 17, 1998, method 10). Raises ValueError as `wilson_interval`."""
    a, b = wilson_interval(hits_a, n_a, level), wilson_interval(hits_b, n_b, level)
    share_a, share_b = hits_a / n_a, hits_b / n_b
    gap = share_a - share_b
    low = gap - math.hypot(share_a - a.low, b.high - share_b)
    high = gap + math.hypot(a.high - share_a, share_b - b.low)
    return Interval(float(low), float(high), level, "newcombe")


def permutation_tests(
    number: NDArray[np.integer], sums: Float, first: NDArray[np.bool_], draws: int = LEAST_DRAWS, seed: int = SEED
) -> list[Tested]:
    """Two-sided tests of K differences between the means of two groups of patients, by exchanging patients.

    number: integers [G], the pairs of each patient, at least 1; sums: float64 [G, K] over these. first: bool [G],
    the patients of the first group. A mean is over the pairs of a group. p is the share of divisions into groups of the
    same numbers of patients, among `draws` random ones and the one found, that differ at least as much. Raises
    ValueError if the arguments do not fit or a group is empty.
    """
    if sums.ndim != 2 or number.shape != (len(sums),) or first.shape != number.shape or (number < 1).any():
        raise ValueError(f"{number.shape} numbers of pairs and {first.shape} groups do not fit sums of {sums.shape}")
    if first.all() or not first.any():
        raise ValueError("a permutation test needs two groups")
    from .permuting import count_beyond  # compiles on import, so only when needed

    smaller = first if 2 * first.sum() <= len(first) else ~first
    state = int.from_bytes(hashlib.sha256(f"{seed} groups".encode()).digest()[:8], "little")
    values = np.column_stack([number, sums]).astype(np.float64)
    ordered = values[np.argsort(~smaller, kind="stable")]  # the smaller group before the other
    beyond = count_beyond(ordered, int(smaller.sum()), draws, np.uint64(state))
    return [Tested((1 + int(count)) / (draws + 1), bound=not count) for count in beyond]


@dataclass(frozen=True)
class MantelHaenszel:
    """Two groups compared within strata. risk_difference: the common difference of shares (W. G. Cochran, Biometrics
    10, 1954; N. Mantel, W. Haenszel, JNCI 22, 1959); odds_ratio: the common odds ratio, None without a miss of the
    first group in a stratum with a hit of the second; p: of their test without continuity correction, which takes pairs
    as independent, None if no stratum tells anything."""

    risk_difference: float | None
    odds_ratio: float | None
    p: float | None


def mantel_haenszel(hits: Float, first: NDArray[np.bool_], stratum_of: NDArray[np.intp]) -> MantelHaenszel:
    """hits: float64 [P] in [0, 1]; first: bool [P], the pairs of the first group; stratum_of: intp [P]."""
    strata = int(stratum_of.max()) + 1 if len(stratum_of) else 0
    hit_a, hit_b = (np.bincount(stratum_of[side], hits[side], strata) for side in (first, ~first))
    n_a, n_b = (np.bincount(stratum_of[side], minlength=strata).astype(np.float64) for side in (first, ~first))
    informative = (n_a > 0) & (n_b > 0)
    hit_a, hit_b, n_a, n_b = hit_a[informative], hit_b[informative], n_a[informative], n_b[informative]
    n, hit = n_a + n_b, hit_a + hit_b
    if not len(n):
        return MantelHaenszel(None, None, None)
    difference = ((hit_a * n_b - hit_b * n_a) / n).sum() / (n_a * n_b / n).sum()
    below = float(((n_a - hit_a) * hit_b / n).sum())
    odds = float((hit_a * (n_b - hit_b) / n).sum()) / below if below > 0 else None
    variance = float((n_a * n_b * hit * (n - hit) / (n * n * (n - 1))).sum())
    p = None
    if variance > 0:
        p = math.erfc(abs(float((hit_a - n_a * hit / n).sum())) / math.sqrt(2 * variance))
    return MantelHaenszel(float(difference), odds, p)
