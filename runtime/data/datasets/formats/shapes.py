"""What a format says about one image: shapes of classes, and labels (docs/formats.md §9.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import DataError
from ..case import Region
from ..file_rows import fail, number
from ..mask_run_lengths import check_grid
from ..region_shapes import MaskRuns
from .named_images import without_extension

Corners = tuple[float, float, float, float]
Place = tuple[Path, int | None]
"""A file, and a row in it."""

MAX_FRACTION: Final = 2.0
"""A coordinate beyond this is no fraction of an image, not even of a region that leaves it."""


@dataclass(frozen=True)
class Shape:
    """A region of a class, or where it has none the statement that the image has this class.

    row: where it stands. mark: how the format says that the region shall not count, such as iscrowd or difficult.
    unread: the region is there and cannot be read; without a `finding` its class is not known either.
    """

    finding: str
    region: Region | None
    row: int | None = None
    mark: str = ""
    unread: bool = False


@dataclass
class Annotated:
    """What a format says about one image. name: of the image; the case has it without extension. other: a second name.

    size: (height, width) of the image that was annotated, where the format states it. labels: class -> label, of a
    format that states labels (a class that is neither there nor among the shapes is unknown); None: a class without a
    shape is absent. rows: of the image in the file, by default `row`.
    """

    name: str
    file: Path
    row: int | None = None
    shapes: list[Shape] = field(default_factory=list)
    size: tuple[int, int] | None = None
    case_id: str = ""
    other: str = ""
    patient: str | None = None
    labels: Mapping[str, int | None] | None = None
    rows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.case_id = self.case_id or without_extension(self.name)
        self.rows = self.rows or (() if self.row is None else (self.row,))


def made(where: Place, make: Callable[[], Region]) -> Region:
    """What `make` returns; its DataError gets file and row."""
    try:
        return make()
    except DataError as error:
        raise fail(*where, str(error).rstrip(".")) from error


def plausible(size: tuple[int, int], where: Place) -> None:
    """Raises DataError for a size (height, width) that no radiograph has: it must not fill the memory."""
    try:
        check_grid(*size)
    except DataError as error:
        raise fail(*where, str(error).rstrip(".")) from error


def stated_size(height: object, width: object, where: Place) -> tuple[int, int] | None:
    """(height, width) of an annotated image; None where one of them is not stated. Raises DataError for no size."""
    if height in (None, "") or width in (None, ""):
        return None
    high, wide = (number(value, *where, "the size of the image") for value in (height, width))
    if high < 1 or wide < 1 or high != int(high) or wide != int(wide):
        raise fail(*where, f"height {high:g} and width {wide:g} are not a size in whole pixels")
    return int(high), int(wide)


def patient_name(value: object, where: Place) -> str | None:
    """The name of a patient as text: 77, 77.0 and "77" are one. None: not stated. Raises DataError for no name."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, bool) or not isinstance(value, str | int | float):
        if value is None:
            return None
        raise fail(*where, f"the patient is {str(value)[:40]!r}, not a text or a number")
    return str(value).strip() or None


def placed(values: NDArray[np.bool_], corner: tuple[int, int], size: tuple[int, int], where: Place) -> Region:
    """A mask whose first pixel is at `corner` (row, column) of an image of `size`. Raises DataError if it leaves it."""
    (top, left), (high, wide) = corner, values.shape
    if min(top, left) < 0 or top + high > size[0] or left + wide > size[1]:
        box = f"of {wide} x {high} at {left}, {top}"
        raise fail(*where, f"the mask {box} leaves its image of {size[1]} x {size[0]}")
    plausible(size, where)
    mask = np.zeros(size, np.bool_)
    mask[top : top + high, left : left + wide] = values
    return MaskRuns.of(mask)


def turned(corners: Corners, angle: float) -> tuple[tuple[float, float], ...]:
    """The corners of a box that is turned by `angle` degrees about its centre, from x towards y."""
    x1, y1, x2, y2 = corners
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    return tuple(
        (x + (a - x) * cos - (b - y) * sin, y + (a - x) * sin + (b - y) * cos)
        for a, b in ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
    )
