"""Correlation of recognition and grounding: mean AUC and mean pointing over models (docs/metrics.md §9).

With seven models R² has a wide interval, so it is always given with Fisher's interval, a bootstrap interval over the
points, Spearman's rank correlation and the range over leaving one point out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .bootstrap import REPLICATES, SEED, draw_patients, patient_index
from .intervals import Interval, check_level, least_replicates, meaningful, normal_quantile, percentile_interval
from .ranks import mean_ranks
from .sign_flips import LEAST_DRAWS

Float = NDArray[np.float64]

_EXACT_POINTS: Final = 8  # 40,320 orders, twice as many as a sample has


@dataclass(frozen=True)
class Correlation:
    """Correlation of n points; None where it is undefined (fewer than three points, or no spread along an axis).

    r, r2: Pearson's and its square, which is the R² of the least-squares line; slope, intercept: that line's.
    spearman: of the ranks, tied points sharing the mean rank.
    fisher: 95 % interval of r by Fisher's z (n >= 4); fisher_r2: the same for r², from 0 if the interval of r holds 0.
    bootstrap_r2: percentile interval of r² over points, or groups of points, drawn with replacement; from 4 of them.
    adjusted_r2: without its upward bias, 1 / (n - 1) where there is no relation. p, spearman_p: two-sided, over all
        permutations of up to 8 points, else over a sample; None for groups.
    left_out: r² without each point in the points' order, or without each group in the order they first appear;
        r2_range: smallest and largest of them.
    """

    n: int
    r: float | None = None
    r2: float | None = None
    slope: float | None = None
    intercept: float | None = None
    spearman: float | None = None
    fisher: Interval | None = None
    fisher_r2: Interval | None = None
    bootstrap_r2: Interval | None = None
    adjusted_r2: float | None = None
    p: float | None = None
    spearman_p: float | None = None
    left_out: tuple[float | None, ...] = ()
    r2_range: tuple[float, float] | None = None


def correlation(
    x: Sequence[float] | Float,
    y: Sequence[float] | Float,
    *,
    groups: Sequence[str] | None = None,
    level: float = 0.95,
    replicates: int = REPLICATES,
    seed: int = SEED,
) -> Correlation:
    """Correlation of points (x, y), float [n] each, as mean AUC and mean pointing of each model.

    groups: of n points that are not independent, as the datasets of one model: whole groups are drawn and left out, and
    there is no Fisher interval. Raises ValueError unless all have one length and are finite, and 0 < level < 1.
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"points need one shape [n] for both values, got {a.shape} and {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("points to correlate must be finite; leave out models without a value")
    check_level(level)
    n = len(a)
    r = _pearson(a, b)
    if r is None:
        return Correlation(n)
    slope = r * float(b.std() / a.std())
    fisher, fisher_r2 = _fisher(r, n, level) if groups is None else (None, None)
    index, units = patient_index(range(n) if groups is None else groups)
    if len(index) != n:
        raise ValueError(f"{len(index)} groups do not fit {n} points")
    counts = draw_patients(units, replicates, seed).counts[:, index].astype(np.float64)
    left_out = tuple(_pearson(a[index != i], b[index != i]) for i in range(units))
    squares = tuple(None if value is None else value * value for value in left_out)
    defined = [value for value in squares if value is not None]
    return Correlation(
        n=n,
        r=r,
        r2=r * r,
        slope=slope,
        intercept=float(b.mean() - slope * a.mean()),
        spearman=_pearson(mean_ranks(a), mean_ranks(b)),
        fisher=fisher,
        fisher_r2=fisher_r2,
        bootstrap_r2=percentile_interval(_weighted_r2(counts, a, b), level) if meaningful(models=units) else None,
        adjusted_r2=1 - (1 - r * r) * (n - 1) / (n - 2),
        p=_permuted(a, b, seed) if groups is None else None,
        spearman_p=_permuted(mean_ranks(a), mean_ranks(b), seed) if groups is None else None,
        left_out=squares,
        r2_range=(min(defined), max(defined)) if defined else None,
    )


