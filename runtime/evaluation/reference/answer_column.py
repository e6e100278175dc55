"""Answers without a threshold as columns: their counts, and the column `answer` (docs/run-directory.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.detection.boxes import BoxLists, Int
from ....metrics_gpu.detection.unions import UnionCounts
from ....metrics_gpu.sweep.counts import Counts
from ...results.schema import GRID, THRESHOLD_COUNT, result_schema

if TYPE_CHECKING:
    import pyarrow as pa


def one_level(grid: UnionCounts, point: Int, sizes: Int, hit: NDArray[np.bool_]) -> Counts:
    """The counts of masks, equal at every threshold but 0, which the whole grid passes.

    grid: on the evaluation grid. point: int64 [P, 2], column and row of the native pixel that is pointed at, -1 for
    none; sizes: int64 [P, 2], width and height.
    """
    cell = np.where(point >= 0, (2 * point + 1) * GRID // (2 * sizes), 0)
    area = np.repeat(grid.area[:, None], THRESHOLD_COUNT, axis=1)
    overlap = np.repeat(grid.overlap[:, None], THRESHOLD_COUNT, axis=1)
    area[:, 0], overlap[:, 0] = GRID * GRID, grid.region
    return Counts(
        area=area.astype(np.int32),
        overlap=overlap.astype(np.int32),
        region=grid.region.astype(np.int32),
        argmax=(cell[:, 1] * GRID + cell[:, 0]).astype(np.int32),
        hit=hit,
        degenerate=np.zeros(len(hit), np.bool_),
    )


def answer_column(values: Mapping[str, Any]) -> pa.StructArray:
    """The column of its fields by name, as arrays or lists."""
    return _struct(values, result_schema(answers=True, words="words" in values).field("answer").type)


def word_column(values: Mapping[str, Any]) -> pa.StructArray:
    """The field `words` of that column, of its own fields by name."""
    return _struct(values, result_schema(answers=True, words=True).field("answer").type.field("words").type)


def _struct(values: Mapping[str, Any], struct: Any) -> pa.StructArray:
    import pyarrow as pa

    columns = [values[entry.name] for entry in struct]
    made = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.StructArray.from_arrays(
        [column.cast(entry.type) for column, entry in zip(made, struct, strict=True)], fields=list(struct)
    )


def each_list(lists: BoxLists, values: NDArray[np.float64] | None) -> list[NDArray[np.float64] | None]:
    """The values of each list; None without values."""
    if values is None:
        return [None] * len(lists)
    return [values[a:b] for a, b in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)]


def float_lists(values: Sequence[NDArray[np.float64] | None]) -> Any:
    """A list array of numbers, null where the value is None."""
    import pyarrow as pa

    present = [value.reshape(-1) for value in values if value is not None]
    ends = np.cumsum([0, *(0 if value is None else value.size for value in values)], dtype=np.int32)
    absent = np.array([value is None for value in values], np.bool_)
    return pa.ListArray.from_arrays(
        pa.array(ends), pa.array(np.concatenate([np.zeros(0), *present])), mask=pa.array(absent)
    )


def placed(column: pa.StructArray, order: Int) -> pa.StructArray:
    """The entries at these places, null where the place is -1."""
    import pyarrow as pa

    return column.take(pa.array(order, mask=order < 0))
