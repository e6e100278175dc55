"""Scores, counts and regions of cases, by column -> the table of their rows. No object is made for a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.sweep.counts import Counts
from ..data.images.contents import HASH_BYTES
from ..results.schema import GRID, result_schema
from .drawn import CaseColumns, DrawnPairs
from .queries import Logits

if TYPE_CHECKING:
    import pyarrow as pa

_PACKED = GRID, -(-GRID // 8)  # shape of a packed mask


@dataclass(frozen=True, eq=False)
class Scored:
    """What a model says of the B readable cases of `pairs`, by column.

    pairs: of the cases; `counts` and `native` are theirs (`native`: of that column, None: the protocol
    has none), and so are maps, float32 [P, h, w]; None: they are not stored. logits, answers: None of a model without.
    """

    pairs: DrawnPairs
    counts: Counts
    logits: Logits | None = None
    maps: NDArray[np.float32] | None = None
    native: Sequence[Mapping[str, Any] | None] | None = None
    answers: pa.StructArray | None = None

    @property
    def cases(self) -> int:
        """B."""
        return len(self.pairs.cases)


def rows_table(
    columns: Sequence[CaseColumns],
    scored: Sequence[Scored],
    findings: Sequence[str],
    model: str,
    dataset: str,
    metadata: dict[str, str],
) -> pa.Table:
    """The rows of cases, in parts, one per case and finding, as an Arrow table with the result schema.

    scored: in other parts, what a model says of those cases that are readable, in their order. `metadata`: for the
    footer.
    """
    import pyarrow as pa

    cases = [case for part in columns for case in part.cases]
    readable = np.concatenate([np.zeros(0, np.bool_), *(part.readable for part in columns)])
    if sum(part.cases for part in scored) != np.count_nonzero(readable):
        raise ValueError("the scored cases are not the readable ones")
    rows = len(cases) * len(findings)
    case_of_row = pa.array(np.repeat(np.arange(len(cases), dtype=np.int32), len(findings)))
    kinds = {entry.name: entry.type for entry in result_schema()}
    columns_of = {
        "model": pa.repeat(pa.scalar(model, kinds["model"]), rows),
        "dataset": pa.repeat(pa.scalar(dataset, kinds["dataset"]), rows),
        "case_id": pa.array([case.case_id for case in cases], pa.string()).take(case_of_row),
        "patient_id": pa.array([case.patient_id for case in cases], pa.string()).take(case_of_row),
        **_read_of(columns, len(findings)),
        "finding": pa.array(findings, kinds["finding"]).take(
            pa.array(np.tile(np.arange(len(findings), dtype=np.int32), len(cases)))
        ),
        "label": _by_row([case.labels for case in cases], findings, kinds["label"]),
        "region_fault": _region_faults(columns, len(findings)),
        **_scores(readable, scored, len(findings)),
        **_counts(readable, scored, len(findings)),
    }
    schema = result_schema(metadata)
    held = [columns_of[name] for name in schema.names]
    held = [
        one if one.type == kinds[name] else one.cast(kinds[name]) for one, name in zip(held, schema.names, strict=True)
    ]
    return pa.Table.from_arrays(held, schema=schema)


def _by_row(held: Sequence[Mapping[str, Any]], findings: Sequence[str], column_type: Any) -> Any:
    """A column of facts that a case has for some findings; the others are null."""
    import pyarrow as pa

    if not any(held):
        return pa.nulls(len(held) * len(findings), column_type)
    in_order = itemgetter(*findings, findings[0])  # a tuple also of one finding
    values: list[Any] = []
    for facts in held:
        try:
            values += in_order(facts)[:-1]
        except KeyError:
            values += map(facts.get, findings)
    return pa.array(values, column_type)


def _read_of(columns: Sequence[CaseColumns], findings: int) -> dict[str, Any]:
    """The columns of what was read of the image of each case: status, reason and hash."""
    import pyarrow as pa

    first, unread = 0, dict[int, tuple[str, str | None]]()
    for part in columns:
        for at, why in part.unread.items():
            unread.update(dict.fromkeys(range((first + at) * findings, (first + at + 1) * findings), why))
        first += len(part.cases)
    rows = first * findings
    images = np.concatenate([np.zeros((0, HASH_BYTES), np.uint8), *(part.images for part in columns)])
    hashed = np.concatenate([np.zeros(0, np.bool_), *(part.hashed for part in columns)])
    valid = pa.array(hashed.repeat(findings)).buffers()[1]
    hashes = pa.py_buffer(images.repeat(findings, axis=0))
    return {
        "status": _sparse({row: status for row, (status, _) in unread.items()}, rows, "ok"),
        "reason": _sparse({row: reason for row, (_, reason) in unread.items()}, rows),
        "image_hash": pa.Array.from_buffers(pa.binary(HASH_BYTES), rows, [valid, hashes]),
    }


def _region_faults(columns: Sequence[CaseColumns], findings: int) -> Any:
    """The column of what is wrong with regions."""
    first, faults = 0, dict[int, str]()
    for part in columns:
        faults.update(((first + at) * findings + finding, fault) for at, finding, fault in part.faults)
        first += len(part.cases)
    return _sparse(faults, first * findings)


def _sparse(values: Mapping[int, str | None], count: int, other: str | None = None) -> Any:
    """Texts at some places, and another one at all others."""
    import pyarrow as pa

    if not values:
        return pa.repeat(pa.scalar(other, pa.string()), count)
    texts = [other] * count
    for at, text in values.items():
        texts[at] = text
    return pa.array(texts, pa.string())


def _scores(readable: NDArray[np.bool_], scored: Sequence[Scored], findings: int) -> dict[str, Any]:
    """The columns of logits; null where the image was not read, or the model has no scores."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, values in (("logit", "positive"), ("logit_negative", "negative")):
        column = np.zeros((len(readable), findings), np.float32)
        absent = np.ones((len(readable), findings), np.bool_)
        rows = np.flatnonzero(readable)
        for part in scored:
            own_rows, rows = rows[: part.cases], rows[part.cases :]
            if part.logits is not None:
                column[own_rows] = getattr(part.logits, values)
                # NaN: a case asks no phrase of this finding.
                absent[own_rows] = part.logits.without if values == "negative" else np.isnan(part.logits.positive)
        columns[name] = pa.array(column.reshape(-1), mask=absent.reshape(-1))
    return columns