def trend_band(
    x: Sequence[float] | Float,
    y: Sequence[float] | Float,
    at: Float,
    *,
    groups: Sequence[str] | None = None,
    replicates: int = REPLICATES,
    seed: int = SEED,
) -> tuple[Float, Float] | None:
    """The 95 % interval of the least-squares line through points (x, y) at each value of `at`.

    Points and groups are as in `correlation`.
    Student's t for independent points; percentiles over lines through drawn `groups` of points that are not. None
    where `correlation` has no line, of fewer than four points or groups, or where too few drawn lines are defined.
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    index, units = patient_index(range(len(a)) if groups is None else groups)
    if _pearson(a, b) is None or not meaningful(models=units):
        return None
    if groups is None:
        from scipy.special import stdtrit

        n, spread = len(a), float(((a - a.mean()) ** 2).sum())
        slope = float((a - a.mean()) @ b) / spread
        line, fitted = (b.mean() + slope * (values - a.mean()) for values in (at, a))
        variance = float(((b - fitted) ** 2).sum()) / (n - 2) * (1 / n + (at - a.mean()) ** 2 / spread)
        half = float(stdtrit(n - 2, 0.975)) * np.sqrt(variance)
        return line - half, line + half
    weights = draw_patients(units, replicates, seed).counts[:, index].astype(np.float64)
    weights /= weights.sum(axis=1, keepdims=True)
    ma, mb = weights @ a, weights @ b
    spreads = weights @ (a * a) - ma * ma
    usable = spreads > 1e-12 * (weights @ (a * a))
    if usable.sum() < least_replicates():
        return None
    slopes = (weights @ (a * b) - ma * mb)[usable] / spreads[usable]
    lines = mb[usable, None] + slopes[:, None] * (at - ma[usable, None])
    low, high = np.quantile(lines, [0.025, 0.975], axis=0)
    return low, high


def without_group_means(values: Sequence[float] | Float, groups: Sequence[str]) -> Float:
    """Values [n] less the mean of their group, for points per (model, dataset) with dataset effects removed.

    Raises ValueError if there is not one group per value.
    """
    value = np.asarray(values, np.float64)
    if value.shape != (len(groups),):
        raise ValueError(f"{len(groups)} groups do not fit values of shape {value.shape}")
    _, index = np.unique(np.asarray(groups, str), return_inverse=True)
    means = np.bincount(index, value) / np.bincount(index)
    centred: Float = value - means[index]
    return centred


def replicated_r2(x: Float, y: Float) -> Float:
    """r² of each row of points [B, n], float64 [B]: the scatter that comes from the points' own replicates.

    NaN where a row holds a NaN, fewer than three points, or no spread. Raises ValueError if the shapes differ.
    """
    vxy, both = _moments(x, y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.minimum(vxy * vxy / both, 1.0)


def replicated_r(x: Float, y: Float) -> Float:
    """r of each row, as `replicated_r2`."""
    vxy, both = _moments(x, y)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(vxy / np.sqrt(both), -1.0, 1.0)


def _moments(x: Float, y: Float) -> tuple[Float, Float]:
    """The sums of products of the deviations of each row, and the products of both sums of squares, NaN where r is not
    defined."""
    if x.ndim != 2 or x.shape != y.shape:
        raise ValueError(f"points need one shape [B, n] for both values, got {x.shape} and {y.shape}")
    if x.shape[1] < 3:
        return np.full(len(x), np.nan), np.full(len(x), np.nan)
    dx, dy = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    flat = (np.ptp(x, axis=1) == 0) | (np.ptp(y, axis=1) == 0)
    return (dx * dy).sum(axis=1), np.where(flat, np.nan, (dx * dx).sum(axis=1) * (dy * dy).sum(axis=1))


def patients_r2(x: Float, y: Float, models: int, level: float = 0.95) -> Interval | None:
    """Interval of r² of the same models on other patients; x, y: as `replicated_r2`. None for few models."""
    return percentile_interval(replicated_r2(x, y), level) if meaningful(models=models) else None


def _permuted(a: Float, b: Float, seed: int) -> float:
    """The share of permutations of b whose correlation with a is at least as far from 0."""
    n = len(a)
    if n <= _EXACT_POINTS:
        orders, extra = np.array(list(permutations(range(n))), np.intp), 0
    else:
        generator = np.random.Generator(np.random.PCG64(seed))
        orders, extra = generator.permuted(np.tile(np.arange(n), (LEAST_DRAWS, 1)), axis=1), 1
    da, db = a - a.mean(), b - b.mean()
    sums, observed = db[orders] @ da, abs(float(da @ db))
    tolerance = 1e-12 * math.sqrt(float(da @ da) * float(db @ db))
    return (int((np.abs(sums) >= observed - tolerance).sum()) + extra) / (len(orders) + extra)


def _pearson(a: Float, b: Float) -> float | None:
    if len(a) < 3:
        return None
    da, db = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(da @ da)) * math.sqrt(float(db @ db))
    if np.ptp(a) == 0 or np.ptp(b) == 0 or scale == 0:
        return None
    return min(1.0, max(-1.0, float(da @ db) / scale))


def _fisher(r: float, n: int, level: float) -> tuple[Interval | None, Interval | None]:
    if n < 4:
        return None, None
    if abs(r) == 1:
        low = high = r
    else:
        half = normal_quantile(level) / math.sqrt(n - 3)
        low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    squares = sorted((low * low, high * high))
    least = 0.0 if low < 0 < high else squares[0]
    return Interval(low, high, level, "fisher"), Interval(least, squares[1], level, "fisher")


def _weighted_r2(counts: Float, a: Float, b: Float) -> Float:
    """r² of each resample, NaN where fewer than three different points were drawn or they have no spread."""
    n = counts.sum(axis=1)
    a, b = a - a.mean(), b - b.mean()
    sa, sb, saa, sbb, sab = (counts @ v for v in (a, b, a * a, b * b, a * b))
    vaa, vbb, vab = saa - sa * sa / n, sbb - sb * sb / n, sab - sa * sb / n
    flat = (vaa <= 1e-12 * saa) | (vbb <= 1e-12 * sbb) | ((counts > 0).sum(axis=1) < 3)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(flat, np.nan, np.minimum(vab * vab / (vaa * vbb), 1.0))
