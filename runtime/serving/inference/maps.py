"""Normalised map on the evaluation frame -> mask and connected regions.

A mask of a map from `sweep.maps.scaled_map` at tau = k / 100 has exactly the pixels an evaluation counts as `area[k]`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["binary_mask", "regions"]


def binary_mask(normalised: NDArray[np.float32], tau: float) -> NDArray[np.uint8]:
    """uint8 of the map's shape: 1 where it is at least `tau`, compared as float32 (docs/metrics.md §3)."""
    return (normalised >= np.float32(tau)).astype(np.uint8)


def regions(normalised: NDArray[np.float32], mask: NDArray[np.uint8]) -> list[tuple[float, float, float, float, float]]:
    """Boxes of the connected regions of `mask` (pixels that touch, also at corners), the highest peak first.

    Each is x0, y0, x1, y1 as fractions of the width and height (the box holds pixels x0 <= x < x1), and the largest
    value of the map inside.
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask, np.ones((3, 3), np.int8))
    if count == 0:
        return []
    peaks = ndimage.maximum(normalised, labels, np.arange(1, count + 1))
    height, width = mask.shape
    found = [
        (x.start / width, y.start / height, x.stop / width, y.stop / height, float(peak))
        for (y, x), peak in zip(ndimage.find_objects(labels), peaks, strict=True)
    ]
    return sorted(found, key=lambda box: -box[4])
