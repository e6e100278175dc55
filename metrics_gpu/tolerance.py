"""Pointing with a tolerance (metrics specification §5, `tolerance_px`).

Counts do not hold how far a miss is from its region, but they hold the maximum's pixel: with the regions the distance
follows in one look, and one distance per pair serves every tolerance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .counts import Counts

__all__ = ["region_distance", "tolerant_hits"]


def region_distance(counts: Counts, masks: NDArray[np.bool_] | NDArray[np.uint8], width: int) -> NDArray[np.float64]:
    """Euclidean distance in pixels from each map's first maximum to the nearest pixel of its region, float64 [P].

    masks: those of the sweep, bool [P, H, W] or packed uint8 [P, H, ceil(W / 8)]; width: W. 0 for a hit; infinite for
    a degenerate map or an empty region. Raises ValueError or TypeError if the masks are not those of P pairs.
    """
    if masks.dtype not in (np.bool_, np.uint8):
        raise TypeError(f"masks must be a bool or a packed uint8 array, got {masks.dtype}")
    columns = width if masks.dtype == np.bool_ else (width + 7) // 8
    if masks.ndim != 3 or len(masks) != len(counts) or masks.shape[2] != columns:
        raise ValueError(f"masks of shape {masks.shape} do not fit {len(counts)} pairs of width {width}")
    distance = np.full(len(counts), np.inf)
    for p, mask in enumerate(masks):
        region = mask if masks.dtype == np.bool_ else np.unpackbits(mask, axis=1, count=width, bitorder="little")
        if counts.degenerate[p] or not region.any():
            continue
        row, column = divmod(int(counts.argmax[p]), width)
        y, x = np.nonzero(region)
        distance[p] = np.sqrt(((y - row) ** 2 + (x - column) ** 2).min())
    return distance


def tolerant_hits(distance: NDArray[np.float64], tolerance_px: float) -> NDArray[np.float64]:
    """Pointing hits float64 [P] for `grounding(..., hits=)`: 1 where the distance is at most `tolerance_px`.

    The classical game's 15 pixels on images of about 500 pixels are 7 on the 224 grid. Raises ValueError for a negative
    or infinite tolerance.
    """
    if not 0 <= tolerance_px < np.inf:
        raise ValueError(f"a tolerance is a finite number of pixels, got {tolerance_px}")
    return (distance <= tolerance_px).astype(np.float64)
