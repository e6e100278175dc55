"""Boxes around the connected parts of a mask, for maps and regions that are no boxes (docs/detection.md §2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .boxes import Float


def part_boxes(mask: NDArray[np.bool_], values: NDArray[np.float32] | None = None) -> tuple[Float, Float]:
    """The box of each connected part of bool [H, W], float64 [N, 4], corners in pixels, and the largest of `values` in
    it, float64 [N]; 1 without values.

    Pixels are connected by their sides. Parts are in the order of their first pixels, row by row.
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask)
    spans = ndimage.find_objects(labels)
    boxes = np.array([[x.start, y.start, x.stop, y.stop] for y, x in spans], np.float64).reshape(-1, 4)
    if values is None or not count:
        return boxes, np.ones(count)
    return boxes, np.asarray(ndimage.maximum(values, labels, np.arange(1, count + 1)), np.float64)
