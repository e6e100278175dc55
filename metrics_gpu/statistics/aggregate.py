"""Means over classes and how a number is printed (docs/metrics.md §8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal

__all__ = ["macro_mean", "micro_mean", "percent"]


def macro_mean(values: Iterable[float | None]) -> float | None:
    """Unweighted mean of the values that exist; None if none does."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def micro_mean(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    """Mean weighted by the number of pairs, over the values that exist with a weight above 0; None if none does."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight > 0]
    if not known:
        return None
    return math.fsum(value * weight for value, weight in known) / sum(weight for _, weight in known)


def percent(value: float | None, decimals: int = 2, missing: str = "n/a") -> str:
    """`value` (a fraction, 0.5 = 50 %) as per cent without the sign, rounded once, half to even.

    Ties are those of the shortest decimal that denotes the float: 161/800 = 0.20125 prints as 20.12 and 163/800 =
    0.20375 as 20.38, whatever lies in the last bit. `missing` is printed for None and NaN.
    """
    if value is None or math.isnan(value):
        return missing
    if math.isinf(value):
        raise ValueError(f"{value} cannot be printed as per cent")
    exact = Decimal(repr(float(value))) * 100
    rounded = exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_EVEN)
    return str(abs(rounded) if rounded == 0 else rounded)  # never "-0.00"
