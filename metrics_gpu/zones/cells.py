"""The zones and sides that rectangles of an image lie in (docs/words.md §6)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .thorax_places import CELLS, ThoraxFrame

Float = NDArray[np.float64]

_OF_BOX: Final = 0.25
"""A zone is true for a box of which it holds this share."""

_OF_CELL: Final = 0.5
"""A zone is true for a box that covers this share of its part inside the frame."""

_OF_WIDTH: Final = 0.25
"""A box is on a side on which this share of its width is."""


def cells_of(boxes: Float, frame: ThoraxFrame, size: tuple[int, int]) -> int:
    """The set of cells of boxes, a bit each as `CELLS`.

    boxes: float64 [n, 4], x1, y1, x2, y2 in pixels. size: width and height. Outer cells reach to the image's edge. Each
    box has at least the cell that holds most of it, the first of equal ones.
    """
    if not len(boxes):
        return 0
    inner, outer = _cells(frame, size)
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    held = _overlap(boxes, outer) / area[:, None]
    covered = _overlap(boxes, inner) / np.maximum(np.prod(inner[:, 2:] - inner[:, :2], axis=1), 1e-300)
    true = (held >= _OF_BOX) | (covered >= _OF_CELL)
    true[np.arange(len(boxes)), held.argmax(axis=1)] = True
    return int((true.any(axis=0) << np.arange(len(CELLS))).sum())


def sides_of_boxes(boxes: Float, frame: ThoraxFrame, size: tuple[int, int]) -> int:
    """1 right, 2 left, 3 both; 0 where all boxes lie across the midline."""
    if not len(boxes):
        return 0
    middle = frame.across(0.5) * size[0]
    width = boxes[:, 2] - boxes[:, 0]
    right = np.clip(middle - boxes[:, 0], 0, width) >= _OF_WIDTH * width
    left = np.clip(boxes[:, 2] - middle, 0, width) >= _OF_WIDTH * width
    if (right & left).all():
        return 0
    return int(right.any()) + 2 * int(left.any())


def _cells(frame: ThoraxFrame, size: tuple[int, int]) -> tuple[Float, Float]:
    """float64 [6, 4]: the cells inside the frame, and reaching to the edges of the image."""
    width, height = size
    xs = [frame.across(u) * width for u in (0.0, 0.5, 1.0)]
    ys = [(frame.y0 + v * (frame.y1 - frame.y0)) * height for v in (0.0, 1 / 3, 2 / 3, 1.0)]
    wide, high = [0.0, xs[1], float(width)], [0.0, ys[1], ys[2], float(height)]
    inner, outer = (
        np.array([[x[side], y[level], x[side + 1], y[level + 1]] for side in range(2) for level in range(3)])
        for x, y in ((xs, ys), (wide, high))
    )
    return inner, outer


def _overlap(boxes: Float, cells: Float) -> Float:
    """float64 [n, 6]: pixels of each box in each cell."""
    low = np.maximum(boxes[:, None, :2], cells[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], cells[None, :, 2:])
    return np.asarray(np.prod(np.clip(high - low, 0, None), axis=2))
