"""Maps on the evaluation grid, pixel by pixel, for what counts cannot tell: overlays, and maps to transform.

The arithmetic is the sweep's to the last bit (docs/metrics.md §2), so `scaled_map(...) >= threshold` marks
exactly the pixels that the sweep counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .masks import GRID
from .sampling import Mode, axis
from .sweep import Normalise

__all__ = ["quantile_map", "scaled_map"]


def scaled_map(
    saliency: NDArray[np.float32],
    *,
    size: tuple[int, int] = GRID,
    frame: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
    upsample: Mode = "bilinear",
    normalise: Normalise = "minmax",
) -> NDArray[np.float32]:
    """float32 [H, W]: one map float32 [h, w] upsampled and normalised as `sweep.sweep` does with these arguments.

    Pixels the model does not see have the smallest value of those it sees; a map that is degenerate is 0 everywhere.
    Raises TypeError for another dtype, ValueError for another shape or frame.
    """
    if not isinstance(saliency, np.ndarray) or saliency.dtype != np.float32:
        raise TypeError("a saliency map must be a float32 array")
    if saliency.ndim != 2 or 0 in saliency.shape:
        raise ValueError(f"a saliency map must have shape [h, w], got {saliency.shape}")
    rows = axis(saliency.shape[0], size[0], frame[0], frame[2], upsample)
    columns = axis(saliency.shape[1], size[1], frame[1], frame[3], upsample)
    out = np.zeros(size, np.float32)
    if not (rows.seen.any() and columns.seen.any()):
        return out
    y_lo, y_hi, y_weight = rows.lo[rows.seen], rows.hi[rows.seen], rows.weight[rows.seen][:, None]
    x_lo, x_hi, x_weight = columns.lo[columns.seen], columns.hi[columns.seen], columns.weight[columns.seen]
    one = np.float32(1)
    with np.errstate(invalid="ignore", over="ignore"):
        across = saliency[:, x_lo] * (one - x_weight) + saliency[:, x_hi] * x_weight
        value = across[y_lo] * (one - y_weight) + across[y_hi] * y_weight
        low, high = value.min(), value.max()
        span = high - low
    if not (np.isfinite(value).all() and np.isfinite(span) and span > 0) or (normalise == "max" and not high > 0):
        return out
    offset = low if normalise == "minmax" else np.float32(0)
    scale = {"minmax": span, "max": high, "none": one}[normalise]
    out[:] = (low - offset) / scale
    out[np.ix_(rows.seen, columns.seen)] = (value - offset) / scale
    return out


def quantile_map(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32, the shape of `values`: the share of pixels that are smaller, over that of the maximum.

    Every map has the same distribution then, up to ties, so a threshold t marks about the largest 1 - t of the pixels
    in each. Equal pixels stay equal; a constant map is 0.
    """
    flat = values.reshape(-1)
    order = np.argsort(flat)
    ordered = flat[order]
    first = np.maximum.accumulate(np.where(np.append(True, ordered[1:] != ordered[:-1]), np.arange(len(flat)), 0))
    smaller = np.empty(len(flat), np.float64)
    smaller[order] = first
    ranked: NDArray[np.float32] = (smaller / max(first[-1], 1)).astype(np.float32).reshape(values.shape)
    return ranked
