"""One cell of a baseline: regions only, chunk by chunk as for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

from .baselines import baseline_rows, draw_case
from .cell import batches
from .decoding import decode_ahead
from .schema import result_schema
from .scoring import Row, Sweep, rows_table
from .storage import KEY_FIELD, CellFiles

if TYPE_CHECKING:
    from .pairing import LoadedDataset

__all__ = ["compute_baseline"]

_BATCH = 32  # bounds the memory of the maps; the rows do not depend on it


def compute_baseline(
    name: str,
    loaded: LoadedDataset,
    findings: Sequence[str],
    files: CellFiles,
    sweep: Sweep,
    *,
    chunk: int,
    workers: int,
    advance: Callable[[int], None],
) -> int:
    """Computes the chunks that are not on disk yet and leaves the cell finished; returns the cases computed.

    `advance` is told the number of cases that became done. Raises XBenchError; finished chunks stay on disk.
    """
    chunks = [loaded.cases[start : start + chunk] for start in range(0, len(loaded.cases), chunk)]
    remaining = [index for index in range(len(chunks)) if not files.has_part(index)]
    computed = sum(len(chunks[index]) for index in remaining)
    advance(len(loaded.cases) - computed)
    metadata = {KEY_FIELD: files.key}
    cases = (case for index in remaining for case in chunks[index])
    with closing(decode_ahead(lambda case: draw_case(case, findings), cases, workers, window=4 * workers)) as drawn:
        for index in remaining:
            rows: list[Row] = []
            for batch in batches(islice(drawn, len(chunks[index])), _BATCH):
                rows += baseline_rows(name, batch, findings, sweep)
                advance(len(batch))
            files.write_part(index, rows_table(rows, name, loaded.name, metadata))
    files.merge(len(chunks), result_schema(metadata))
    return computed
