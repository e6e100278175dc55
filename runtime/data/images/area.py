"""Area averaging as OpenCV's INTER_AREA computes it, in integer arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def resize_area(grey: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """uint8 [H, W] -> uint8 [rows, columns].

    Smaller in both directions: every output pixel is the mean of the area it covers, rounded half to even; half of the
    size in both: half up, as OpenCV does. Otherwise: OpenCV's enlarging form, where an output pixel is a weighted mean
    of two neighbours; the weights are their shares of its area. Equal to OpenCV but for single pixels whose exact mean
    is a half, where OpenCV's sums in float32 can be a little less or more (docs/datasets.md §0.3).
    """
    height, width = grey.shape
    if rows > height or columns > width:
        return _enlarge(grey, rows, columns)
    if (height, width) == (2 * rows, 2 * columns):
        pairs = grey.reshape(rows, 2, columns, 2).astype(np.uint16).sum(axis=(1, 3), dtype=np.uint16)
        return np.asarray((pairs + 2) >> 2, np.uint8)
    down, down_unit = _shares(height, rows)
    across, across_unit = _shares(width, columns)
    # Integers below 2**53 in float64: the products are exact in any order of summation, so every BLAS agrees.
    total = down @ grey.astype(np.float64) @ across.T
    return np.rint(total / (float(down_unit) * float(across_unit))).astype(np.uint8)


def _shares(source: int, target: int) -> tuple[NDArray[np.float64], int]:
    """Overlap of source pixel j with output pixel i, in units of 1 / target source pixels; rows sum to `source`."""
    start = np.arange(target, dtype=np.int64)[:, None] * source
    pixel = np.arange(source, dtype=np.int64)[None, :] * target
    overlap = np.minimum(start + source, pixel + target) - np.maximum(start, pixel)
    return np.maximum(overlap, 0).astype(np.float64), source


def _enlarge(grey: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """OpenCV's fixed-point arithmetic: weights of 11 bits, and the lowest bits are dropped on the way."""
    first, second, near, far = _weights(grey.shape[1], columns)
    wide = grey[:, first] * near + grey[:, second] * far >> 4
    first, second, near, far = _weights(grey.shape[0], rows)
    total = (near[:, None] * wide[first] >> 16) + (far[:, None] * wide[second] >> 16)
    return (total + 2 >> 2).astype(np.uint8)


def _weights(source: int, target: int) -> tuple[NDArray[np.int64], ...]:
    """For each output pixel two neighbouring source pixels, and the weight of each, in units of 1 / 2048."""
    inverse = target / source
    index = np.arange(target)
    first = np.floor(index * (1 / inverse)).astype(np.int64)
    # The part of the output pixel beyond the first source pixel, in float32 as OpenCV has it.
    beyond = (index + 1 - (first + 1) * inverse).astype(np.float32)
    beyond = np.where((beyond <= 0) | (first >= source - 1), np.float32(0), beyond - np.floor(beyond))
    first = np.minimum(first, source - 1)
    near, far = (np.rint(share * np.float32(2048)).astype(np.int64) for share in (np.float32(1) - beyond, beyond))
    return first, np.minimum(first + 1, source - 1), near, far
