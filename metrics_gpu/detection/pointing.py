"""Pointing with boxes: the centre pixel of the best box."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .boxes import BoxLists, Int, Rectangles


def centres(given: BoxLists, sizes: Int) -> Int:
    """int64 [P, 2]: column and row of the centre pixel of the best box, -1 in an empty list.

    The best has the highest score, or is the first. sizes: int64 [P, 2], width and height.
    """
    best = given.first
    spoke = best >= 0
    found = np.full((len(best), 2), -1, np.int64)
    boxes = given.boxes[best[spoke]]
    found[spoke] = np.minimum(((boxes[:, :2] + boxes[:, 2:]) / 2).astype(np.int64), sizes[spoke] - 1)
    return found


def pointed(centre: Int, truth: Rectangles) -> NDArray[np.bool_]:
    """bool [P]: the pixel lies in the region, given by its native pixels as `unions.pixel_rectangles` does."""
    owner = np.repeat(np.arange(len(centre)), np.diff(truth.offsets))
    held = ((truth.spans[:, :2] <= centre[owner]) & (centre[owner] < truth.spans[:, 2:])).all(axis=1)
    return np.bincount(owner, held, len(centre)) > 0
