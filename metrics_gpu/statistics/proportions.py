"""Interval of a proportion from few cases (docs/metrics.md §8.3: the pointing score of fewer than 30 pairs)."""

from __future__ import annotations

import math
from statistics import NormalDist

from .bootstrap import Interval

__all__ = ["SMALL", "wilson_interval"]

SMALL = 30
"""Below this number of pairs the Wilson interval is given in addition to the bootstrap interval."""


def wilson_interval(hits: float, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of hits / n (E. B. Wilson, JASA 22, 1927), without continuity correction.

    hits: 0..n; a fraction is allowed, for expected hits at tied maxima.
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
