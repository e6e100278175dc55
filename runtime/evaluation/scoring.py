"""Scores, counts and regions of cases, by column -> the table of their rows. No object is made for a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...engines.prompts.prompt_set import PromptSet
from ...metrics_gpu.sweep.counts import Counts
from ..images.contents import HASH_BYTES
from ..results.schema import GRID, result_schema
from .drawn import CaseColumns, DrawnPairs

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Logits", "Queries", "Scored", "prompt_mean", "rows_table"]

_PACKED = GRID, -(-GRID // 8)  # shape of a packed mask


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

    def by_prompts(self, of_finding: NDArray[np.intp]) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """The entries of `of_finding` [P] grouped by the number n of positive prompts of their finding: for each n the
        places of its entries, [p], and their queries, [p, n]."""
        sizes = np.array([len(queries) for queries in self.positive], np.intp)[of_finding]
        found = []
        for size in np.unique(sizes).tolist():
            places = np.flatnonzero(sizes == size)
            found.append((places, np.stack([self.positive[at] for at in of_finding[places].tolist()])))
        return found

    def maps(self, saliency: NDArray[np.float32], pairs: DrawnPairs) -> NDArray[np.float32]:
        """The map of each pair, float32 [P, h, w], of saliency [B, Q, h, w]: the mean over its positive prompts."""
        if all(len(each) == 1 for each in self.positive):
            return saliency[pairs.of_case, np.concatenate(self.positive)[pairs.of_finding]]
        maps = np.empty((len(pairs), *saliency.shape[2:]), np.float32)
        for places, queries in self.by_prompts(pairs.of_finding):
            chosen = saliency[pairs.of_case[places, None], queries]
            maps[places] = prompt_mean(np.moveaxis(chosen, 1, 0))
        return maps

    def logits(self, logits: NDArray[np.float32]) -> Logits:
        """The logits of the findings, of those of all queries, float32 [B, Q]."""
        without = np.array([not queries.size for queries in self.negative], np.bool_)
        return Logits(_over_prompts(logits, self.positive), _over_prompts(logits, self.negative), without)


@dataclass(frozen=True, eq=False)
class Logits:
    """positive, negative: float32 [B, F], means over the prompts of a finding; `without`: bool [F], findings that have
    no negative prompts, whose `negative` means nothing."""

    positive: NDArray[np.float32]
    negative: NDArray[np.float32]
    without: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Scored:
    """What a model says of B readable cases, by column.

    count: B. pairs: those of the cases; `counts` and `native` are theirs (`native`: of that column, None: the protocol
    has none), and so are maps, float32 [P, h, w]; None: they are not stored. logits, answers: None of a model without.
    """

    count: int
    pairs: DrawnPairs
    counts: Counts
    logits: Logits | None = None
    maps: NDArray[np.float32] | None = None
    native: Sequence[Mapping[str, Any] | None] | None = None
    answers: pa.StructArray | None = None


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
    if sum(part.count for part in scored) != np.count_nonzero(readable):
        raise ValueError("the scored cases are not the readable ones")
    each = np.repeat(np.arange(len(cases), dtype=np.int32), len(findings))
    kinds = {entry.name: entry.type for entry in result_schema()}

    def by_case(values: pa.Array) -> Any:
        return values.take(pa.array(each))

    columns_of = {
        "model": pa.repeat(pa.scalar(model, kinds["model"]), len(each)),
        "dataset": pa.repeat(pa.scalar(dataset, kinds["dataset"]), len(each)),
        "case_id": by_case(pa.array([case.case_id for case in cases], pa.string())),
        "patient_id": by_case(pa.array([case.patient_id for case in cases], pa.string())),
        "finding": pa.array(findings, kinds["finding"]).take(
            pa.array(np.tile(np.arange(len(findings), dtype=np.int32), len(cases)))
        ),
        "label": _by_row([case.labels for case in cases], findings, kinds["label"]),
        **_read_of(columns, len(findings), by_case),
        **_scores(readable, scored, len(findings)),
        **_counts(readable, scored, len(findings)),
    }
    schema = result_schema(metadata)
    return pa.Table.from_arrays([columns_of[entry.name].cast(entry.type) for entry in schema], schema=schema)


def prompt_mean(values: NDArray[np.float32]) -> Any:
    """Mean over the first axis, taken in float64 and rounded once (docs/metrics.md §14, row 21).

    The values of a single prompt are unchanged.
    """
    return values[0] if len(values) == 1 else values.mean(axis=0, dtype=np.float64).astype(np.float32)


def _over_prompts(logits: NDArray[np.float32], queries: Sequence[NDArray[np.intp]]) -> NDArray[np.float32]:
    """float32 [B, F]: for each finding the mean over its queries, 0 for none, of logits [B, Q]; as `prompt_mean`."""
    if all(len(each) == 1 for each in queries):
        return logits[:, np.concatenate(queries)]
    means = np.zeros((len(logits), len(queries)), np.float32)
    for at, each in enumerate(queries):
        if each.size:
            chosen = np.ascontiguousarray(logits[:, each])
            means[:, at] = chosen[:, 0] if len(each) == 1 else chosen.mean(axis=1, dtype=np.float64)
    return means


def _by_row(held: Sequence[Mapping[str, Any]], findings: Sequence[str], kind: Any) -> Any:
    """A column of facts that a case has for some findings; the others are null."""
    import pyarrow as pa

    if not any(held):
        return pa.nulls(len(held) * len(findings), kind)
    every = itemgetter(*findings, findings[0])  # a tuple also of one finding
    values: list[Any] = []
    for facts in held:
        try:
            values += every(facts)[:-1]
        except KeyError:
            values += map(facts.get, findings)
    return pa.array(values, kind)


def _read_of(columns: Sequence[CaseColumns], findings: int, by_case: Callable[[Any], Any]) -> dict[str, Any]:
    """The columns of what was read of the images: status, reason, hash, and the faults of regions."""
    import pyarrow as pa

    first, unread, faults = 0, dict[int, tuple[str, str | None]](), dict[int, str]()
    for part in columns:
        unread.update((first + at, why) for at, why in part.unread.items())
        faults.update(((first + at) * findings + finding, fault) for at, finding, fault in part.faults)
        first += len(part.cases)
    images = np.concatenate([np.zeros((0, HASH_BYTES), np.uint8), *(part.images for part in columns)])
    hashed = np.concatenate([np.zeros(0, np.bool_), *(part.hashed for part in columns)])
    hashes = pa.Array.from_buffers(
        pa.binary(HASH_BYTES), first, [pa.array(hashed).buffers()[1], pa.py_buffer(np.ascontiguousarray(images))]
    )
    return {
        "status": by_case(_sparse({at: status for at, (status, _) in unread.items()}, first, "ok")),
        "reason": by_case(_sparse({at: reason for at, (_, reason) in unread.items()}, first)),
        "region_fault": _sparse(faults, first * findings),
        "image_hash": by_case(hashes),
    }


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

    found: dict[str, Any] = {}
    for name, values in (("logit", "positive"), ("logit_negative", "negative")):
        column = np.zeros((len(readable), findings), np.float32)
        absent = np.ones((len(readable), findings), np.bool_)
        rows = np.flatnonzero(readable)
        for part in scored:
            mine, rows = rows[: part.count], rows[part.count :]
            if part.logits is not None:
                column[mine] = getattr(part.logits, values)
                # NaN: a case asks no phrase of this finding.
                absent[mine] = part.logits.without if values == "negative" else np.isnan(part.logits.positive)
        found[name] = pa.array(column.reshape(-1), mask=absent.reshape(-1))
    return found


def _counts(readable: NDArray[np.bool_], scored: Sequence[Scored], findings: int) -> dict[str, Any]:
    """The columns of the pairs with a region; null in the other rows, but for the area and kind of no region."""
    import pyarrow as pa

    first, places = 0, [np.zeros(0, np.intp)]
    row_of = np.flatnonzero(readable) * findings
    for part in scored:
        places.append(row_of[first + part.pairs.of_case] + part.pairs.of_finding)
        first += part.count
    at = np.concatenate(places)
    slots, whole = np.zeros(len(readable) * findings, np.int32), np.repeat(readable, findings)
    absent = np.ones(len(slots), np.bool_)
    slots[at], absent[at] = np.arange(len(at)), False
    place = pa.array(slots, mask=absent)
    counts = Counts.concatenate([part.counts for part in scored])
    region, sub_pixel = np.zeros(len(slots), np.int32), np.zeros(len(slots), np.bool_)
    region[at] = counts.region
    sub_pixel[at] = np.concatenate([np.zeros(0, np.bool_), *(part.pairs.sub_pixel for part in scored)])
    frames = [np.zeros((0, 4)), *(part.pairs.frames for part in scored)]
    columns = {
        "argmax": pa.array(counts.argmax),
        "hit": pa.array(counts.hit),
        "degenerate": pa.array(counts.degenerate),
        "area": _fixed(counts.area),
        "overlap": _fixed(counts.overlap),
        "frame": _fixed(np.concatenate(frames)),
        "native": pa.array(
            [entry for part in scored for entry in part.native or [None] * len(part.pairs)],
            result_schema().field("native").type,
        ),
    }
    without = np.concatenate([np.zeros(0, np.bool_), *(np.full(len(part.pairs), part.maps is None) for part in scored)])
    no_map = absent.copy()
    no_map[at] = without
    held = [part for part in scored if len(part.pairs)]
    return {
        "region_area": pa.array(region, mask=~whole),
        "sub_pixel": pa.array(sub_pixel, mask=~whole),
        "region": _lists(pa.binary(), absent, [part.pairs.masks for part in held]),
        "saliency": _lists(pa.list_(pa.float32()), no_map, [part.maps for part in held if part.maps is not None]),
        **{name: column.take(place) for name, column in columns.items()},
    }


def _fixed(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def _lists(kind: Any, absent: NDArray[np.bool_], parts: Sequence[NDArray[Any]]) -> Any:
    """The entries of arrays [P, ...], P > 0, as values of bytes or lists, in order, null where `absent`. Nothing is
    copied: each array is a chunk of its own, and the last chunk has the rows behind it."""
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
        if kind == pa.binary():
            chunks.append(pa.Array.from_buffers(kind, stop - start, [*buffers, values]))
        else:
            inner = pa.Array.from_buffers(kind.value_type, part.size, [None, values])
            chunks.append(pa.Array.from_buffers(kind, stop - start, buffers, children=[inner]))
        start = stop
    return pa.chunked_array(chunks, kind)
