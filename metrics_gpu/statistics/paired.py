"""Differences between two models: paired bootstrap and Holm's correction (docs/metrics.md §8.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Interval, percentile_interval

__all__ = ["PairedDifference", "holm", "paired_difference"]


@dataclass(frozen=True)
class PairedDifference:
    """`a` minus `b` on the same patients: difference of the estimates, its bootstrap interval and two-sided p.

    p counts the replicates on the far side of 0, one added to both counts, so that it is never below 2 / (B + 1).
    """

    difference: float
    interval: Interval | None
    p: float | None


def paired_difference(
    a: float, b: float, replicates_a: NDArray[np.float64], replicates_b: NDArray[np.float64], level: float = 0.95
) -> PairedDifference:
    """Paired comparison of one value of two models.

    a, b: the estimates. replicates_a, replicates_b: float64 [B], of the same `Draws`; NaN where undefined.
    Raises ValueError if the replicates do not fit together.
    """
    if replicates_a.ndim != 1 or replicates_a.shape != replicates_b.shape:
        raise ValueError(
            f"paired replicates need one shape [B], got {replicates_a.shape} and {replicates_b.shape}: use one draw"
        )
    gap = replicates_a - replicates_b
    defined = gap[~np.isnan(gap)]
    if len(defined) == 0:
        return PairedDifference(a - b, None, None)
    tail = min(int((defined <= 0).sum()), int((defined >= 0).sum()))
    p = min(1.0, 2.0 * (tail + 1) / (len(defined) + 1))
    return PairedDifference(a - b, percentile_interval(gap, level), p)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p values adjusted for multiple tests by Holm's step-down method (S. Holm, Scand. J. Statistics 6, 1979).

    None stays None and does not count. Raises ValueError for a value outside [0, 1].
    """
    known = [(value, place) for place, value in enumerate(values) if value is not None]
    for value, place in known:
        if not 0 <= value <= 1:
            raise ValueError(f"p value {place} lies outside [0, 1]: {value}")
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, place) in enumerate(sorted(known)):
        largest = max(largest, min(1.0, (len(known) - rank) * value))
        adjusted[place] = largest
    return adjusted
