"""Correction of p values for multiple tests (docs/metrics.md §8.4)."""

from __future__ import annotations

from collections.abc import Sequence


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
