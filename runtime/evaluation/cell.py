"""Computes one cell (a model on a dataset) in chunks; a chunk is on disk before the next but one."""

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
_SWEEPERS = 2
_PIECE = 8  # cases that one task decodes, at most
_CHUNKS_IN_FLIGHT = 1  # that are computed and not yet on disk


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

    Four steps run at the same time: decoding in `cell.workers` threads, the engine in this thread, the sweep in up to
    two more, and the part files in one more. Batches never cross a chunk, so a resumed run has the same batches as an
    uninterrupted one. `advance` is called with the number of newly finished cases. Returns the number of cases computed
    now; the others were reused from an earlier process. Raises XBenchError; finished chunks stay on disk in every case.
    """
    remaining = [index for index in range(cell.chunks) if not cell.files.has_part(index)]
    queries = Queries.of(cell.prompts, cell.findings)
    cases = sum(len(_chunk(cell, index)) for index in remaining)
    advance(len(cell.cases) - cases)
    geometry = engine.bundle.manifest.geometry
    decode = partial(
        decode_case,
        source=cell.source,
        geometry=geometry,
        findings=cell.findings,
        contents=cell.contents,
        draw=cell.draw,
    )
    # A task of several cases: a task of one prepared image would cost more than the image.
    piece = max(1, min(_PIECE, cell.batch // (2 * cell.workers)))
    ahead = decode_ahead(
        lambda cases: [decode(case) for case in cases],
        batches(chain.from_iterable(_chunk(cell, index) for index in remaining), piece),
        cell.workers,
        window=-(-max(2 * cell.batch, 2 * cell.workers) // piece),
    )
    decoded = chain.from_iterable(ahead)
    metadata = {**cell.metadata, KEY_FIELD: cell.files.key}
    sweepers = min(_SWEEPERS, cell.workers)
    sweeper = ThreadPoolExecutor(sweepers, thread_name_prefix="sweep")
    writer, written = ThreadPoolExecutor(1, thread_name_prefix="rows"), deque[Future[None]]()
    try:
        for index in remaining:
            items: list[DecodedCase] = []
            scored: list[Future[Scored]] = []
            for batch in batches(islice(decoded, len(_chunk(cell, index))), cell.batch):
                items += batch
                readable = [item for item in batch if item.status == "ok"]
                if readable:
                    scored.append(_start(sweeper, readable, engine, cell, queries, measure))
                if len(scored) > sweepers + 1:
                    scored[-sweepers - 2].result()
                advance(len(batch))
            written.append(writer.submit(_write, cell, index, items, scored, metadata))
            while len(written) > _CHUNKS_IN_FLIGHT:
                written.popleft().result()
        for part in written:
            part.result()
    finally:
        ahead.close()
        writer.shutdown(wait=True)  # what is computed is not lost
        sweeper.shutdown(wait=True, cancel_futures=True)
    cell.files.merge(cell.chunks, result_schema(metadata))
    return cases


def _chunk(cell: CellWork, index: int) -> Sequence[Case]:
    return cell.cases[index * cell.chunk : (index + 1) * cell.chunk]


def batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter."""
    while batch := list(islice(items, size)):
        yield batch


def _write(
    cell: CellWork, index: int, items: list[DecodedCase], scored: list[Future[Scored]], metadata: dict[str, str]
) -> None:
    """Stores the rows of a chunk; little of it holds the interpreter, so the next chunk is computed meanwhile."""
    parts = [part.result() for part in scored]
    table = rows_table(items, parts, tuple(cell.findings), cell.model, cell.dataset, metadata)
    cell.files.write_part(index, table)


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
