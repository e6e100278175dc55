"""Shapes that hold the pixels whose centres lie inside them; (0, 0) is the outer corner of the first pixel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError
from .mask_run_lengths import MAX_SIDE, check_grid

__all__ = ["Ellipse", "fill_polygon"]


def fill_polygon(outline: Sequence[tuple[float, float]], height: int, width: int) -> NDArray[np.bool_]:
    """bool [height, width]: the pixels whose centres lie inside a polygon of points (x, y), by the even-odd rule."""
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

    def extent(self) -> tuple[float, float, float, float]:
        """The smallest box (x1, y1, x2, y2) around it."""
        cos, sin = math.cos(math.radians(self.angle)), math.sin(math.radians(self.angle))
        wide = math.hypot(self.radius_x * cos, self.radius_y * sin)
        high = math.hypot(self.radius_x * sin, self.radius_y * cos)
        return self.x - wide, self.y - high, self.x + wide, self.y + high

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
