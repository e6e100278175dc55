"""Result rows as objects, one by one: what tests make results of, and the plain form of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.runtime.results.schema import result_schema

__all__ = ["ResultRow", "table_of"]


@dataclass
class ResultRow:
    """One row of the result table, see `schema`; `area` and `overlap` are int32 [101] or None, `saliency` is flat."""

    case_id: str
    patient_id: str | None
    finding: str
    status: str
    reason: str | None = None
    label: int | None = None
    logit: np.float32 | None = None
    logit_negative: np.float32 | None = None
    region_area: int | None = None
    argmax: int | None = None
    hit: bool | None = None
    degenerate: bool | None = None
    sub_pixel: bool | None = None
    region_fault: str | None = None
    area: NDArray[np.int32] | None = None
    overlap: NDArray[np.int32] | None = None
    saliency: NDArray[np.float32] | None = None
    region: bytes | None = None
    frame: tuple[float, float, float, float] | None = None
    native: dict[str, Any] | None = None
    image_hash: bytes | None = None

    def keep(
        self,
        mask: NDArray[np.uint8],
        frame: tuple[float, float, float, float],
        saliency: NDArray[np.float32] | None = None,
    ) -> None:
        """Stores the inputs of the counts: packed bits uint8 [224, 28], the frame, and a map float32 [h, w]."""
        self.region, self.frame = mask.tobytes(), frame
        self.saliency = None if saliency is None else saliency.reshape(-1)

    def take(self, counts: Counts, index: int) -> None:
        """Stores the counts of pair `index`."""
        self.region_area = int(counts.region[index])
        self.argmax = int(counts.argmax[index])
        self.hit = bool(counts.hit[index])
        self.degenerate = bool(counts.degenerate[index])
        self.area = counts.area[index]
        self.overlap = counts.overlap[index]


def table_of(rows: Sequence[ResultRow], model: str, dataset: str, metadata: dict[str, str]) -> pa.Table:
    """An Arrow table of `rows` with the result schema and `metadata` in its footer."""
    schema = result_schema(metadata)
    columns = []
    for entry in schema:
        if entry.name in ("model", "dataset"):
            values: list[Any] = [model if entry.name == "model" else dataset] * len(rows)
        else:
            values = [getattr(row, entry.name) for row in rows]
        columns.append(pa.array(values, entry.type))
    return pa.Table.from_arrays(columns, schema=schema)
