"""Kinds of regions, and how they are drawn on the native grid (docs/datasets.md §0.3, §0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError
from .base import Region
from .centre_shapes import fill_polygon
from .mask_run_lengths import (
    MAX_PIXELS,
    MAX_SIDE,
    check_grid,
    check_runs,
    decode_coco,
    decode_pairs,
    encode_runs,
    paint,
)

__all__ = ["ROUNDING", "AtLeast", "Boxes", "MaskRuns", "Polygons", "Rle", "RunText", "Union", "union"]

Corners = tuple[float, float, float, float]

ROUNDING = 2.0
"""Pixels by which a box may reach beyond its image because of rounding."""


@dataclass(frozen=True)
class Boxes:
    """The union of boxes (x1, y1, x2, y2) in native pixels.

    A box covers rows int(y1) .. int(y2)-1 and columns int(x1) .. int(x2)-1, truncated towards zero, at least one pixel
    in each direction, clipped to the image. A box wholly outside the image covers nothing. `exact`: drawing raises
    DataError when a box does not fit the image (`excess`), for image copies that may have been resized. `fractions`:
    the corners are fractions of the image's width and height, written with six decimals or more. `centres`: a box
    covers the pixels whose centres lie inside, at least one in each direction.
    """

    corners: tuple[Corners, ...]
    exact: bool = False
    fractions: bool = False
    centres: bool = False

    def __post_init__(self) -> None:
        if self.fractions and any(abs(value) > MAX_SIDE for box in self.corners for value in box):
            raise DataError(f"A box in fractions of its image ends at more than {MAX_SIDE}; check its unit.")

    @staticmethod
    def from_sizes(boxes: Iterable[Sequence[float]]) -> Boxes:
        """Boxes given as (x, y, width, height): rows int(y) .. int(y)+int(height)-1, columns alike."""
        return Boxes(tuple((int(x), int(y), int(x) + int(w), int(y) + int(h)) for x, y, w, h in boxes))

    def pixels(self, height: int, width: int) -> tuple[Corners, ...]:
        """The corners in pixels of a [height, width] image."""
        if not self.fractions:
            return self.corners
        sides = (width, height, width, height)
        return tuple(tuple(map(_pixel, box, sides)) for box in self.corners)  # type: ignore[misc]

    def clipped(self, height: int, width: int) -> NDArray[np.float64]:
        """float64 [n, 4]: the corners of the boxes that meet a [height, width] image, clipped to it."""
        corners = np.array(self.pixels(height, width), np.float64).reshape(-1, 4)
        inside = (corners[:, :2] < (width, height)).all(axis=1) & (corners[:, 2:] > 0).all(axis=1)
        return np.clip(corners[inside], 0, (width, height, width, height))

    def excess(self, height: int, width: int) -> float:
        """Pixels by which a box reaches beyond a [height, width] image; 0 up to `ROUNDING`."""
        x1, y1, x2, y2 = np.array(self.pixels(height, width) or ((0.0,) * 4,), np.float64).T
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
        found = []
        for x1, y1, x2, y2 in self.pixels(height, width):
            (row, row1), (column, column1) = self._range(y1, y2), self._range(x1, x2)
            span = (max(row, 0), min(row1, height), max(column, 0), min(column1, width))
            if span[0] < span[1] and span[2] < span[3]:
                found.append(span)
        return found

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


@dataclass(frozen=True)
class Polygons:
    """The union of filled polygons, outline included; each a sequence of (x, y) in native pixels.

    `fractions`: of the image's width and height instead. `centres`: without the outline, only the pixels whose centres
    lie inside. Raises DataError for a point so far outside any image that drawing it would overflow.
    """

    outlines: tuple[tuple[tuple[float, float], ...], ...]
    fractions: bool = False
    centres: bool = False

    def __post_init__(self) -> None:
        if any(abs(value) > 2 * MAX_SIDE for outline in self.outlines for point in outline for value in point):
            raise DataError(f"A polygon has a point more than {2 * MAX_SIDE} pixels away; check its coordinates.")

    def pixels(self, height: int, width: int) -> tuple[tuple[tuple[float, float], ...], ...]:
        """The outlines in pixels of a [height, width] image."""
        if not self.fractions:
            return self.outlines
        return tuple(tuple((_pixel(x, width), _pixel(y, height)) for x, y in outline) for outline in self.outlines)

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        from PIL import Image, ImageDraw

        check_grid(height, width)
        outlines = self.pixels(height, width)
        if self.centres:
            parts = [fill_polygon(outline, height, width) for outline in outlines]
            return np.logical_or.reduce(parts) if parts else np.zeros((height, width), np.bool_)
        canvas = Image.new("L", (width, height), 0)
        draw = ImageDraw.Draw(canvas)
        for outline in outlines:
            if len(outline) == 1:
                draw.point(outline[0], fill=1)
            elif outline:
                draw.polygon(outline, fill=1, outline=1)
        return np.asarray(canvas) > 0


@dataclass(frozen=True)
class Rle:
    """A run-length mask, column-major, runs alternating 0 and 1 and starting with 0 (COCO's uncompressed form).

    size: (height, width). Pixels after the last run are 0. Raises DataError when the runs do not fit.
    """

    size: tuple[int, int]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.counts and max(max(self.counts), -min(self.counts)) > MAX_PIXELS:
            raise DataError("A run-length mask does not fit its grid; check its counts.")
        check_runs(np.array(self.counts, np.int64), self.size)

    @staticmethod
    def from_string(size: tuple[int, int], text: str) -> Rle:
        """COCO's compressed form, decoded at once. Raises DataError."""
        counts = decode_coco(text)
        check_runs(counts, size)
        return Rle(size, tuple(counts.tolist()))

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]. Raises DataError when this is not the mask's own grid."""
        _own_grid(self.size, height, width)
        return paint(np.array(self.counts, np.int64), self.size)


