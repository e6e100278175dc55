"""Means over classes (docs/metrics.md §8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["macro_curve", "macro_mean", "mean_over_classes", "micro_mean"]


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
