"""Axis tables of a batch for the sweep's kernels, and the tables that each pair uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .maps import Axis, axis
from .sweep_options import Mode

__all__ = ["Tables"]


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

    @staticmethod
    def of(
        spans: NDArray[np.float64], pairs: int, cells: tuple[int, ...], size: tuple[int, int], upsample: Mode
    ) -> Tables:
        """Tables for fields of view [P, 4] or [1, 4] for all, grids of `cells` (h, w) and an evaluation grid `size`."""
        used = np.zeros((pairs, 2), np.int32)
        y_tables, used[:, 0] = _tables(spans[:, 0::2], cells[0], size[0], upsample)
        x_tables, used[:, 1] = _tables(spans[:, 1::2], cells[1], size[1], upsample)
        return Tables(used, *_stacked(y_tables), *_stacked(x_tables))


def _tables(spans: NDArray[np.float64], cells: int, pixels: int, mode: Mode) -> tuple[list[Axis], NDArray[np.intp]]:
    """One axis table per distinct field of view, and which one each pair uses."""
    if len(spans) == 1:
        return [axis(cells, pixels, float(spans[0, 0]), float(spans[0, 1]), mode)], np.zeros(1, np.intp)
    distinct, index = np.unique(spans, axis=0, return_inverse=True)
    tables = [axis(cells, pixels, float(start), float(stop), mode) for start, stop in distinct]
    return tables, np.asarray(index).reshape(-1)


def _stacked(tables: list[Axis]) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]]:
    cells = np.stack([np.stack([table.lo, table.hi]) for table in tables])
    seen = np.zeros((len(tables), 2), np.int32)
    for row, table in zip(seen, tables, strict=True):
        found = np.flatnonzero(table.seen)
        if len(found):
            row[:] = found[0], found[-1] + 1
    return cells, np.stack([table.weight for table in tables]), seen
