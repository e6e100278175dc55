"""Native grey image -> uint8 model input, and the part of the native frame that the input covers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError
from ....engines.geometry import Geometry
from .area import resize_area
from .intensity import equalise_histogram
from .png_jpeg import MAX_PIXELS


def to_model(grey: NDArray[np.uint8], geometry: Geometry) -> NDArray[np.uint8]:
    """The model's input, uint8 [S, S] with S = geometry.size, from a native grey image uint8 [H, W].

    Bit-identical to the official PIL pipelines (docs/datasets.md §0.3); resizing one grey
    channel equals resizing three equal ones. The mode pad_crop follows CARZero and AFLoc (OpenCV's area averaging) or
    CheXzero (Lanczos). An `equalised` geometry equalises the histogram of the native image first; for a
    `stretched` one the image is stretched already, where its stored values are known (`decode_grey`).

    Raises ImageError for an image too narrow to be resized.
    """
    if geometry.intensity == "equalised":
        grey = equalise_histogram(grey)
    height, width = grey.shape
    side = geometry.size
    if geometry.mode == "pad_crop":
        rows, columns, top, left = _padded(height, width, geometry)
        canvas = np.zeros((geometry.resize, geometry.resize), np.uint8)
        resize = resize_area if geometry.interpolation == "area" else _resize_lanczos
        canvas[top : top + rows, left : left + columns] = resize(grey, rows, columns)
        top = left = _offset(geometry.resize, side)
    else:
        rows, columns, top, left = resize_plan(height, width, geometry)
        canvas = grey
        if grey.shape != (rows, columns):
            from PIL import Image

            method = Image.Resampling.BICUBIC if geometry.interpolation == "bicubic" else Image.Resampling.BILINEAR
            canvas = np.asarray(Image.fromarray(grey).resize((columns, rows), method))
    return np.ascontiguousarray(canvas[top : top + side, left : left + side])


def field_of_view(geometry: Geometry, height: int, width: int) -> tuple[float, float, float, float]:
    """(y0, x0, y1, x1): the part of the native frame that the model's input covers, as fractions of its sides.

    squash: (0, 0, 1, 1). crop, floor_crop: inside [0, 1]. pad_crop: may exceed [0, 1] where the input shows padding.
    """
    if geometry.mode == "squash":
        return (0.0, 0.0, 1.0, 1.0)
    if geometry.mode == "pad_crop":
        rows, columns, top, left = _padded(height, width, geometry)
        offset = _offset(geometry.resize, geometry.size)
        y, x = offset - top, offset - left
    else:
        rows, columns = _resized(height, width, geometry)
        y, x = _centre(rows, geometry), _centre(columns, geometry)
    return (y / rows, x / columns, (y + geometry.size) / rows, (x + geometry.size) / columns)


def resize_plan(height: int, width: int, geometry: Geometry) -> tuple[int, int, int, int]:
    """Rows and columns that an image is resized to, then top and left of the `size` x `size` part that is kept.

    For the modes squash, crop and floor_crop. Raises ImageError for an image too narrow to be resized.
    """
    if geometry.mode == "squash":
        return geometry.size, geometry.size, 0, 0
    rows, columns = _resized(height, width, geometry)
    if rows * columns > MAX_PIXELS:
        raise ImageError(f"An image of {width} x {height} pixels is too narrow to be a radiograph.")
    return rows, columns, _centre(rows, geometry), _centre(columns, geometry)


def _resized(height: int, width: int, geometry: Geometry) -> tuple[int, int]:
    """Rows and columns of an image whose shorter side is resized, by the rule of torchvision and transformers:
    multiply, divide, truncate."""
    short, long = min(height, width), max(height, width)
    longer = int(geometry.resize * long / short)
    return (longer, geometry.resize) if height > width else (geometry.resize, longer)


def _padded(height: int, width: int, geometry: Geometry) -> tuple[int, int, int, int]:
    """Rows, columns, top and left of the image inside the padded square."""
    # The official order: the quotient first, then the product, truncated; a square can lose a pixel.
    side = geometry.resize
    scale = side / max(height, width)
    rows, columns = max(int(height * scale), 1), max(int(width * scale), 1)
    if geometry.interpolation == "area":  # CheXzero truncates the longer side too, which can come out as 319 of 320
        rows, columns = (side, columns) if height >= width else (rows, side)
    return rows, columns, (side - rows) // 2, (side - columns) // 2


def _resize_lanczos(grey: NDArray[np.uint8], rows: int, columns: int) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(grey).resize((columns, rows), Image.Resampling.LANCZOS))


def _centre(length: int, geometry: Geometry) -> int:
    """Where the centre of a resized side begins, by the rule of the mode's library."""
    if geometry.mode == "floor_crop":
        return (length - geometry.size) // 2
    return _offset(length, geometry.size)


def _offset(long: int, size: int) -> int:
    return round((long - size) / 2)
