"""Means over classes, and percentages as printed text (docs/metrics.md §8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal

import numpy as np
from numpy.typing import NDArray

__all__ = ["macro_curve", "macro_mean", "mean_over_classes", "micro_mean", "percent"]


def macro_mean(values: Iterable[float | None]) -> float | None:
    """Unweighted mean of the values that exist; None if none does."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def micro_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Mean weighted by the number of pairs, over the values that exist with a weight above 0; None if none does."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None and weight > 0]
    if not known:
        return None
    return math.fsum(value * weight for value, weight in known) / sum(weight for _, weight in known)


def macro_curve(curves: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Unweighted mean over the classes whose curve is defined; NaN where none is."""
    stack = np.stack(curves)
    known = ~np.isnan(stack)
    count = known.sum(axis=0)
    total = np.where(known, stack, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_over_classes(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """float64 [R]: mean of [R, C] over the classes whose value is defined, NaN where none is.

    weights: float64 [R, C], pairs of each class; without them all classes have equal weight. Row 0 is the estimate,
    which is printed: it is `macro_mean` or `micro_mean`, summed without rounding, so that ties at the last digit stay
    ties.
    """
    rows, classes = values.shape
    if not classes:
        return np.full(rows, np.nan)
    estimate = [None if math.isnan(value) else value for value in values[0].tolist()]
    if weights is None:
        means, first = macro_curve(list(values.T)), macro_mean(estimate)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.nansum(values * weights, axis=1) / (weights * ~np.isnan(values)).sum(axis=1)
        first = micro_mean(estimate, weights[0].tolist())
    means[0] = math.nan if first is None else first
    return means


def percent(value: float | None, decimals: int = 2, missing: str = "n/a") -> str:
    """`value` (a fraction, 0.5 = 50 %) as per cent without the sign, rounded once, half to even.

    Ties are those of the shortest decimal that denotes the float: 161/800 = 0.20125 prints as 20.12 and 163/800 =
    0.20375 as 20.38, independent of the last bit. `missing` is printed for None and NaN.
    """
    if value is None or math.isnan(value):
        return missing
    if math.isinf(value):
        raise ValueError(f"{value} cannot be printed as per cent")
    exact = Decimal(repr(float(value))) * 100
    rounded = exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_EVEN)
    return str(abs(rounded) if rounded == 0 else rounded)  # never "-0.00"
