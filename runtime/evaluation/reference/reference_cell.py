"""Computes one cell of a baseline, a folder of maps or a file of boxes: regions only, in chunks as for a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from ...data.images.decode import decode_ahead
from ...results.schema import result_schema
from ...results.storage import KEY_FIELD, CellFiles
from ..cell import batches
from ..decoded_case import DecodedCase
from ..drawn import CaseColumns
from ..measure import Measure
from ..scoring import Scored, rows_table
from .box_models import BoxModel
from .map_files import MapFolder
from .reference_sources import Reference, baseline_reference, maps_reference

if TYPE_CHECKING:
    import pyarrow as pa

    from ...results.loaded_dataset import LoadedDataset
    from ..planning import RowsOf


def find_reference(
    model: str | MapFolder | BoxModel, loaded: LoadedDataset, measure: Measure
) -> tuple[Reference | str, RowsOf]:
    """The rows of a baseline, a folder of maps or a file of boxes, or why it has none, and whose code makes them."""
    if isinstance(model, MapFolder):
        return maps_reference(model, loaded, measure), "maps"
    if isinstance(model, BoxModel):
        from .box_files import boxes_reference  # compiles its loops

        return boxes_reference(model, loaded, measure), "boxes"
    return baseline_reference(model, loaded, measure), "baseline"


def compute_reference(
    reference: Reference,
    loaded: LoadedDataset,
    files: CellFiles,
    *,
    chunk: int,
    workers: int,
    advance: Callable[[int], None],
) -> int:
    """Computes the chunks that are not on disk yet and finishes the cell; returns the number of computed cases.

    `advance` is called with the number of newly finished cases. Raises XBenchError; finished chunks stay on disk.
    """
    chunks = [loaded.cases[start : start + chunk] for start in range(0, len(loaded.cases), chunk)]
    remaining = [index for index in range(len(chunks)) if not files.has_part(index)]
    computed = sum(len(chunks[index]) for index in remaining)
    advance(len(loaded.cases) - computed)
    metadata = {KEY_FIELD: files.key}
    ahead = chain.from_iterable(chunks[index] for index in remaining)
    with closing(decode_ahead(reference.prepare, ahead, workers, window=2 * workers)) as prepared:
        for index in remaining:
            cases: list[DecodedCase] = []
            scored: list[Scored] = []
            for batch in batches(islice(prepared, len(chunks[index])), reference.batch):
                drawn_cases, scores = reference.score(batch)
                for case in drawn_cases:
                    case.masks = {}  # they are counted
                cases += drawn_cases
                scored += scores
                advance(len(batch))
            columns = [CaseColumns.of(cases, reference.findings)]
            table = rows_table(columns, scored, reference.findings, reference.name, loaded.name, metadata)
            files.write_part(
                index, _with_answers(table, cases, scored, words=reference.words) if reference.answers else table
            )
    files.merge(len(chunks), result_schema(metadata, answers=reference.answers, words=reference.words))
    return computed


def _with_answers(table: pa.Table, cases: Sequence[DecodedCase], scored: Sequence[Scored], *, words: bool) -> pa.Table:
    """The table with the column `answer`."""
    import pyarrow as pa

    schema = result_schema(table.schema.metadata, answers=True, words=words)
    answer_type = schema.field("answer").type
    readable = np.repeat([case.status == "ok" for case in cases], table.num_rows // max(len(cases), 1))
    row = pa.array(np.cumsum(readable, dtype=np.int32) - 1, mask=~readable)
    held = pa.chunked_array([part.answers for part in scored if part.answers is not None], answer_type)
    return table.append_column(schema.field("answer"), held.combine_chunks().take(row)).cast(schema)
