"""Computes cells with the loop of their engine: the one of a GPU that keeps the scores, or the one of all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...engines.backends.device import DeviceEngine
from ...engines.base import Engine
from .cell import CellWork, compute_cells
from .gpu.device_cell import compute_on_device
from .measure import Measure


def compute_anywhere(
    cells: Sequence[CellWork], engine: Engine, measure: Measure, advance: Callable[[int], None]
) -> list[int]:
    """`compute_cells`, or `compute_on_device` for an engine that keeps its scores on the GPU, but not for phrases,
    which differ from batch to batch, and for tiles and flipped images, whose maps are stitched or mirrored on the host:
    what CuPy compiles for that takes subnormals for zero."""
    first = cells[0]
    on_host = first.phrases is not None or first.tiles is not None or first.queries.mirrored
    if not isinstance(engine, DeviceEngine) or on_host:
        return compute_cells(cells, engine, measure, advance)
    return compute_on_device(cells, engine, measure, advance)
