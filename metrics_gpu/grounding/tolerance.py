"""Pointing with a tolerance (docs/metrics.md §5.3, `tolerance_px`).

Counts do not hold the distance of a miss from its region, but they hold the maximum's pixel. The regions then give the
distance, and one distance per pair serves every tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..sweep.arguments import grid_size
from ..sweep.counts import Counts
from ..sweep.masks import GRID, unpack_masks


def region_distance(counts: Counts, masks: NDArray[np.bool_] | NDArray[np.uint8], width: int) -> NDArray[np.float64]:
    """Euclidean distance in pixels from each map's first maximum to the nearest pixel of its region, float64 [P].

    masks: of the sweep, bool [P, H, W] or packed uint8 [P, H, ceil(W / 8)]; width: W. 0 for a hit; infinite for
    a degenerate map or an empty region. Raises ValueError if the masks do not fit P pairs.
    """
    if len(masks) != len(counts):
        raise ValueError(f"masks of shape {masks.shape} do not fit {len(counts)} pairs of width {width}")
    distance = np.full(len(counts), np.inf)
    for p, region in enumerate(_regions(masks, width)):
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

    masks, width: as `region_distance` takes them. 0 for an empty region. Raises ValueError as
    `region_distance` and `tolerant_hits`.
    """
    _check_tolerance(tolerance_px)
    from scipy.ndimage import distance_transform_edt

    reach = int(tolerance_px)
    share = np.zeros(len(masks))
    for p, region in enumerate(_regions(masks, width)):
        rows, columns = (np.flatnonzero(region.any(axis=axis)) for axis in (1, 0))
        if not len(rows):
            continue
        top, left = max(rows[0] - reach, 0), max(columns[0] - reach, 0)
        part = region[top : rows[-1] + reach + 1, left : columns[-1] + reach + 1]
        share[p] = np.count_nonzero(distance_transform_edt(~part) <= tolerance_px) / region.size
    return share


def _regions(masks: NDArray[np.bool_] | NDArray[np.uint8], width: int) -> Iterator[NDArray[np.bool_]]:
    """bool [H, W] of each mask; one at a time, as all would take eight times the memory of packed ones."""
    grid_size(masks, (masks.shape[1], width), GRID)
    return (mask if mask.dtype == np.bool_ else unpack_masks(mask, width) for mask in masks)


def _check_tolerance(tolerance_px: float) -> None:
    if not 0 <= tolerance_px < np.inf:
        raise ValueError(f"a tolerance is a finite number of pixels, got {tolerance_px}")
