"""Engine scores and regions -> rows of the result table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.prompts.prompt_set import PromptSet
from ..results.schema import THRESHOLD_COUNT, result_schema
from .decoding import DecodedCase

if TYPE_CHECKING:
    import pyarrow as pa

    from ...metrics_gpu.sweep.counts import Counts

__all__ = [
    "Pair",
    "Queries",
    "ResultRow",
    "empty_rows",
    "fill_rows",
    "in_order",
    "prompt_mean",
    "rows_table",
    "wanted_pairs",
]


@dataclass(frozen=True)
class Queries:
    """The queries of a prompt set for each evaluated class: indices into Q. `findings` are the class names."""

    findings: tuple[str, ...]
    positive: tuple[NDArray[np.intp], ...]
    negative: tuple[NDArray[np.intp], ...]

    @staticmethod
    def of(prompts: PromptSet, findings: Mapping[str, str]) -> Queries:
        """The queries of `findings`: class name -> finding, which must be one of `prompts`."""
        index = [prompts.findings.index(finding) for finding in findings.values()]
        return Queries(
            tuple(findings),
            tuple(np.flatnonzero((prompts.finding_of == i) & (prompts.polarity > 0)) for i in index),
            tuple(np.flatnonzero((prompts.finding_of == i) & (prompts.polarity < 0)) for i in index),
        )


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


@dataclass(frozen=True)
class Pair:
    """A row whose finding has a region in the case `decoded`, and its map, float32 [h, w]."""

    row: ResultRow
    decoded: DecodedCase
    saliency: NDArray[np.float32]


def empty_rows(decoded: DecodedCase, findings: Sequence[str]) -> list[ResultRow]:
    """The rows of a case: one per finding, with the data that need no model."""
    case = decoded.case
    return [
        ResultRow(
            case_id=case.case_id,
            patient_id=case.patient_id,
            finding=finding,
            status=decoded.status,
            reason=decoded.reason,
            label=case.labels.get(finding),
            region_fault=decoded.faults.get(finding),
            image_hash=decoded.image,
        )
        for finding in findings
    ]


def wanted_pairs(batch: Sequence[DecodedCase], queries: Queries) -> list[tuple[int, int]]:
    """(index in the batch, index among the findings) of the pairs with a region, whose maps are swept."""
    return [
        (case, at)
        for case, decoded in enumerate(batch)
        for at, finding in enumerate(queries.findings)
        if finding in decoded.masks
    ]


def fill_rows(
    batch: Sequence[DecodedCase], logits: NDArray[np.float32], maps: Iterable[NDArray[np.float32]], queries: Queries
) -> tuple[list[list[ResultRow]], list[Pair]]:
    """Rows of a batch of readable cases, one list per case, without counts, and the pairs whose counts are missing.

    logits: float32 [B, Q]; maps: float32 [h, w] of each of `wanted_pairs`.
    """
    rows: list[list[ResultRow]] = []
    pairs: list[Pair] = []
    rest = iter(maps)
    for index, decoded in enumerate(batch):
        mine = empty_rows(decoded, queries.findings)
        for row, positive, negative in zip(mine, queries.positive, queries.negative, strict=True):
            row.logit = prompt_mean(logits[index, positive])
            row.logit_negative = prompt_mean(logits[index, negative]) if negative.size else None
            row.region_area, row.sub_pixel = 0, False
            if row.finding in decoded.masks:
                saliency = next(rest)
                row.sub_pixel = row.finding in decoded.sub_pixel
                row.keep(decoded.masks[row.finding], decoded.frame, saliency)
                pairs.append(Pair(row, decoded, saliency))
        rows.append(mine)
    return rows, pairs


def in_order(batch: Sequence[DecodedCase], scored: Iterable[list[ResultRow]], queries: Queries) -> list[ResultRow]:
    """The rows of all cases: those of readable cases are `scored`, the others are empty."""
    rest = iter(scored)
    return [
        row for item in batch for row in (next(rest) if item.status == "ok" else empty_rows(item, queries.findings))
    ]


def rows_table(rows: Sequence[ResultRow], model: str, dataset: str, metadata: dict[str, str]) -> pa.Table:
    """An Arrow table of `rows` with the result schema and `metadata` in its footer."""
    import pyarrow as pa

    schema = result_schema(metadata)
    columns: list[Any] = []
    for entry in schema:
        if entry.name in ("model", "dataset"):
            columns.append(pa.array([model if entry.name == "model" else dataset] * len(rows), entry.type))
        elif entry.name in ("area", "overlap"):
            columns.append(_counts_column([getattr(row, entry.name) for row in rows], entry.type))
        else:
            columns.append(pa.array([getattr(row, entry.name) for row in rows], entry.type))
    return pa.Table.from_arrays(columns, schema=schema)


def prompt_mean(values: NDArray[np.float32]) -> Any:
    """Mean over the first axis, taken in float64 and rounded once (docs/metrics.md §14, row 21).

    The values of a single prompt are unchanged.
    """
    return values[0] if len(values) == 1 else values.mean(axis=0, dtype=np.float64).astype(np.float32)


def _counts_column(values: Sequence[NDArray[np.int32] | None], kind: Any) -> Any:
    import pyarrow as pa

    flat = np.zeros((len(values), THRESHOLD_COUNT), np.int32)
    absent = np.ones(len(values), np.bool_)
    for index, value in enumerate(values):
        if value is not None:
            flat[index], absent[index] = value, False
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1), pa.int32()), type=kind, mask=pa.array(absent))
