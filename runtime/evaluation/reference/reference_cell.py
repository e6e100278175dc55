"""Computes one cell of a baseline or a folder of maps: regions only, in chunks as for a bundle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING

from ...images.decode import decode_ahead
from ...results.schema import result_schema
from ...results.storage import KEY_FIELD, CellFiles
from ..cell import batches
from ..decoding import DecodedCase
from ..scoring import Scored, rows_table
from .references import Reference

if TYPE_CHECKING:
    from ...results.loaded_dataset import LoadedDataset

__all__ = ["compute_reference"]


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
                found, said = reference.score(batch)
                cases += found
                scored += said
                advance(len(batch))
            table = rows_table(cases, scored, reference.findings, reference.name, loaded.name, metadata)
            files.write_part(index, table)
    files.merge(len(chunks), result_schema(metadata))
    return computed
