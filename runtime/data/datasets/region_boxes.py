"""Regions made of boxes, and how they are drawn on the native grid (docs/datasets.md §0.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError
from .mask_run_lengths import MAX_SIDE, check_grid

if TYPE_CHECKING:
    from .case import Region

Corners = tuple[float, float, float, float]

ROUNDING = 2.0
"""Pixels by which a box may reach beyond its image because of rounding."""

FAULTS: Final = ("outside", "clipped", "empty")
"""What can be wrong with the place of a region (docs/datasets.md §0.3)."""


@dataclass(frozen=True)
class Boxes:
    """The union of boxes (x1, y1, x2, y2) in native pixels.

    A box covers rows int(y1) .. int(y2)-1 and columns int(x1) .. int(x2)-1, truncated towards zero, at least one pixel
    in each direction, clipped to the image. A box wholly outside the image covers nothing. `exact`: drawing raises
    DataError when a box does not fit the image (`excess`), for image copies that may have been resized. `fractions`:
    the corners are fractions of the image's width and height, written with six decimals or more. `centres`: a box
    covers the pixels whose centres lie inside, at least one in each direction. `crowd`: the boxes that are marked
    `iscrowd`, which COCO's average precision ignores and every other number counts.
    """

    corners: tuple[Corners, ...]
    exact: bool = False
    fractions: bool = False
    centres: bool = False
    crowd: frozenset[Corners] = frozenset()

    def __post_init__(self) -> None:
        if self.fractions and any(abs(value) > MAX_SIDE for box in self.corners for value in box):
            raise DataError(f"A box in fractions of its image ends at more than {MAX_SIDE}; check its unit.")

    @staticmethod
    def from_sizes(boxes: Iterable[Sequence[float]]) -> Boxes:
        """Boxes given as (x, y, width, height): rows int(y) .. int(y)+int(height)-1, columns in the same way."""
        return Boxes(tuple((int(x), int(y), int(x) + int(w), int(y) + int(h)) for x, y, w, h in boxes))

    def distinct(self) -> tuple[Boxes, int]:
        """The same with each box once, and how many were left out."""
        corners = tuple(dict.fromkeys(self.corners))
        if len(corners) == len(self.corners):
            return self, 0
        return replace(self, corners=corners), len(self.corners) - len(corners)

    def extents(self, height: int, width: int) -> tuple[Corners, ...]:
        """The corners in pixels of a [height, width] image."""
        if not self.fractions:
            return self.corners
        sides = (width, height, width, height)
        return tuple(tuple(map(pixel_of, box, sides)) for box in self.corners)  # type: ignore[misc]

    def clipped(self, height: int, width: int) -> NDArray[np.float64]:
        """float64 [n, 4]: the corners of the boxes that meet a [height, width] image, clipped to it."""
        corners, inside = self._inside(height, width)
        return np.clip(corners[inside], 0, (width, height, width, height))

    def crowded(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [n]: which of the boxes of `clipped` are marked `iscrowd`."""
        marked = np.array([corners in self.crowd for corners in self.corners], np.bool_)
        return marked[self._inside(height, width)[1]]

    def _inside(self, height: int, width: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """All corners in pixels, and which boxes meet the image."""
        corners = np.array(self.extents(height, width), np.float64).reshape(-1, 4)
        meets = (corners[:, :2] < (width, height)).all(axis=1) & (corners[:, 2:] > 0).all(axis=1)
        return corners, np.asarray(meets)

    def excess(self, height: int, width: int) -> float:
        """Pixels by which a box reaches beyond a [height, width] image; 0 up to `ROUNDING`."""
        x1, y1, x2, y2 = np.array(self.extents(height, width) or ((0.0,) * 4,), np.float64).T
        most = float(max(-x1.min(), -y1.min(), x2.max() - width, y2.max() - height))
        return most if most > ROUNDING else 0.0

    def spans(self, height: int, width: int) -> list[tuple[int, int, int, int]]:
        """Half-open pixel ranges (row0, row1, column0, column1) of the boxes that meet a [height, width] image.

        Raises DataError when the boxes are `exact` and do not fit the image.
        """
        if self.exact and (excess := self.excess(height, width)):
            raise DataError(
                f"A box reaches {excess:.0f} pixels beyond an image of {width} x {height}; the image seems to be "
                "resized, so name the file of the native sizes in the reader's option sizes, or use the native images."
            )
        spans = []
        for x1, y1, x2, y2 in self.extents(height, width):
            (row, row1), (column, column1) = self._range(y1, y2), self._range(x1, x2)
            span = (max(row, 0), min(row1, height), max(column, 0), min(column1, width))
            if span[0] < span[1] and span[2] < span[3]:
                spans.append(span)
        return spans

    def _range(self, low: float, high: float) -> tuple[int, int]:
        if not self.centres:
            return int(low), max(int(high), int(low) + 1)
        first, stop = math.ceil(low - 0.5), math.ceil(high - 0.5)
        middle = math.floor((low + high) / 2)
        return (first, stop) if first < stop else (middle, middle + 1)

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        check_grid(height, width)
        drawn = np.zeros((height, width), np.bool_)
        for row0, row1, column0, column1 in self.spans(height, width):
            drawn[row0:row1, column0:column1] = True
        return drawn


def extents(region: object, height: int, width: int) -> Sequence[Corners]:
    """(x1, y1, x2, y2) of each box, polygon and ellipse of a region, in pixels of a [height, width] image.

    None for a mask, which has its own grid and cannot leave it, and for a region of a reader without this method.
    """
    method: Callable[[int, int], Sequence[Corners]] | None = getattr(region, "extents", None)
    return () if method is None else method(height, width)


def distinct(region: Region) -> tuple[Region, int]:
    """A region with each of its parts once, and how many were left out; a region without parts is as it was."""
    parts: Callable[[], tuple[Region, int]] | None = getattr(region, "distinct", None)
    return (region, 0) if parts is None else parts()


def pixel_of(fraction: float, side: int) -> float:
    """The coordinate in pixels; a whole number where it misses one by no more than six decimals of `fraction` can."""
    value = fraction * side
    return round(value) if abs(value - round(value)) <= 1e-6 * side else value
