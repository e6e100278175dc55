"""Two groups of models, where the models are the sample: interval and test of the difference of their means, and
residuals from a line through all models (docs/metrics.md §18)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from .bootstrap import SEED
from .intervals import Interval, check_level
from .sign_flips import LEAST_DRAWS

Float = NDArray[np.float64]

_TIE = 1e-12


@dataclass(frozen=True)
class ModelContrast:
    """interval: Welch's of the difference of the means, None where a group has one model or no spread. p: two-sided,
    the share of all divisions into groups of these sizes whose means differ at least as much; of a sample of them from
    20,000 on. least: the smallest p that these sizes can give; both None where a group has one model."""

    interval: Interval | None = None
    p: float | None = None
    least: float | None = None


def mean_of_models(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Student's interval of the mean of models as a random sample; None for one model or no spread."""
    return _student(float(np.mean(values)), [values], level) if len(values) > 1 else None


def contrast_models(
    first: Sequence[float], second: Sequence[float], level: float = 0.95, seed: int = SEED
) -> ModelContrast:
    """The mean of the first models minus that of the second, with the models drawn at random; none is in both.

    B. L. Welch, Biometrika 34, 1947, for the interval. Raises ValueError for an empty group or a level outside (0, 1).
    """
    check_level(level)
    if not (len(first) and len(second)):
        raise ValueError("a contrast needs a model on each side")
    if min(len(first), len(second)) < 2:
        return ModelContrast()
    difference = float(np.mean(first) - np.mean(second))
    p, least = _exchanged(np.array([*first, *second], np.float64), len(first), seed)
    return ModelContrast(_student(difference, [first, second], level), p, least)


def _student(value: float, groups: Sequence[Sequence[float]], level: float) -> Interval | None:
    """Of a mean, or of a difference of two, by Welch's degrees of freedom, which for one group are n - 1."""
    from scipy.special import stdtrit

    parts = [float(np.var(group, ddof=1)) / len(group) for group in groups]
    variance = sum(parts)
    if variance <= 0:
        return None
    freedom = variance**2 / sum(part**2 / (len(group) - 1) for part, group in zip(parts, groups, strict=True))
    half = float(stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(variance)
    return Interval(value - half, value + half, level, "t")


def _exchanged(values: Float, first: int, seed: int) -> tuple[float, float]:
    """p over the divisions of the models, and the smallest that there can be."""
    n = len(values)
    divisions = math.comb(n, first)
    if divisions <= LEAST_DRAWS:
        chosen, extra = np.array(list(combinations(range(n), first)), np.intp), 0
    else:
        generator = np.random.Generator(np.random.PCG64(seed))
        chosen, extra = generator.permuted(np.tile(np.arange(n), (LEAST_DRAWS, 1)), axis=1)[:, :first], 1
    # The difference of the means grows with the sum over the first group, whatever is in it.
    sums, observed = values[chosen].sum(axis=1), values[:first].sum()
    middle = values.mean() * first
    beyond = int((np.abs(sums - middle) >= abs(observed - middle) - _TIE).sum())
    least = (2 if 2 * first == n else 1) / divisions
    return (beyond + extra) / (len(chosen) + extra), max(least, 1 / (LEAST_DRAWS + 1))


def line_residuals(x: Float, y: Float) -> Float:
    """y less the least-squares line of each row, float64 [R, n] of points [R, n]; NaN where a row holds a NaN or x has
    no spread."""
    dx, dy = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        slope = (dx * dy).sum(axis=1, keepdims=True) / (dx * dx).sum(axis=1, keepdims=True)
    found: Float = np.where(np.ptp(x, axis=1, keepdims=True) == 0, np.nan, dy - slope * dx)
    return found
