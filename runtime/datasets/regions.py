"""Kinds of regions, and how each is drawn on the native grid (dataset specification §0.3, §0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError
from .base import Region

__all__ = ["Boxes", "Polygons", "Rle", "Union", "union"]

Corners = tuple[float, float, float, float]


@dataclass(frozen=True)
class Boxes:
    """The union of boxes (x1, y1, x2, y2) in native pixels.

    A box covers rows int(y1) .. int(y2)-1 and columns int(x1) .. int(x2)-1, truncated towards zero, at least one pixel
    in each direction, clipped to the image. A box wholly outside the image covers nothing.
    """

    corners: tuple[Corners, ...]

    @staticmethod
    def from_sizes(boxes: Iterable[Sequence[float]]) -> Boxes:
        """Boxes given as (x, y, width, height): rows int(y) .. int(y)+int(height)-1, columns alike."""
        return Boxes(tuple((int(x), int(y), int(x) + int(w), int(y) + int(h)) for x, y, w, h in boxes))

    def spans(self, height: int, width: int) -> list[tuple[int, int, int, int]]:
        """Half-open pixel ranges (row0, row1, column0, column1) of the boxes that meet a [height, width] image."""
        found = []
        for x1, y1, x2, y2 in self.corners:
            row, column = int(y1), int(x1)
            row1, column1 = max(int(y2), row + 1), max(int(x2), column + 1)
            span = (max(row, 0), min(row1, height), max(column, 0), min(column1, width))
            if span[0] < span[1] and span[2] < span[3]:
                found.append(span)
        return found

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        drawn = np.zeros((height, width), np.bool_)
        for row0, row1, column0, column1 in self.spans(height, width):
            drawn[row0:row1, column0:column1] = True
        return drawn


@dataclass(frozen=True)
class Polygons:
    """The union of filled polygons, outline included; each a sequence of (x, y) in native pixels."""

    outlines: tuple[tuple[tuple[float, float], ...], ...]

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        from PIL import Image, ImageDraw

        canvas = Image.new("L", (width, height), 0)
        draw = ImageDraw.Draw(canvas)
        for outline in self.outlines:
            if len(outline) == 1:
                draw.point(outline[0], fill=1)
            else:
                draw.polygon(outline, fill=1, outline=1)
        return np.asarray(canvas) > 0


@dataclass(frozen=True)
class Rle:
    """A run-length mask, column-major, runs alternating 0 and 1 and starting with 0 (COCO's uncompressed form).

    size: (height, width). What the runs leave over at the end is 0, so SIIM's (gap, length) pairs fit as they stand.
    """

    size: tuple[int, int]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(count < 0 for count in self.counts) or sum(self.counts) > self.size[0] * self.size[1]:
            raise DataError(
                f"A run-length mask does not fit its grid of {self.size[0]} x {self.size[1]}; check its counts."
            )

    @staticmethod
    def from_string(size: tuple[int, int], text: str) -> Rle:
        """COCO's compressed form: 5 bits per character, delta to the run two before from the fourth run on."""
        counts: list[int] = []
        value = shift = 0
        for character in text:
            code = ord(character) - 48
            if not 0 <= code < 64 or shift > 30:
                raise DataError("A compressed run-length string holds a character that does not belong there.")
            value |= (code & 31) << shift
            shift += 5
            if not code & 32:
                if code & 16:
                    value -= 1 << shift
                counts.append(value + (counts[-2] if len(counts) > 2 else 0))
                value = shift = 0
        if shift:
            raise DataError("A compressed run-length string ends in the middle of a number.")
        return Rle(size, tuple(counts))

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]. Raises DataError when this is not the mask's own grid."""
        if (height, width) != self.size:
            raise DataError(
                f"A run-length mask of {self.size[0]} x {self.size[1]} cannot be drawn on {height} x {width} pixels; "
                "the image and its annotation do not belong together."
            )
        flat = np.zeros(height * width, np.bool_)
        ends = np.cumsum(self.counts, dtype=np.int64)
        for start, stop in zip(ends[0::2].tolist(), ends[1::2].tolist(), strict=False):
            flat[start:stop] = True
        return np.ascontiguousarray(flat.reshape(width, height).T)


@dataclass(frozen=True)
class Union:
    """The union (logical or) of several regions of one class."""

    parts: tuple[Region, ...]

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]."""
        drawn = np.zeros((height, width), np.bool_)
        for part in self.parts:
            drawn |= part.mask(height, width)
        return drawn


def union(parts: Sequence[Region]) -> Region:
    """One region for several of one class: never a sum, never the last one (dataset specification §0.4)."""
    if not parts:
        raise ValueError("union() needs at least one region")
    boxes = [part for part in parts if isinstance(part, Boxes)]
    if len(boxes) == len(parts):
        return boxes[0] if len(boxes) == 1 else Boxes(tuple(corner for box in boxes for corner in box.corners))
    return parts[0] if len(parts) == 1 else Union(tuple(parts))
