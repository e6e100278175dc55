"""Similarity of two maps: Spearman, Pearson and the structural similarity index (docs/trust.md §0.5).

Two maps of the same pair, one for each index of the first axis. A degenerate map (constant, with a NaN or an infinity,
or of a range beyond float32) has no similarity to anything: NaN, which the caller counts apart.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

WINDOW: Final = 7
"""Side of the uniform window of SSIM, in pixels."""
_K1, _K2 = 0.01, 0.03


def degenerate_maps(maps: NDArray[Any]) -> NDArray[np.bool_]:
    """bool [n]: which of n maps [n, ...] are constant, not finite, or of a range beyond float32."""
    flat = _flat(maps)
    finite = np.isfinite(flat).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        span = flat.max(axis=1, initial=-np.inf) - flat.min(axis=1, initial=np.inf)
    degenerate: NDArray[np.bool_] = ~(finite & (span > 0) & np.isfinite(span))
    return degenerate


def spearman(first: NDArray[np.float32], second: NDArray[np.float32]) -> Float:
    """float64 [n]: rank correlation of maps [n, ...] over all cells, tied cells with their mean rank.

    Raises ValueError for maps of two sizes.
    """
    from .compiled_similarity import mean_ranks  # compiles on import

    comparable = _usable_pairs(first, second)
    same = comparable & (_flat(first) == _flat(second)).all(axis=1)
    differ = comparable & ~same
    one, two = (mean_ranks(np.ascontiguousarray(_flat(maps)[differ], np.float32)) for maps in (first, second))
    correlations = _spread_over(differ, _correlation(one, two))
    correlations[same] = 1
    return correlations


def pearson(first: NDArray[Any], second: NDArray[Any]) -> Float:
    """float64 [n]: linear correlation of maps [n, ...] over all cells. Raises ValueError for maps of two sizes."""
    comparable = _usable_pairs(first, second)
    one, two = (_flat(maps)[comparable].astype(np.float64) for maps in (first, second))
    return _spread_over(comparable, _correlation(one, two))


def ssim(first: NDArray[np.float32], second: NDArray[np.float32]) -> Float:
    """float64 [n]: structural similarity of maps [n, h, w] with values in [0, 1], the mean over all whole windows.

    Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, IEEE Trans. Image Processing 13, 2004, with a uniform window
    of 7 x 7 pixels, sample covariances, K1 = 0.01, K2 = 0.03 and a range of 1.

    Raises ValueError for maps of two sizes or smaller than the window.
    """
    from .compiled_similarity import mean_ssim  # compiles on import

    comparable = _usable_pairs(first, second)
    if first.ndim != 3 or min(first.shape[1:]) < WINDOW:
        raise ValueError(f"SSIM needs maps [n, h, w] of at least {WINDOW} x {WINDOW} pixels, got {first.shape}")
    one, two = (np.ascontiguousarray(maps[comparable], np.float32) for maps in (first, second))
    return _spread_over(comparable, mean_ssim(one, two, WINDOW, _K1**2, _K2**2))


def _correlation(one: Float, two: Float) -> Float:
    one, two = (values - values.mean(axis=1, keepdims=True) for values in (one, two))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = (one * two).sum(axis=1) / np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
    return np.asarray(correlation)


def _usable_pairs(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    """bool [n]: where neither map is degenerate."""
    if first.shape != second.shape:
        raise ValueError(f"maps of two sizes cannot be compared: {first.shape} and {second.shape}")
    return ~(degenerate_maps(first) | degenerate_maps(second))


def _flat(maps: NDArray[Any]) -> NDArray[Any]:
    return maps.reshape(len(maps), int(np.prod(maps.shape[1:])))


def _spread_over(usable: NDArray[np.bool_], values: Float) -> Float:
    scores = np.full(len(usable), np.nan)
    scores[usable] = values
    return scores
