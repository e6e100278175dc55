"""Shapes in masks: what a filled contour holds beside the pixels it was drawn around."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["fill_holes", "without_single_pixels"]


def fill_holes(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool [H, W]: the mask with everything that it encloses.

    A pixel is outside if a path over pixels that share a side, none of them of the mask, leads from it to the border.
    """
    free = ~mask
    along_rows, along_columns = _runs(free), _runs(free.T)
    outside = np.zeros_like(free)
    outside[[0, -1]], outside[:, [0, -1]] = free[[0, -1]], free[:, [0, -1]]
    count = -1
    while (found := int(np.count_nonzero(outside))) != count:
        count = found
        outside = _spread(outside, free, along_rows)
        outside = _spread(outside.T, free.T, along_columns).T
    return ~outside


def without_single_pixels(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool [H, W]: the mask without pixels none of whose eight neighbours is in it."""
    height, width = mask.shape
    padded = np.pad(mask, 1)
    near = np.zeros_like(mask)
    for y in range(3):
        for x in range(3):
            if (y, x) != (1, 1):
                near |= padded[y : y + height, x : x + width]
    return mask & near


def _runs(free: NDArray[np.bool_]) -> NDArray[np.int32]:
    """int32 [H, W]: a number for each run of free pixels in a row, the same for all of its pixels."""
    starts = free.copy()
    starts[:, 1:] &= ~free[:, :-1]
    return np.cumsum(starts.reshape(-1), dtype=np.int32).reshape(free.shape)


def _spread(outside: NDArray[np.bool_], free: NDArray[np.bool_], run: NDArray[np.int32]) -> NDArray[np.bool_]:
    """The runs of which a pixel is outside, whole."""
    reached = np.zeros(int(run[-1, -1]) + 1, np.bool_)
    reached[run[outside]] = True
    return np.asarray(free & reached[run])
