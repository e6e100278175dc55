"""The pointing game: whether the maximum of a map hits the region, and how tied maxima count (docs/metrics.md §5)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..statistics.exact_sums import exact_values
from .counts import Counts

Ties = Literal["first", "any", "expected"]


def pointing_hits(counts: Counts, ties: Ties = "first") -> NDArray[np.float64]:
    """Pointing hit of each pair, float64 [P] in [0, 1]; degenerate maps miss under every rule.

    Expected hits are shares, rounded by `exact_values`. No pixel of a degenerate map reaches the last threshold.
    """
    if ties == "first":
        return counts.hit.astype(np.float64)
    tied, inside = counts.area[:, -1], counts.overlap[:, -1]
    return exact_values(inside / np.maximum(tied, 1)) if ties == "expected" else (inside > 0).astype(np.float64)
