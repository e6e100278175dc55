"""Axis tables of a batch for the sweep's kernels, and the tables that each pair uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .maps import Axis, axis
from .sweep_options import Mode


@dataclass(frozen=True, eq=False)
class Tables:
    """Axis tables of a batch, one per distinct field of view.

    used: int32 [P, 2], which table a pair uses (vertical, horizontal). For each axis cells int32 [T, 2, length] (lo,
    hi), weights float32 [T, length] and seen int32 [T, 2], the first seen pixel and the one behind the last.
    """

    used: NDArray[np.int32]
    y_cells: NDArray[np.int32]
    y_weights: NDArray[np.float32]
    y_seen: NDArray[np.int32]
    x_cells: NDArray[np.int32]
    x_weights: NDArray[np.float32]
    x_seen: NDArray[np.int32]

    @property
    def arrays(
        self,
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.int32], NDArray[np.float32]]:
        """The arrays for the kernels on the CPU, in their order."""
        return self.used, self.y_cells, self.y_weights, self.x_cells, self.x_weights

    def seen_through(self, frames: Tables) -> Tables:
        """This table of one field of view, cut to the pixels that each field of view of `frames` sees."""
        y_cells, y_weights = _cut(self.y_cells, self.y_weights, frames.y_seen)
        x_cells, x_weights = _cut(self.x_cells, self.x_weights, frames.x_seen)
        return replace(frames, y_cells=y_cells, y_weights=y_weights, x_cells=x_cells, x_weights=x_weights)

    @staticmethod
    def of(
        spans: NDArray[np.float64], pairs: int, cells: tuple[int, ...], size: tuple[int, int], upsample: Mode
    ) -> Tables:
        """Tables for fields of view [P, 4] or [1, 4] for all, grids of `cells` (h, w) and an evaluation grid `size`."""
        y_used, vertical = _tables(spans[:, 0::2], cells[0], size[0], upsample)
        x_used, horizontal = _tables(spans[:, 1::2], cells[1], size[1], upsample)
        used = np.zeros((pairs, 2), np.int32)
        used[:, 0], used[:, 1] = y_used, x_used
        return Tables(used, *vertical, *horizontal)


Stacked = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]


def _tables(spans: NDArray[np.float64], cells: int, pixels: int, mode: Mode) -> tuple[NDArray[np.intp] | int, Stacked]:
    """Which axis table each pair uses, and one table per distinct field of view."""
    if (spans == spans[0]).all():
        return 0, _one(cells, pixels, float(spans[0, 0]), float(spans[0, 1]), mode)
    distinct, index = np.unique(spans, axis=0, return_inverse=True)
    return np.asarray(index).reshape(-1), _stacked(
        [axis(cells, pixels, float(start), float(stop), mode) for start, stop in distinct]
    )


@lru_cache(64)
def _one(cells: int, pixels: int, start: float, stop: float, mode: Mode) -> Stacked:
    arrays = _stacked([axis(cells, pixels, start, stop, mode)])
    for array in arrays:
        array.setflags(write=False)
    return arrays


def _stacked(tables: list[Axis]) -> Stacked:
    cells = np.stack([np.stack([table.lo, table.hi]) for table in tables])
    seen = np.zeros((len(tables), 2), np.int32)
    for row, table in zip(seen, tables, strict=True):
        visible = np.flatnonzero(table.seen)
        if len(visible):
            row[:] = visible[0], visible[-1] + 1
    return cells, np.stack([table.weight for table in tables]), seen


def _cut(
    cells: NDArray[np.int32], weights: NDArray[np.float32], seen: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """A table [1, ...] once for each of `seen`, int32 [T, 2], with only the pixels between these places."""
    pixel = np.arange(cells.shape[2])
    unseen = (pixel < seen[:, :1]) | (pixel >= seen[:, 1:])
    return np.where(unseen[:, None], np.int32(-1), cells), np.repeat(weights, len(seen), axis=0)
