"""Reads the predicted boxes of a finished cell, with the true ones: neither the dataset nor the file is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.detection.boxes import Answers, BoxLists, Int
from ...metrics_gpu.detection.unions import UnionCounts
from .load_rows import CellRows, StoredRun
from .numbers.word_columns import StoredWords, stored_words
from .schema import read_parts, reading

if TYPE_CHECKING:
    import pyarrow as pa

STATES: Final = ("answered", "silent", "no_box_in_text", "unparsable", "missing", "refused")
"""By the number in the column `answer.state`."""

WITHOUT_BOX: Final = ("silent", "no_box_in_text", "refused")
"""The states that count as silence."""

_COUNTERS: Final = ("illegal", "outside", "clipped", "duplicates", "truncated", "over_limit", "out_of_view")


@dataclass(frozen=True, eq=False)
class StoredBoxes:
    """The answers of a cell.

    cell: its rows. answers: of the P pairs whose region is a union of boxes, and of the negatives that were asked.
    places: intp [P], of these pairs among those of the rows. native: counts of the unions on the image's own grid, of
    all pairs of the rows; state: int8, of all pairs of the rows; given: their numbers of boxes; counters: of them too.
    negative_state, negative_sizes: int8 [N], int64 [N, 2], of the negatives that were asked. not_asked: absent classes
    without a line. left_out: pairs with a region that are no pairs of the rows, as they have no answer that counts.
    words: of a file of words.
    """

    cell: CellRows
    answers: Answers
    places: NDArray[np.intp]
    native: UnionCounts
    state: NDArray[np.int8]
    given: Int
    counters: Mapping[str, Int]
    negative_state: NDArray[np.int8]
    negative_sizes: Int
    not_asked: int
    left_out: int = 0
    words: StoredWords | None = None

    @cached_property
    def truth(self) -> str:
        """A digest of the true boxes and their pairs, equal in any run."""
        sha = hashlib.sha256(np.ascontiguousarray(self.answers.truth.boxes).tobytes())
        sha.update(self.answers.truth.offsets.tobytes() + self.answers.class_of.tobytes())
        if self.answers.crowd is not None:
            sha.update(self.answers.crowd.tobytes())
        return sha.hexdigest()

    def of_state(self, *names: str) -> int:
        """The number of pairs with one of these `STATES`."""
        return int(np.isin(self.state, [STATES.index(name) for name in names]).sum())


def load_boxes(run: StoredRun, cell: CellRows) -> StoredBoxes:
    """The boxes of a cell of predicted boxes. Raises RunError when its file cannot be read."""
    import pyarrow.parquet as pq

    path = run.path / cell.entry["file"]
    with reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        return _stored(read_parts(file, ["status", "label", "answer"], len(cell.findings)), cell)


def _stored(tables: Iterable[pa.Table], cell: CellRows) -> StoredBoxes:
    import pyarrow as pa

    each, first, absent = len(cell.findings), 0, 0
    answers, rows, labels = [], list[NDArray[np.intp]](), list[NDArray[np.int8]]()
    for table in tables:  # most rows have no answer
        label = table["label"].fill_null(-1).to_numpy()
        own = np.flatnonzero(table["answer"].is_valid())
        answers += table["answer"].drop_null().chunks
        rows.append(own + first)
        labels.append(label[own])
        absent += int(((label == 0) & (table["status"].to_numpy() == "ok")).sum())
        first += table.num_rows
    told: Any = pa.concat_arrays(answers)
    held, known = np.concatenate(rows), np.concatenate(labels)
    positive = told.field("region").is_valid().to_numpy(zero_copy_only=False)
    pairs, asked = np.flatnonzero(positive), np.flatnonzero(~positive & (known == 0))
    boxed = told.field("truth").is_valid().to_numpy(zero_copy_only=False)[pairs]
    given, truth = _lists(told.field("boxes"), told.field("scores")), _lists(told.field("truth"))
    kept = pairs[boxed]
    true = truth.take(kept)
    counters = {name: _numbers(told, name) for name in _COUNTERS}
    sizes = np.column_stack([_numbers(told, "width"), _numbers(told, "height")])
    state = _numbers(told, "state").astype(np.int8)
    tried = (given.lengths > 0) | (counters["illegal"] > 0) | (counters["outside"] > 0)
    return StoredBoxes(
        cell=cell,
        answers=Answers(
            given=given.take(kept),
            truth=true,
            class_of=held[kept] % each,
            case_of=held[kept] // each,
            sizes=sizes[kept],
            names=cell.findings,
            cases=cell.cases,
            crowd=_crowd(told, kept, true),
            negatives=given.take(asked),
            negative_class=held[asked] % each,
            negative_case=held[asked] // each,
            tried=tried[asked],
        ),
        places=np.flatnonzero(boxed),
        native=UnionCounts(*(_numbers(told, name)[pairs] for name in ("area", "overlap", "region"))),
        state=state[pairs],
        given=given.lengths[pairs],
        counters={name: values[pairs] for name, values in counters.items()},
        negative_state=state[asked],
        negative_sizes=sizes[asked],
        not_asked=absent - len(asked),
        left_out=len(held) - len(pairs) - len(asked),
        words=stored_words(told.field("words"), pairs, asked) if told.type.get_field_index("words") >= 0 else None,
    )


def _numbers(told: Any, name: str) -> Int:
    import pyarrow as pa

    return np.asarray(told.field(name).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def _crowd(told: Any, pairs: NDArray[np.intp], truth: BoxLists) -> NDArray[np.bool_] | None:
    """Which of the true boxes of these pairs are marked; None if none is, as in results from before the mark."""
    if told.type.get_field_index("crowd") < 0:
        return None
    column = told.field("crowd").take(pairs)
    marked = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    if not len(marked):
        return None
    found = np.zeros(len(truth.boxes), np.bool_)
    found[np.isin(truth.owner, marked)] = column.drop_null().flatten().to_numpy(zero_copy_only=False)
    return found


def _lists(column: Any, scores: Any = None) -> BoxLists:
    lengths = np.asarray(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64) // 4
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = np.asarray(column.drop_null().flatten().to_numpy(zero_copy_only=False), np.float64)
    known = None
    if scores is not None and scores.null_count < len(scores):
        known = np.asarray(scores.drop_null().flatten().to_numpy(zero_copy_only=False), np.float64)
    return BoxLists(flat.reshape(-1, 4), offsets, known)
