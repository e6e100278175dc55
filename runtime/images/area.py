"""Area averaging as OpenCV's INTER_AREA defines it, in exact integer arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["resize_area"]


def resize_area(grey: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """uint8 [H, W] -> uint8 [rows, columns], rounded half to even.

    Smaller in both directions: every output pixel is the mean of the area it covers. Otherwise: OpenCV's enlarging
    form, where an output pixel is a weighted mean of two neighbours; the weights are their shares of its area.
    """
    height, width = grey.shape
    shrinking = rows <= height and columns <= width
    weights = _shares if shrinking else _mixes
    down, down_unit = weights(height, rows)
    across, across_unit = weights(width, columns)
    # Integers below 2**53 in float64: the products are exact in any order of summation, so every BLAS agrees.
    total = down @ grey.astype(np.float64) @ across.T
    return np.rint(total / (float(down_unit) * float(across_unit))).astype(np.uint8)


def _shares(source: int, target: int) -> tuple[NDArray[np.float64], int]:
    """Overlap of source pixel j with output pixel i, in units of 1 / target source pixels; rows sum to `source`."""
    start = np.arange(target, dtype=np.int64)[:, None] * source
    pixel = np.arange(source, dtype=np.int64)[None, :] * target
    overlap = np.minimum(start + source, pixel + target) - np.maximum(start, pixel)
    return np.maximum(overlap, 0).astype(np.float64), source


def _mixes(source: int, target: int) -> tuple[NDArray[np.float64], int]:
    """Weights of two neighbouring source pixels for each output pixel, in units of 1 / source; rows sum to `source`."""
    index = np.arange(target, dtype=np.int64)
    first = index * source // target
    # The part of output pixel i that lies beyond source pixel `first`, times `source`.
    beyond = (index + 1) * source - (first + 1) * target
    beyond = np.where(beyond <= 0, 0, beyond % source)
    second = np.minimum(first + 1, source - 1)
    weights = np.zeros((target, source), np.float64)
    weights[index, first] += source - beyond
    weights[index, second] += beyond
    return weights, source
