"""Pointing with a tolerance (docs/metrics.md §5.3, `tolerance_px`).

Counts do not hold the distance of a miss from its region, but they hold the maximum's pixel. The regions then give the
distance, and one distance per pair serves every tolerance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..sweep.counts import Counts


def region_distance(counts: Counts, masks: NDArray[np.bool_] | NDArray[np.uint8], width: int) -> NDArray[np.float64]:
    """Euclidean distance in pixels from each map's first maximum to the nearest pixel of its region, float64 [P].

    masks: those of the sweep, bool [P, H, W] or packed uint8 [P, H, ceil(W / 8)]; width: W. 0 for a hit; infinite for
    a degenerate map or an empty region. Raises ValueError or TypeError if the masks are not those of P pairs.
    """
    _check_masks(masks, width)
    if len(masks) != len(counts):
        raise ValueError(f"masks of shape {masks.shape} do not fit {len(counts)} pairs of width {width}")
    distance = np.full(len(counts), np.inf)
    for p, mask in enumerate(masks):
        region = _region(mask, width)
        if counts.degenerate[p] or not region.any():
            continue
        row, column = divmod(int(counts.argmax[p]), width)
        y, x = np.nonzero(region)
        distance[p] = np.sqrt(((y - row) ** 2 + (x - column) ** 2).min())
    return distance


def tolerant_hits(distance: NDArray[np.float64], tolerance_px: float) -> NDArray[np.float64]:
    """Pointing hits float64 [P] for `grounding(..., hits=)`: 1 where the distance is at most `tolerance_px`.

    The original pointing game's 15 pixels on images of about 500 pixels are 7 on the 224 grid. Raises ValueError for a
    negative or infinite tolerance.
    """
    _check_tolerance(tolerance_px)
    return (distance <= tolerance_px).astype(np.float64)


def tolerant_share(
    masks: NDArray[np.bool_] | NDArray[np.uint8], width: int, tolerance_px: float
) -> NDArray[np.float64]:
    """Share of all pixels that lie within `tolerance_px` of each region, float64 [P]: the expected hit of a random one.

    masks, width: as `region_distance` takes them. 0 for an empty region. Raises ValueError or TypeError as
    `region_distance` and `tolerant_hits`.
    """
    _check_masks(masks, width)
    _check_tolerance(tolerance_px)
    from scipy.ndimage import distance_transform_edt

    reach = int(tolerance_px)
    share = np.zeros(len(masks))
    for p, mask in enumerate(masks):
        region = _region(mask, width)
        rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            continue
        top, left = max(rows[0] - reach, 0), max(columns[0] - reach, 0)
        part = region[top : rows[-1] + reach + 1, left : columns[-1] + reach + 1]
        share[p] = np.count_nonzero(distance_transform_edt(~part) <= tolerance_px) / region.size
    return share


def _check_masks(masks: NDArray[np.bool_] | NDArray[np.uint8], width: int) -> None:
    if masks.dtype not in (np.bool_, np.uint8):
        raise TypeError(f"masks must be a bool or a packed uint8 array, got {masks.dtype}")
    if masks.ndim != 3 or masks.shape[2] != (width if masks.dtype == np.bool_ else (width + 7) // 8):
        raise ValueError(f"masks of shape {masks.shape} do not fit a width of {width}")


def _check_tolerance(tolerance_px: float) -> None:
    if not 0 <= tolerance_px < np.inf:
        raise ValueError(f"a tolerance is a finite number of pixels, got {tolerance_px}")


def _region(mask: NDArray[np.bool_] | NDArray[np.uint8], width: int) -> NDArray[np.bool_]:
    """bool [H, W] of one mask bool [H, W] or packed uint8 [H, ceil(W / 8)]."""
    if mask.dtype == np.bool_:
        return np.asarray(mask, np.bool_)
    return np.unpackbits(np.asarray(mask, np.uint8), axis=1, count=width, bitorder="little").view(np.bool_)
