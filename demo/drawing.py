"""Drawing functions of the phantoms: random draws, distances and soft shapes on the 224-pixel grid.

Only additions, multiplications, divisions, square roots and comparisons are used, and all chance comes from raw
PCG64 words: these are exact in IEEE 754, so one seed gives the same pixels on every machine. (Sines, exponentials
and NumPy's reductions differ in the last bit between processors.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["SIZE", "Chance", "Field", "Mask", "blur", "distance", "pixel_grid", "segment_distance", "soft"]

SIZE = 224
Field = NDArray[np.float64]
Mask = NDArray[np.bool_]
T = TypeVar("T")


class Chance:
    """Everything random about one phantom, from one integer seed."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def unit(self) -> float:
        """One number in [0, 1)."""
        return float(int(self._bits.random_raw()) >> 11) * 2.0**-53

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def chance(self, probability: float) -> bool:
        return self.unit() < probability

    def below(self, count: int) -> int:
        """One integer in 0 .. count - 1."""
        return int(self._bits.random_raw()) % count

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def side(self) -> int:
        """-1 (left half of the picture) or +1."""
        return 1 if self.chance(0.5) else -1

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order."""
        pool = list(items)
        return [pool.pop(self.below(len(pool))) for _ in range(count)]

    def direction(self) -> tuple[float, float]:
        """A unit vector; from the rational parametrisation of the circle, so that no sine is needed."""
        t = self.between(-1.0, 1.0)
        c, s = (1.0 - t * t) / (1.0 + t * t), 2.0 * t / (1.0 + t * t)
        return (c, s) if self.chance(0.5) else (-c, -s)

    def noise(self, rows: int, columns: int) -> Field:
        """Nearly normal noise [rows, columns] of mean 0 and deviation 1: each value is a sum of eight random bytes."""
        words = np.asarray(self._bits.random_raw(rows * columns), dtype="<u8")
        parts = words.view(np.uint8).reshape(rows, columns, 8).astype(np.int64).sum(axis=2)
        noise: Field = (parts.astype(np.float64) - 1020.0) / 209.0
        return noise

    def clouds(self, cells: int) -> Field:
        """Smooth noise [SIZE, SIZE]: a random grid of cells x cells values, joined smoothly."""
        knots = self.noise(cells + 2, cells + 2)
        at = (np.arange(SIZE) + 0.5) * (cells / SIZE)
        low = at.astype(np.int64)
        part = at - low
        part = part * part * (3.0 - 2.0 * part)
        rows = knots[low] * (1.0 - part)[:, None] + knots[low + 1] * part[:, None]
        smooth: Field = rows[:, low] * (1.0 - part) + rows[:, low + 1] * part
        return smooth


def pixel_grid() -> tuple[Field, Field]:
    """Centres (x, y) of the pixels, each [SIZE, SIZE], in -1 .. 1."""
    axis = (np.arange(SIZE) + 0.5) * (2.0 / SIZE) - 1.0
    x = np.broadcast_to(axis, (SIZE, SIZE)).copy()
    return x, x.T.copy()


def distance(implicit: Field) -> Field:
    """About the signed distance in pixels (inside positive) to the border `implicit` = 0: value over slope."""
    down = np.empty_like(implicit)
    right = np.empty_like(implicit)
    down[1:-1] = (implicit[2:] - implicit[:-2]) * 0.5
    down[0], down[-1] = implicit[1] - implicit[0], implicit[-1] - implicit[-2]
    right[:, 1:-1] = (implicit[:, 2:] - implicit[:, :-2]) * 0.5
    right[:, 0], right[:, -1] = implicit[:, 1] - implicit[:, 0], implicit[:, -1] - implicit[:, -2]
    return implicit / (np.sqrt(down * down + right * right) + 1e-6)


def soft(signed: Field, width: float) -> Field:
    """0 outside, 1 inside, a smooth step of `width` pixels centred on the border; 0.5 exactly on it."""
    t = np.minimum(np.maximum(signed / width + 0.5, 0.0), 1.0)
    return t * t * (3.0 - 2.0 * t)


def blur(image: Field, passes: int = 1) -> Field:
    """`passes` times the binomial filter 1-2-1 along both axes, edges repeated."""
    for _ in range(passes):
        padded = np.concatenate([image[:1], image, image[-1:]])
        image = (padded[:-2] + padded[2:]) * 0.25 + padded[1:-1] * 0.5
        padded = np.concatenate([image[:, :1], image, image[:, -1:]], axis=1)
        image = (padded[:, :-2] + padded[:, 2:]) * 0.25 + padded[:, 1:-1] * 0.5
    return image


def segment_distance(
    start: tuple[float, float], end: tuple[float, float], reach: float
) -> tuple[tuple[slice, slice], Field] | None:
    """Distance in pixels to a line segment, only in the window within `reach` of it.

    Points are (column, row) in pixels. Returns (window, distances), or None if the window leaves the picture.
    """
    columns = max(0, int(min(start[0], end[0]) - reach)), min(SIZE, int(max(start[0], end[0]) + reach) + 2)
    rows = max(0, int(min(start[1], end[1]) - reach)), min(SIZE, int(max(start[1], end[1]) + reach) + 2)
    if columns[0] >= columns[1] or rows[0] >= rows[1]:
        return None
    px = (np.arange(*columns) + 0.5)[None, :] - start[0]
    py = (np.arange(*rows) + 0.5)[:, None] - start[1]
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = np.minimum(np.maximum((px * dx + py * dy) / (dx * dx + dy * dy + 1e-9), 0.0), 1.0)
    qx, qy = px - along * dx, py - along * dy
    return (slice(*rows), slice(*columns)), np.sqrt(qx * qx + qy * qy)