def _counts(readable: NDArray[np.bool_], scored: Sequence[Scored], findings: int) -> dict[str, Any]:
    """The columns of the pairs with a region; null in the other rows, but for the area and kind of no region."""
    import pyarrow as pa

    first, places = 0, [np.zeros(0, np.intp)]
    row_of = np.flatnonzero(readable) * findings
    for part in scored:
        places.append(row_of[first + part.pairs.of_case] + part.pairs.of_finding)
        first += part.cases
    at, rows = np.concatenate(places), len(readable) * findings
    readable_rows = np.repeat(readable, findings)
    absent = np.ones(rows, np.bool_)
    absent[at] = False
    counts = Counts.concatenate([part.counts for part in scored])
    sub_pixel = np.concatenate([np.zeros(0, np.bool_), *(part.pairs.sub_pixel for part in scored)])
    frames = np.concatenate([np.zeros((0, 4)), *(part.pairs.frames for part in scored)])
    without = np.concatenate([np.zeros(0, np.bool_), *(np.full(len(part.pairs), part.maps is None) for part in scored)])
    no_map = absent.copy()
    no_map[at] = without
    held = [part for part in scored if len(part.pairs)]
    of_pairs = {"argmax": counts.argmax, "hit": counts.hit, "degenerate": counts.degenerate, "area": counts.area}
    of_pairs |= {"overlap": counts.overlap, "frame": frames}
    return {
        "region_area": _at_rows(counts.region, at, ~readable_rows),
        "sub_pixel": _at_rows(sub_pixel, at, ~readable_rows),
        "region": _lists(pa.binary(), absent, [part.pairs.masks for part in held]),
        "saliency": _lists(pa.list_(pa.float32()), no_map, [part.maps for part in held if part.maps is not None]),
        "native": _native(scored, at, rows),
        **{name: _at_rows(values, at, absent) for name, values in of_pairs.items()},
    }


def _at_rows(values: NDArray[Any], at: NDArray[np.intp], absent: NDArray[np.bool_]) -> Any:
    """A column with `values` [P] or [P, n] in the rows `at`, zeros in the others, and null where `absent`.

    Arrow's `take` gives the same columns, and takes 1.3 us more for an image of 14 findings and two regions.
    """
    import pyarrow as pa

    column = np.zeros((len(absent), *values.shape[1:]), values.dtype)
    column[at] = values
    if values.ndim == 1:
        return pa.array(column, mask=absent)
    return pa.FixedSizeListArray.from_arrays(column.reshape(-1), values.shape[1], mask=pa.array(absent))


def _native(scored: Sequence[Scored], at: NDArray[np.intp], rows: int) -> Any:
    """The column of counts at native size; null where the protocol has none."""
    import pyarrow as pa

    column_type = result_schema().field("native").type
    if all(part.native is None for part in scored):
        return pa.nulls(rows, column_type)
    entries: list[Mapping[str, Any] | None] = [None] * rows
    of_pairs = [entry for part in scored for entry in part.native or [None] * len(part.pairs)]
    for row, entry in zip(at.tolist(), of_pairs, strict=True):
        entries[row] = entry
    return pa.array(entries, column_type)


def _lists(list_type: Any, absent: NDArray[np.bool_], parts: Sequence[NDArray[Any]]) -> Any:
    """The entries of arrays [P, ...], P > 0, as values of bytes or lists, in order, null where `absent`. Nothing is
    copied: each array is a separate chunk, and the last chunk has the rows behind it."""
    import pyarrow as pa

    chunks, start, done, held = [], 0, 0, np.cumsum(~absent)
    total = int(np.count_nonzero(~absent))
    for part in parts or [np.zeros((1, 1), np.float32)]:
        done += len(part)
        stop = len(absent) if done >= total else int(np.searchsorted(held, done)) + 1
        missing = absent[start:stop]
        ends = np.zeros(stop - start + 1, np.int32)
        np.cumsum(np.where(missing, 0, part[0].size), out=ends[1:])
        values = pa.py_buffer(np.ascontiguousarray(part))
        buffers = [pa.array(~missing).buffers()[1], pa.py_buffer(ends)]
        if list_type == pa.binary():
            chunks.append(pa.Array.from_buffers(list_type, stop - start, [*buffers, values]))
        else:
            inner = pa.Array.from_buffers(list_type.value_type, part.size, [None, values])
            chunks.append(pa.Array.from_buffers(list_type, stop - start, buffers, children=[inner]))
        start = stop
    return pa.chunked_array(chunks, list_type)
