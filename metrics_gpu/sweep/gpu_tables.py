"""Axis tables and thresholds of the sweep's kernel on the GPU, uploaded once for each field of view."""

from __future__ import annotations

from functools import lru_cache
from threading import get_ident
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

FRAMES: Final = 1024
"""Fields of view whose tables are kept, about 8 KB each for 224 x 224 pixels; more where one call has more."""

_KEPT: Final = 8
"""How often so many are kept: for the latest of all streams, grids, sizes and ways of upsampling."""

Int = NDArray[np.int32]
Frame = tuple[float, ...]


class DeviceTables:
    """Axis tables and thresholds on the GPU. The latest are kept."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._shared = lru_cache(maxsize=64)(self._make_shared)
        self._kept = lru_cache(maxsize=_KEPT)(self._make_kept)
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
        stream = self._cupy.cuda.get_current_stream().ptr
        kept = self._kept((get_ident(), self._device(), stream), cells, size, upsample)
        return kept.arguments(list(map(tuple, spans.tolist())))

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

    def _make_kept(
        self, place: tuple[int, ...], cells: tuple[int, int], size: tuple[int, int], upsample: Mode
    ) -> _KeptTables:
        return _KeptTables(self._cupy, cells, size, upsample)

    def _make_thresholds(self, device: int, values: bytes) -> Any:
        table = self._cupy.asarray(np.frombuffer(values, np.float32))
        self._cupy.cuda.get_current_stream().synchronize()
        return table

    def _device(self) -> int:
        return int(self._cupy.cuda.Device().id)

    def _upload(self, tables: Tables, step: int) -> tuple[Any, ...]:
        used, *parts = (self._cupy.asarray(part) for part in (tables.used, *_parts(tables)))
        return _arguments(used, step, parts)


class _KeptTables:
    """The tables of fields of view on the GPU, for work in the stream that is current when this is made.

    A call whose new fields of view find no room takes the place of all earlier ones: whoever goes through a dataset
    again and again would not meet the oldest either. Only one stream writes and reads the tables, so a kernel that was
    launched before has read them by then.
    """

    def __init__(self, cupy: Any, cells: tuple[int, int], size: tuple[int, int], upsample: Mode) -> None:
        self._cupy, self._stream = cupy, cupy.cuda.get_current_stream()  # held, so that no other gets its address
        self._cells, self._size, self._upsample = cells, size, upsample
        self._places: dict[Frame, int] = {}
        self._arrays: list[Any] = []

    def arguments(self, frames: list[Frame]) -> tuple[Any, ...]:
        """The kernel's arguments for the field of view of each pair."""
        new = [frame for frame in dict.fromkeys(frames) if frame not in self._places]
        if new and not self._add(new):
            self._places.clear()
            self._add(list(dict.fromkeys(frames)))
        used = np.array([self._places[frame] for frame in frames], np.int32)
        return _arguments(self._cupy.asarray(np.stack([used, used], axis=1)), 2, self._arrays)

    def _add(self, new: list[Frame]) -> bool:
        """Makes and uploads the tables of new fields of view; whether there was room beside those that are there."""
        tables = Tables.of(np.array(new), len(new), self._cells, self._size, self._upsample)
        parts = _parts(tables)
        places = [tables.used[:, 0]] * (_RUNS + 1) + [tables.used[:, 1]] * (len(parts) - _RUNS - 1)
        parts = [part[place] for part, place in zip(parts, places, strict=True)]
        first, runs = len(self._places), parts[_RUNS].shape[1]
        if first and (first + len(new) > len(self._arrays[0]) or runs > self._arrays[_RUNS].shape[1]):
            return False
        if not first:
            runs = max(runs, self._arrays[_RUNS].shape[1] if self._arrays else 0)
            rows = max(FRAMES, len(new))
            shapes = [(rows, *part.shape[1:]) for part in parts]
            shapes[_RUNS] = (rows, runs, 4)
            self._arrays = [self._cupy.empty(shape, part.dtype) for shape, part in zip(shapes, parts, strict=True)]
        parts[_RUNS] = np.pad(parts[_RUNS], ((0, 0), (0, self._arrays[_RUNS].shape[1] - parts[_RUNS].shape[1]), (0, 0)))
        for array, part in zip(self._arrays, parts, strict=True):
            array[first : first + len(new)] = self._cupy.asarray(part)
        self._places.update((frame, first + place) for place, frame in enumerate(new))
        return True


_RUNS: Final = 3
"""The place of the runs of rows among the parts."""


def _parts(tables: Tables) -> list[NDArray[Any]]:
    """Cells, shares and seen pixels of the vertical axis, its runs of rows, and the first three of the other axis."""
    runs = row_runs(tables.y_cells, tables.y_weights)
    y = (tables.y_cells, _shares(tables.y_weights), tables.y_seen)
    return [*y, runs, tables.x_cells, _shares(tables.x_weights), tables.x_seen]


def _arguments(used: Any, step: int, parts: list[Any]) -> tuple[Any, ...]:
    """In the kernel's order, in which the number of runs follows them."""
    return (used, np.int32(step), *parts[: _RUNS + 1], np.int32(parts[_RUNS].shape[1]), *parts[_RUNS + 1 :])


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