@dataclass(frozen=True)
class RunText:
    """A run-length mask kept as the file's text and decoded when drawn; needs no more memory than the file's text.

    coding: `pairs` is SIIM's (gap, length), `coco` the compressed string. Checked at creation: raises DataError
    for text that is invalid in its coding, and for runs that are negative or exceed the grid of `size` (height, width).
    """

    size: tuple[int, int]
    text: str
    coding: Literal["pairs", "coco"]

    def __post_init__(self) -> None:
        check_runs(self._counts(), self.size)

    @property
    def area(self) -> int:
        """Number of pixels set."""
        return int(self._counts()[1::2].sum())

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]. Raises DataError when this is not the mask's own grid."""
        _own_grid(self.size, height, width)
        return paint(self._counts(), self.size)

    def _counts(self) -> NDArray[np.int64]:
        return decode_pairs(self.text) if self.coding == "pairs" else decode_coco(self.text)


@dataclass(frozen=True)
class MaskRuns:
    """A mask that was read from an image, kept as runs. size: (height, width)."""

    size: tuple[int, int]
    runs: bytes

    @staticmethod
    def of(mask: NDArray[np.bool_]) -> MaskRuns:
        """The mask bool [height, width] as runs."""
        return MaskRuns((mask.shape[0], mask.shape[1]), encode_runs(mask).tobytes())

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]. Raises DataError when this is not the mask's own grid."""
        _own_grid(self.size, height, width)
        return paint(np.frombuffer(self.runs, np.int64), self.size)


@dataclass(frozen=True)
class AtLeast:
    """The pixels that at least `least` of the parts cover; used with one part per reader for a majority."""

    parts: tuple[Region, ...]
    least: int

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        check_grid(height, width)
        votes = np.zeros((height, width), np.uint16)
        for part in self.parts:
            votes += part.mask(height, width)
        return votes >= self.least


@dataclass(frozen=True)
class Union:
    """The union (logical or) of several regions of one class."""

    parts: tuple[Region, ...]

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        check_grid(height, width)
        drawn = np.zeros((height, width), np.bool_)
        for part in self.parts:
            drawn |= part.mask(height, width)
        return drawn


def union(parts: Sequence[Region]) -> Region:
    """One region for several of one class: the union, never the sum or the last one (docs/datasets.md §0.4)."""
    if not parts:
        raise ValueError("union() needs at least one region")
    boxes = [part for part in parts if isinstance(part, Boxes)]
    if len(parts) > 1 and len(boxes) == len(parts) and len({(box.fractions, box.centres) for box in boxes}) == 1:
        corners = tuple(corner for box in boxes for corner in box.corners)
        return Boxes(corners, any(box.exact for box in boxes), boxes[0].fractions, boxes[0].centres)
    return parts[0] if len(parts) == 1 else Union(tuple(parts))


def _pixel(fraction: float, side: int) -> float:
    """The coordinate in pixels; a whole number where it misses one by no more than six decimals of `fraction` can."""
    value = fraction * side
    return round(value) if abs(value - round(value)) <= 1e-6 * side else value


def _own_grid(size: tuple[int, int], height: int, width: int) -> None:
    if (height, width) != size:
        raise DataError(
            f"A mask of {size[0]} x {size[1]} cannot be drawn on {height} x {width} pixels; "
            "the image and its annotation do not belong together."
        )
