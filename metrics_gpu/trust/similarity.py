"""How alike two maps are: Spearman, Pearson and the structural similarity index (docs/trust.md §0.5).

Two maps of the same pair, one for each index of the first axis. A degenerate map (constant, with a NaN or an infinity,
or of a range beyond float32) has no similarity to anything: NaN, which the caller counts apart.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["WINDOW", "degenerate_maps", "pearson", "spearman", "ssim"]

Float = NDArray[np.float64]

WINDOW: Final = 7
"""Side of the uniform window of SSIM, in pixels."""
_K1, _K2 = 0.01, 0.03
_BATCH: Final = 32  # maps in memory at once, of which SSIM needs about ten copies in float64


def degenerate_maps(maps: NDArray[Any]) -> NDArray[np.bool_]:
    """bool [n]: which of n maps [n, ...] are constant, not finite, or of a range beyond float32."""
    flat = _flat(maps)
    finite = np.isfinite(flat).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        span = flat.max(axis=1, initial=-np.inf) - flat.min(axis=1, initial=np.inf)
    found: NDArray[np.bool_] = ~(finite & (span > 0) & np.isfinite(span))
    return found


def spearman(first: NDArray[Any], second: NDArray[Any]) -> Float:
    """float64 [n]: rank correlation of maps [n, ...] over all cells, tied cells with their mean rank.

    Raises ValueError for maps of two sizes.
    """
    from scipy.stats import rankdata

    known = _known(first, second)
    one, two = (rankdata(_flat(maps)[known], axis=1) for maps in (first, second))
    return _spread_over(known, _correlation(one, two))


def pearson(first: NDArray[Any], second: NDArray[Any]) -> Float:
    """float64 [n]: linear correlation of maps [n, ...] over all cells. Raises ValueError for maps of two sizes."""
    known = _known(first, second)
    one, two = (_flat(maps)[known].astype(np.float64) for maps in (first, second))
    return _spread_over(known, _correlation(one, two))


def ssim(first: NDArray[Any], second: NDArray[Any]) -> Float:
    """float64 [n]: structural similarity of maps [n, h, w] with values in [0, 1], the mean over all whole windows.

    Z. Wang, A. C. Bovik, H. R. Sheikh, E. P. Simoncelli, IEEE Trans. Image Processing 13, 2004, with a uniform window
    of 7 x 7 pixels, sample covariances, K1 = 0.01, K2 = 0.03 and a range of 1.

    Raises ValueError for maps of two sizes or smaller than the window.
    """
    known = _known(first, second)
    if first.ndim != 3 or min(first.shape[1:]) < WINDOW:
        raise ValueError(f"SSIM needs maps [n, h, w] of at least {WINDOW} x {WINDOW} pixels, got {first.shape}")
    places = np.flatnonzero(known)
    parts = [places[start : start + _BATCH] for start in range(0, len(places), _BATCH)]
    found = [_ssim(*(maps[part].astype(np.float64) for maps in (first, second))) for part in parts]
    return _spread_over(known, np.concatenate([np.zeros(0), *found]))


def _ssim(x: Float, y: Float) -> Float:
    from scipy.ndimage import uniform_filter

    inner = slice(WINDOW // 2, -(WINDOW // 2))

    def mean(values: Float) -> Float:
        smooth: Float = uniform_filter(values, (1, WINDOW, WINDOW))[:, inner, inner]
        return smooth

    sample = WINDOW**2 / (WINDOW**2 - 1)
    mean_x, mean_y = mean(x), mean(y)
    both = sample * (mean(x * y) - mean_x * mean_y)
    spread = sample * (mean(x * x) + mean(y * y) - mean_x**2 - mean_y**2)
    index = (2 * mean_x * mean_y + _K1**2) * (2 * both + _K2**2)
    index /= (mean_x**2 + mean_y**2 + _K1**2) * (spread + _K2**2)
    return np.asarray(index.mean(axis=(1, 2)))


def _correlation(one: Float, two: Float) -> Float:
    one, two = (values - values.mean(axis=1, keepdims=True) for values in (one, two))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (one * two).sum(axis=1) / np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
    return np.asarray(found)


def _known(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    """bool [n]: where neither map is degenerate."""
    if first.shape != second.shape:
        raise ValueError(f"maps of two sizes cannot be compared: {first.shape} and {second.shape}")
    return ~(degenerate_maps(first) | degenerate_maps(second))


def _flat(maps: NDArray[Any]) -> NDArray[Any]:
    return maps.reshape(len(maps), int(np.prod(maps.shape[1:])))


def _spread_over(known: NDArray[np.bool_], values: Float) -> Float:
    found = np.full(len(known), np.nan)
    found[known] = values
    return found
