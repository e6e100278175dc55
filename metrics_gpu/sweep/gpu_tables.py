"""Axis tables and thresholds of the sweep's kernel on the GPU: uploaded once where all pairs share one frame."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .sweep_options import Mode
from .tables import Tables

RUN: Final = 16
"""Rows of a run, at most."""

EQUAL: Final = 1
"""A run whose rows all have the same weight."""

BAND: Final = 2
"""A run of RUN rows with the weights 1/32, 3/32, .., 31/32, as between the rows of a 14 x 14 grid on 224 x 224."""

_MOST_CELLS: Final = 2**31 - 1  # the kernel counts cells in 32 bits
_WIDEST: Final = 32 * (65535 // RUN)  # a lane's counter takes a run of every word of the row

Int = NDArray[np.int32]


class DeviceTables:
    """Axis tables and thresholds on the GPU. The latest tables that all pairs of a call share are kept."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._shared = lru_cache(maxsize=64)(self._make_shared)
        self._thresholds = lru_cache(maxsize=16)(self._make_thresholds)

    def axes(
        self, spans: NDArray[np.float64], cells: tuple[int, int], size: tuple[int, int], upsample: Mode
    ) -> tuple[Any, ...]:
        """The kernel's arguments for fields of view [P, 4] or [1, 4] for all, for work in the current stream.

        In the kernel's order: int32 used [P, 2] or [2] and its step (2 or 0); then for each axis cells int32
        [T, 2, length], shares float32 [T, length, 2] and seen int32 [T, 2], and of the vertical one, before the other,
        the runs of rows int32 [T, R, 4] and their number R. Raises ValueError for sizes that the kernel cannot count.
        """
        if cells[0] * cells[1] > _MOST_CELLS or size[1] > _WIDEST:
            raise ValueError(
                f"the kernel takes maps of at most {_MOST_CELLS} cells and masks at most {_WIDEST} pixels wide, got "
                f"{cells[0]} x {cells[1]} cells and {size[1]} pixels"
            )
        if (spans == spans[0]).all():
            y0, x0, y1, x1 = (float(value) for value in spans[0])
            return self._shared(self._device(), (y0, x0, y1, x1), cells, size, upsample)
        return self._upload(Tables.of(spans, len(spans), cells, size, upsample), 2)

    def thresholds(self, thresholds: NDArray[np.float32]) -> Any:
        """The thresholds float32 [101], for work in the current stream."""
        return self._thresholds(self._device(), thresholds.tobytes())

    # Kept tables may be used in another stream than the one that uploaded them, so wait until the upload is done.

    def _make_shared(
        self, device: int, span: tuple[float, ...], cells: tuple[int, int], size: tuple[int, int], upsample: Mode
    ) -> tuple[Any, ...]:
        made = self._upload(Tables.of(np.array([span]), 1, cells, size, upsample), 0)
        self._cupy.cuda.get_current_stream().synchronize()
        return made

    def _make_thresholds(self, device: int, values: bytes) -> Any:
        table = self._cupy.asarray(np.frombuffer(values, np.float32))
        self._cupy.cuda.get_current_stream().synchronize()
        return table

    def _device(self) -> int:
        return int(self._cupy.cuda.Device().id)

    def _upload(self, tables: Tables, step: int) -> tuple[Any, ...]:
        runs = row_runs(tables.y_cells, tables.y_weights)
        y = (tables.y_cells, _shares(tables.y_weights), tables.y_seen, runs)
        x = (tables.x_cells, _shares(tables.x_weights), tables.x_seen)
        used, *parts = (self._cupy.asarray(part) for part in (tables.used, *y, *x))
        return (used, np.int32(step), *parts[: len(y)], np.int32(runs.shape[1]), *parts[len(y) :])


def row_runs(cells: Int, weights: NDArray[np.float32]) -> Int:
    """Seen rows between the same two grid rows, at most RUN at a time, for axis tables [T, 2, length] and [T, length].

    Returns int32 [T, R, 4]: first row, number of rows and, in the upper half, EQUAL or BAND or 0, lower cell, upper
    cell; as many for each table, empty ones at the end.
    """
    count, _, length = cells.shape
    row = np.arange(length)
    same = np.zeros((count, length), bool)  # as the row before
    same[:, 1:] = (cells[:, :, 1:] == cells[:, :, :-1]).all(axis=1)
    even = same.copy()
    even[:, 1:] &= weights[:, 1:] == weights[:, :-1]
    equal = even | np.concatenate([even[:, 1:], np.zeros((count, 1), bool)], axis=1)
    starts = ~np.where(equal, even, same)
    starts[:, 1:] |= equal[:, 1:] != equal[:, :-1]
    offset = row - np.maximum.accumulate(np.where(starts, row, 0), axis=1)
    starts |= offset % RUN == 0
    odd = ~equal & (weights == ((2 * (offset % RUN) + 1) / np.float32(2 * RUN)).astype(np.float32))

    firsts = np.flatnonzero(starts)
    rows = np.diff(firsts, append=count * length)
    band = np.logical_and.reduceat(odd.ravel(), firsts) & (rows == RUN)
    form = np.where(equal.ravel()[firsts], EQUAL, np.where(band, BAND, 0))
    table, first = np.divmod(firsts, length)
    seen = cells[table, 0, first] >= 0
    table, first, rows, form = (values[seen] for values in (table, first, rows, form))
    turn = np.arange(len(table)) - np.searchsorted(table, table)
    runs = np.zeros((count, int(turn.max(initial=-1)) + 1, 4), np.int32)
    runs[table, turn] = np.stack([first, rows + (form << 16), cells[table, 0, first], cells[table, 1, first]], axis=1)
    return runs


def _shares(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shares of the lower and the upper cell; 1 - weight is rounded to float32 here as it would be in the kernel."""
    return np.stack([np.float32(1) - weights, weights], axis=-1)
