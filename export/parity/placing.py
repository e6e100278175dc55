"""Resizes an image to the model's geometry (engines.geometry), to compare two graphs on the same pixels.

An evaluation has its own preparation with the same rules; the two differ where pad_crop enlarges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...engines.geometry import Geometry

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["place"]


def place(grey: Image, geometry: Geometry) -> NDArray[np.uint8]:
    """uint8 [S, S] of an 8-bit grey picture."""
    from PIL import Image

    size, resize, (wide, high) = geometry.size, geometry.resize, grey.size
    if geometry.mode == "pad_crop":
        scale = resize / max(wide, high)
        rows, columns = (max(int(side * scale) if side < max(wide, high) else resize, 1) for side in (high, wide))
        square = np.zeros((resize, resize), np.uint8)
        top, left = (resize - rows) // 2, (resize - columns) // 2
        square[top : top + rows, left : left + columns] = _averaged(np.asarray(grey), rows, columns)
        return _centre(square, size)
    method = Image.Resampling.BICUBIC if geometry.interpolation == "bicubic" else Image.Resampling.BILINEAR
    short = min(wide, high)
    resized = (size, size) if geometry.mode == "squash" else (int(resize * wide / short), int(resize * high / short))
    return _centre(np.asarray(grey.resize(resized, method)), size)


def _averaged(grey: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    """Each new pixel is the mean of the area it covers."""
    averaged = _shares(grey.shape[0], rows) @ grey @ _shares(grey.shape[1], columns).T
    return np.rint(averaged).astype(np.uint8)


def _shares(old: int, new: int) -> NDArray[np.float64]:
    """[new, old]: how much of a new pixel each old one fills; rows sum to 1."""
    edges = np.arange(new + 1) * (old / new)
    start = np.arange(old)
    covered = np.minimum(edges[1:, None], start + 1) - np.maximum(edges[:-1, None], start)
    shares: NDArray[np.float64] = np.maximum(covered, 0.0) * (new / old)
    return shares


def _centre(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    top, left = (round((length - size) / 2) for length in image.shape)
    return np.ascontiguousarray(image[top : top + size, left : left + size])
