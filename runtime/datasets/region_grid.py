"""Regions on the evaluation grid (docs/datasets.md §0.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError
from .base import Case, Region
from .placement import region_fault
from .region_shapes import Boxes

__all__ = ["DrawRegions", "DrawnRegions", "region_grid", "region_masks"]

DrawnRegions = tuple[dict[str, NDArray[np.uint8]], frozenset[str], dict[str, str]]
"""Class -> packed bits uint8 [224, 28] of a region that is not empty, which of them are sub-pixel, and class -> fault,
one of `placement.FAULTS`."""
DrawRegions = Callable[[Case, tuple[int, int], Collection[str]], DrawnRegions]


def region_grid(region: Region, height: int, width: int, grid: int = 224) -> tuple[NDArray[np.bool_], bool]:
    """bool [grid, grid], and whether the region is sub-pixel.

    Grid pixel (i, j) is native pixel (floor(i * height / grid), floor(j * width / grid)). A region that is not empty
    but meets no such pixel is sub-pixel: the one grid pixel that contains its centroid is set. An empty region gives an
    empty grid and False. Raises DataError when the region cannot be drawn on this image.
    """
    if isinstance(region, Boxes):
        drawn = _boxes(region, height, width, grid)
        if drawn.any() or not region.spans(height, width):
            return drawn, False
        mask = region.mask(height, width)
    else:
        mask = region.mask(height, width)
        index = np.arange(grid, dtype=np.int64)
        drawn = mask[np.ix_(index * height // grid, index * width // grid)]
        if drawn.any() or not mask.any():
            return drawn, False
    rows, columns = np.nonzero(mask)
    drawn[_holder(rows, height, grid), _holder(columns, width, grid)] = True
    return drawn, True


def region_masks(case: Case, size: tuple[int, int], findings: Collection[str]) -> DrawnRegions:
    """The regions of `findings`, drawn on a native grid of `size`. Raises DataError when a region cannot be drawn."""
    from ...metrics_gpu.sweep.masks import pack_masks

    masks: dict[str, NDArray[np.uint8]] = {}
    sub_pixel: set[str] = set()
    faults: dict[str, str] = {}
    for finding in findings:
        region = case.regions.get(finding)
        if region is None:
            continue
        try:
            mask, vanished = region_grid(region, *size)
        except DataError as error:
            raise DataError(f"The region of '{finding}' in {case.image} cannot be drawn: {error}") from error
        fault = region_fault(region, *size, drawn=bool(mask.any()))
        if fault is not None:
            faults[finding] = fault
        if mask.any():
            masks[finding] = pack_masks(mask[None])[0]
            if vanished:
                sub_pixel.add(finding)
    return masks, frozenset(sub_pixel), faults


def _boxes(region: Boxes, height: int, width: int, grid: int) -> NDArray[np.bool_]:
    # floor(i * height / grid) >= row if and only if i >= row * grid / height: a native span is a span of the grid.
    drawn = np.zeros((grid, grid), np.bool_)
    for row0, row1, column0, column1 in region.spans(height, width):
        top, bottom = -(-row0 * grid // height), -(-row1 * grid // height)
        left, right = -(-column0 * grid // width), -(-column1 * grid // width)
        drawn[top:bottom, left:right] = True
    return drawn


def _holder(indices: NDArray[np.int64], pixels: int, grid: int) -> int:
    """The grid index that contains the mean of the native pixel centres `indices` + 0.5."""
    return int((2 * int(indices.sum()) + indices.size) * grid // (2 * indices.size * pixels))
