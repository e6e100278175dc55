"""A table of the native sizes of images of which there are resized copies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..file_rows import fail, number
from .csv_files import read_csv
from .image_names import ImageIds

_SIZES: Final = (("dim0", "dim1"), ("image_height", "image_width"))
"""Height and width: the columns of Kaggle's copies and of CSV files."""


def read_sizes(file: Path, wanted: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Native (height, width) by image id. Raises DataError if one is invalid, or missing for one of `wanted`."""
    sizes: dict[str, tuple[int, int]] = {}
    ids = ImageIds(file)
    for row, cells in read_csv(file, ("image_id",)):
        key = ids.of(cells["image_id"], row, "image_id")
        names = next((names for names in _SIZES if all(name in cells for name in names)), None)
        if names is None:
            raise fail(file, 1, "the header needs dim0, dim1 or image_height, image_width")
        height, width = (number(cells[name], file, row, name) for name in names)
        if not 1 <= height == int(height) or not 1 <= width == int(width):
            raise fail(file, row, f"the size {height:g} x {width:g} is not in whole pixels")
        if sizes.setdefault(key, (int(height), int(width))) != (height, width):
            raise fail(file, row, f"'{key}' has another size than in a row before")
    lacking = next((key for key in wanted if key not in sizes), None)
    if lacking is not None:
        raise fail(file, None, f"it has no size for the image '{lacking}'")
    return sizes
