"""Interval of a proportion from few cases (docs/metrics.md §8.3)."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Interval

__all__ = ["SMALL", "effective_number", "wilson_interval"]

SMALL = 30
"""Below this number of pairs the interval of pointing is Wilson's."""


def effective_number(values: NDArray[np.float64], group_of: NDArray[np.integer]) -> float:
    """How many independent values N grouped ones are worth: n / (1 + (m - 1) ICC), float in 1..n.

    m: the mean size of a group; ICC: the one-way estimate from the mean squares, in [0, 1]. Raises ValueError without a
    value.
    """
    n, (_, group, size) = len(values), np.unique(group_of, return_inverse=True, return_counts=True)
    groups = len(size)
    if not n:
        raise ValueError("a number of independent values needs a value")
    if groups in (1, n):
        return 1.0 if groups == 1 else float(n)
    means = np.bincount(group, values) / size
    between = float((size * (means - values.mean()) ** 2).sum()) / (groups - 1)
    within = float(((values - means[group]) ** 2).sum()) / (n - groups)
    typical = (n - float((size**2).sum()) / n) / (groups - 1)
    spread = between + (typical - 1) * within
    alike = min(max((between - within) / spread, 0.0), 1.0) if spread > 0 else 1.0
    return n / (1 + (n / groups - 1) * alike)


def wilson_interval(hits: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of hits / n (E. B. Wilson, JASA 22, 1927), without continuity correction.

    hits: 0..n; fractions are allowed, for expected hits at tied maxima, and n of pairs that are not independent.
    Raises ValueError for n < 1, hits outside 0..n or a level outside (0, 1).
    """
    if n < 1 or not 0 <= hits <= n:
        raise ValueError(f"a proportion needs n >= 1 and 0 <= hits <= n, got {hits} of {n}")
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, extra = hits / n, z * z / n
    centre = (share + extra / 2) / (1 + extra)
    half = z * math.sqrt(share * (1 - share) / n + extra / (4 * n)) / (1 + extra)
    low = 0.0 if hits == 0 else max(centre - half, 0.0)
    high = 1.0 if hits == n else min(centre + half, 1.0)
    return Interval(low, high, level, "wilson")
