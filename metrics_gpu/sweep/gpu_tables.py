"""Axis tables and thresholds of the sweep's kernel on the GPU: uploaded once where all pairs share one frame."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sweep_options import Mode
from .tables import Tables

__all__ = ["DeviceTables"]

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
        [T, 3, length], shares float32 [T, length, 2] and seen int32 [T, 2].
        """
        if (spans == spans[0]).all():
            y0, x0, y1, x1 = (float(value) for value in spans[0])
            return self._shared(self._device(), (y0, x0, y1, x1), cells, size, upsample)
        return self._upload(Tables.of(spans, len(spans), cells, size, upsample), 2)

    def thresholds(self, thresholds: NDArray[np.float32]) -> Any:
        """The thresholds float32 [101], for work in the current stream."""
        return self._thresholds(self._device(), thresholds.tobytes())

    # Kept tables may be used in another stream than that of their upload, so wait until the upload is done.

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
        y = (_with_ends(tables.y_cells), _shares(tables.y_weights), tables.y_seen)
        x = (_with_ends(tables.x_cells), _shares(tables.x_weights), tables.x_seen)
        asarray = self._cupy.asarray
        return (asarray(tables.used), np.int32(step), *(asarray(part) for part in (*y, *x)))


def _with_ends(cells: Int) -> Int:
    """Cells [T, 2, length], and below them for each pixel the next one that reads another pair of cells."""
    count, _, length = cells.shape
    ends = np.full((count, length), length, np.int32)
    table, pixel = np.nonzero((cells[:, :, 1:] != cells[:, :, :-1]).any(axis=1))
    ends[table, pixel] = pixel + 1
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([cells, ends[:, None]], axis=1)


def _shares(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Shares of the lower and the upper cell; 1 - weight is rounded to float32 here as it would be in the kernel."""
    return np.stack([np.float32(1) - weights, weights], axis=-1)
