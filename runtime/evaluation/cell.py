"""Computes one cell (a model on a dataset) in chunks; a finished chunk is on disk before the next one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...engines.base import Engine
from ...engines.prompts.prompt_set import PromptSet
from ..datasets.pixels import PixelSource
from ..datasets.region_grid import DrawRegions, region_masks
from ..images.contents import Contents
from ..images.decode import decode_ahead
from ..results.schema import result_schema
from ..results.storage import KEY_FIELD, CellFiles
from .decoding import DecodedCase, decode_case
from .measure import Measure
from .phrases import PhraseQueries
from .scoring import DrawnPairs, Queries, Scored, rows_table

if TYPE_CHECKING:
    from ..datasets.base import Case

__all__ = ["CellWork", "batches", "compute_cell"]

T = TypeVar("T")
_SWEEPS_IN_FLIGHT = 2


@dataclass(frozen=True)
class CellWork:
    """The inputs and options of one cell.

    `findings`: class of the dataset -> finding of the prompt set; `contents`: those in which `source` enters what it
    reads; `draw`: as `region_masks`. `phrases`: how cases are asked their own phrases; then
    the features of `prompts`, one per finding, are not used.
    """

    model: str
    dataset: str
    prompts: PromptSet
    findings: Mapping[str, str]
    cases: Sequence[Case]
    files: CellFiles
    source: PixelSource
    batch: int
    chunk: int
    workers: int
    contents: Contents = field(default_factory=Contents)
    draw: DrawRegions = region_masks
    metadata: dict[str, str] = field(default_factory=dict)
    phrases: PhraseQueries | None = None

    @property
    def chunks(self) -> int:
        return -(-len(self.cases) // self.chunk)


def compute_cell(cell: CellWork, engine: Engine, measure: Measure, advance: Callable[[int], None]) -> int:
    """Computes the chunks that are not on disk yet, and merges all of them into the finished cell.

    Three steps run at the same time: decoding in `cell.workers` threads, the engine in this thread, the sweep in one
    more. Batches never cross a chunk, so a resumed run has the same batches as an uninterrupted one. `advance` is
    called with the number of newly finished cases. Returns the number of cases computed now; the others were reused
    from an earlier process. Raises XBenchError; finished chunks stay on disk in every case.
    """
    remaining = [index for index in range(cell.chunks) if not cell.files.has_part(index)]
    queries = Queries.of(cell.prompts, cell.findings)
    cases = sum(len(_chunk(cell, index)) for index in remaining)
    advance(len(cell.cases) - cases)
    geometry = engine.bundle.manifest.geometry
    decoded = decode_ahead(
        partial(
            decode_case,
            source=cell.source,
            geometry=geometry,
            findings=cell.findings,
            contents=cell.contents,
            draw=cell.draw,
        ),
        chain.from_iterable(_chunk(cell, index) for index in remaining),
        cell.workers,
        window=max(2 * cell.batch, 2 * cell.workers),
    )
    metadata = {**cell.metadata, KEY_FIELD: cell.files.key}
    sweeper = ThreadPoolExecutor(1, thread_name_prefix="sweep")
    try:
        for index in remaining:
            items: list[DecodedCase] = []
            scored: list[Scored] = []
            pending: deque[Future[Scored]] = deque()
            for batch in batches(islice(decoded, len(_chunk(cell, index))), cell.batch):
                items += batch
                readable = [item for item in batch if item.status == "ok"]
                if readable:
                    pending.append(_start(sweeper, readable, engine, cell, queries, measure))
                if len(pending) > _SWEEPS_IN_FLIGHT:
                    scored.append(pending.popleft().result())
                advance(len(batch))
            scored += [future.result() for future in pending]
            table = rows_table(items, scored, queries.findings, cell.model, cell.dataset, metadata)
            cell.files.write_part(index, table)
    finally:
        sweeper.shutdown(wait=True, cancel_futures=True)
        decoded.close()
    cell.files.merge(cell.chunks, result_schema(metadata))
    return cases


def _chunk(cell: CellWork, index: int) -> Sequence[Case]:
    return cell.cases[index * cell.chunk : (index + 1) * cell.chunk]


def batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter."""
    while batch := list(islice(items, size)):
        yield batch


def _start(
    sweeper: ThreadPoolExecutor,
    readable: list[DecodedCase],
    engine: Engine,
    cell: CellWork,
    queries: Queries,
    measure: Measure,
) -> Future[Scored]:
    """Runs the engine on cases and submits the remaining work to the sweeper."""
    pixels = np.stack([item.pixels for item in readable if item.pixels is not None])[:, None]
    for item in readable:
        item.pixels = None
    if cell.phrases is None:
        scores = engine.run(pixels, cell.prompts.features)
    else:
        scores = cell.phrases.run(pixels, [item.case for item in readable])

    def finish() -> Scored:
        pairs = DrawnPairs.of(readable, queries.findings)
        maps = queries.maps(scores.saliency, pairs)
        counts, native = measure.count(readable, pairs, maps)
        return Scored(len(readable), pairs, counts, queries.logits(scores.logits), maps, native)

    return sweeper.submit(finish)
