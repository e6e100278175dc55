"""Saliency grid -> normalised map, mask and connected regions on the evaluation frame.

The arithmetic is that of the sweep, to the last bit (docs/metrics.md §2): a mask at tau = k / 100 has exactly the
pixels an evaluation counts as `area[k]`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.sweep.sampling import axis
from ...results.schema import GRID

__all__ = ["binary_mask", "normalised_map", "regions"]

Frame = tuple[float, float, float, float]
_ONE = np.float32(1)


def normalised_map(saliency: NDArray[np.float32], frame: Frame) -> NDArray[np.float32]:
    """float32 [224, 224] in 0..1 from a map float32 [h, w] that covers `frame` (y0, x0, y1, x1) of the image.

    Pixels outside the frame have the smallest value. A map that is constant or not finite, or whose frame holds no
    pixel, becomes zeros.
    """
    rows = axis(saliency.shape[0], GRID, frame[0], frame[2])
    columns = axis(saliency.shape[1], GRID, frame[1], frame[3])
    whole = np.zeros((GRID, GRID), np.float32)
    y, x = rows.seen, columns.seen
    if not (y.any() and x.any()):
        return whole
    across_weight, down_weight = columns.weight[x], rows.weight[y][:, None]
    with np.errstate(all="ignore"):
        across = saliency[:, columns.lo[x]] * (_ONE - across_weight) + saliency[:, columns.hi[x]] * across_weight
        values = across[rows.lo[y]] * (_ONE - down_weight) + across[rows.hi[y]] * down_weight
        least, greatest = values.min(), values.max()
        span = greatest - least
        if not (np.isfinite(values).all() and span > 0 and np.isfinite(span)):
            return whole
        whole[np.ix_(y, x)] = (values - least) / span
    return whole


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
