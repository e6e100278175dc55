"""Regions that are no boxes, and how they are drawn on the native grid (docs/datasets.md §0.3, §0.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError
from ....metrics_gpu.sweep.masks import encode_runs
from .mask_run_lengths import (
    MAX_PIXELS,
    MAX_SIDE,
    check_filled,
    check_grid,
    check_runs,
    decode_coco,
    decode_pairs,
    paint,
)
from .region_boxes import Boxes, Corners, distinct, extents, pixel_of

if TYPE_CHECKING:
    from .case import Region


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

    def distinct(self) -> tuple[Polygons, int]:
        """The same with each outline once, and how many were left out."""
        outlines = tuple(dict.fromkeys(self.outlines))
        if len(outlines) == len(self.outlines):
            return self, 0
        return replace(self, outlines=outlines), len(self.outlines) - len(outlines)

    def pixels(self, height: int, width: int) -> tuple[tuple[tuple[float, float], ...], ...]:
        """The outlines in pixels of a [height, width] image."""
        if not self.fractions:
            return self.outlines
        return tuple(tuple((pixel_of(x, width), pixel_of(y, height)) for x, y in outline) for outline in self.outlines)

    def extents(self, height: int, width: int) -> list[Corners]:
        """The smallest box (x1, y1, x2, y2) around each outline, in pixels of a [height, width] image."""
        points = [tuple(zip(*outline, strict=True)) for outline in self.pixels(height, width) if outline]
        return [(min(columns), min(rows), max(columns), max(rows)) for columns, rows in points]

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
class Ellipse:
    """An ellipse by its centre and radii in native pixels, turned by `angle` degrees from x towards y.

    Raises DataError for one so far outside any image, or so large, that its numbers are no measurements.
    """

    x: float
    y: float
    radius_x: float
    radius_y: float
    angle: float = 0.0

    def __post_init__(self) -> None:
        if max(abs(self.x), abs(self.y), self.radius_x, self.radius_y) > 2 * MAX_SIDE:
            raise DataError(f"An ellipse reaches more than {2 * MAX_SIDE} pixels away; check its coordinates.")

    def extents(self, height: int, width: int) -> list[Corners]:
        """The smallest box (x1, y1, x2, y2) around it, in an image of any size."""
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        wide = math.hypot(self.radius_x * cos, self.radius_y * sin)
        high = math.hypot(self.radius_x * sin, self.radius_y * cos)
        return [(self.x - wide, self.y - high, self.x + wide, self.y + high)]

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        check_grid(height, width)
        if min(self.radius_x, self.radius_y) <= 0:
            return np.zeros((height, width), np.bool_)
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        x = (np.arange(width) + 0.5 - self.x)[None]
        y = (np.arange(height) + 0.5 - self.y)[:, None]
        inside: NDArray[np.bool_] = (
            np.hypot((x * cos + y * sin) / self.radius_x, (y * cos - x * sin) / self.radius_y) <= 1
        )
        return inside


@dataclass(frozen=True)
class Rle:
    """A run-length mask, column-major, runs alternating 0 and 1 and starting with 0 (COCO's uncompressed form).

    size: (height, width). Raises DataError unless the runs fill the grid.
    """

    size: tuple[int, int]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.counts and max(max(self.counts), -min(self.counts)) > MAX_PIXELS:
            raise DataError("A run-length mask does not fit its grid; check its counts.")
        check_filled(np.array(self.counts, np.int64), self.size)

    @staticmethod
    def from_string(size: tuple[int, int], text: str) -> Rle:
        """COCO's compressed form, decoded at once. Raises DataError."""
        return Rle(size, tuple(decode_coco(text).tolist()))

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]. Raises DataError when this is not the mask's own grid."""
        _own_grid(self.size, height, width)
        return paint(np.array(self.counts, np.int64), self.size)


@dataclass(frozen=True)
class RunText:
    """A run-length mask kept as the file's text and decoded when drawn; needs no more memory than the file's text.

    coding: `pairs` is SIIM's (gap, length), which may end before the grid does; `coco` the compressed string, which
    fills it. Checked at creation: raises DataError for text that is invalid in its coding, and for runs that are
    negative or do not fit the grid of `size` (height, width).
    """

    size: tuple[int, int]
    text: str
    coding: Literal["pairs", "coco"]

    def __post_init__(self) -> None:
        (check_runs if self.coding == "pairs" else check_filled)(self._counts(), self.size)

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

    def distinct(self) -> tuple[AtLeast, int]:
        """The same without what each part has twice, and how many were left out; equal parts are votes of readers."""
        inner = [distinct(part) for part in self.parts]
        return replace(self, parts=tuple(part for part, _ in inner)), sum(count for _, count in inner)

    def extents(self, height: int, width: int) -> list[Corners]:
        """Those of all parts."""
        return [box for part in self.parts for box in extents(part, height, width)]

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

    def distinct(self) -> tuple[Union, int]:
        """The same with each part once, also inside of its parts, and how many were left out."""
        inner = [distinct(part) for part in self.parts]
        parts = tuple(dict.fromkeys(part for part, _ in inner))
        return replace(self, parts=parts), len(inner) - len(parts) + sum(count for _, count in inner)

    def extents(self, height: int, width: int) -> list[Corners]:
        """Those of all parts."""
        return [box for part in self.parts for box in extents(part, height, width)]

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
        counted = {corner for box in boxes for corner in box.corners if corner not in box.crowd}
        crowd = frozenset(corners).difference(counted)  # a box that is listed with and without the mark counts
        return Boxes(corners, any(box.exact for box in boxes), boxes[0].fractions, boxes[0].centres, crowd)
    return parts[0] if len(parts) == 1 else Union(tuple(parts))


def _own_grid(size: tuple[int, int], height: int, width: int) -> None:
    if (height, width) != size:
        raise DataError(
            f"A mask of {size[0]} x {size[1]} cannot be drawn on {height} x {width} pixels; "
            "the image and its annotation do not belong together."
        )


def fill_polygon(outline: Sequence[tuple[float, float]], height: int, width: int) -> NDArray[np.bool_]:
    """bool [height, width]: the pixels whose centres lie inside a polygon of points (x, y), by the even-odd rule.

    (0, 0) is the outer corner of the first pixel.
    """
    # flips[r, n]: edges that cross the middle of row r after the first n centres of columns; only parity matters.
    flips = np.zeros((height, width + 1), np.uint8)
    for (ax, ay), (bx, by) in zip(outline, [*outline[1:], *outline[:1]], strict=True):
        first, stop = (math.ceil(min(max(y - 0.5, -1.0), height + 1.0)) for y in (min(ay, by), max(ay, by)))
        rows = np.arange(max(first, 0), min(stop, height))
        if rows.size:
            crossing = ax + (rows + 0.5 - ay) * (bx - ax) / (by - ay)
            flips[rows, np.clip(np.ceil(crossing - 0.5), 0, width).astype(np.int64)] += 1
    right = np.cumsum(flips[:, :0:-1], axis=1, dtype=np.uint8)
    return (right[:, ::-1] & 1).astype(np.bool_)
