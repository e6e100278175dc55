"""Computes one cell (a model on a dataset) in chunks; at most two computed chunks are not on disk yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...engines.base import Engine, Scores
from ...engines.prompts.prompt_set import PromptSet
from ..data.datasets.pixels import PixelSource
from ..data.datasets.region_grid import DrawRegions, draw_regions
from ..data.images.contents import Contents
from ..results.schema import result_schema
from ..results.storage import KEY_FIELD, CellFiles
from .decoded_blocks import Block, CaseReader, read_ahead
from .drawn import CaseColumns, DrawnPairs
from .measure import Measure
from .phrase_queries import PhraseQueries
from .queries import Queries
from .scoring import Scored, rows_table

if TYPE_CHECKING:
    from pathlib import Path

    from ..data.datasets.dataset import Case

T = TypeVar("T")
_SWEEPERS = 2  # threads of the sweep, whose kernel runs without Python's lock
_CHUNKS_IN_FLIGHT = 2  # that are computed and not yet on disk: one is being written while the next is swept


@dataclass(frozen=True)
class CellWork:
    """The inputs and options of one cell.

    `findings`: class of the dataset -> finding of the prompt set; `contents`: those in which `source` enters what it
    reads; `sizes`, `draw`: see `CaseReader`. `phrases`: how cases are asked their own phrases; then
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
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    draw: DrawRegions = draw_regions
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
    reader = CaseReader(cell.source, geometry, queries.findings, cell.contents, cell.draw, cell.sizes)
    ahead = read_ahead(reader, (_chunk(cell, index) for index in remaining), cell.batch, cell.workers)
    metadata = {**cell.metadata, KEY_FIELD: cell.files.key}
    sweepers = min(_SWEEPERS, cell.workers)
    sweeper = ThreadPoolExecutor(sweepers, thread_name_prefix="sweep")
    # One thread: Arrow and Parquet mostly run without Python's lock, and chunks are written in order.
    writer, written = ThreadPoolExecutor(1, thread_name_prefix="rows"), deque[Future[None]]()
    try:
        for index in remaining:
            columns: list[CaseColumns] = []
            scored: list[Future[Scored]] = []
            left = len(_chunk(cell, index))
            while left:
                block = next(ahead)
                left -= len(block.columns.cases)
                columns.append(block.columns)
                logits, maps = _ask(block, engine, cell, queries, advance)
                if logits:
                    scored.append(sweeper.submit(_score, block.pairs, logits, maps, queries, measure))
                # At most one block more than sweepers waits: maps of all blocks would fill memory if the engine is
                # faster than the sweep.
                if len(scored) > sweepers + 1:
                    scored[-sweepers - 2].result()
            written.append(writer.submit(_write, cell, index, columns, scored, metadata))
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
    cell: CellWork, index: int, columns: list[CaseColumns], scored: list[Future[Scored]], metadata: dict[str, str]
) -> None:
    """Stores the rows of a chunk; little of it holds the interpreter, so the next chunk is computed meanwhile."""
    parts = [part.result() for part in scored]
    table = rows_table(columns, parts, tuple(cell.findings), cell.model, cell.dataset, metadata)
    cell.files.write_part(index, table)


def _ask(
    block: Block, engine: Engine, cell: CellWork, queries: Queries, advance: Callable[[int], None]
) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    """What the engine says of the batches of a block: logits [B, Q], and the maps [P, h, w] of their pairs."""
    logits, maps, pairs = [], [], block.pairs
    ends = [*range(0, len(block.columns.cases), cell.batch), len(block.columns.cases)]
    images = np.concatenate([[0], np.cumsum(block.columns.readable)])[ends]
    bounds = pairwise(np.searchsorted(pairs.of_case, images).tolist())
    for (start, stop), (first, last), (begin, end) in zip(
        pairwise(images.tolist()), bounds, pairwise(ends), strict=True
    ):
        if stop > start:
            pixels = block.pixels[start:stop]
            if cell.phrases is None:
                scores = _once_an_image(engine, pixels, pairs.cases[start:stop], cell.prompts)
            else:
                scores = cell.phrases.run(pixels, pairs.cases[start:stop])
            logits.append(scores.logits)
            maps.append(queries.maps(scores.saliency, pairs.of_case[first:last] - start, pairs.of_finding[first:last]))
        advance(end - begin)
    return logits, maps


def _once_an_image(engine: Engine, pixels: NDArray[np.uint8], cases: Sequence[Case], prompts: PromptSet) -> Scores:
    """What the engine says of a batch, with one forward pass for each image."""
    firsts, image_of = distinct_images(cases)
    if len(firsts) == len(cases):
        return engine.run(pixels, prompts.features)
    scores = engine.run(pixels[firsts], prompts.features)
    return Scores(scores.logits[image_of], scores.saliency[image_of])


def distinct_images(cases: Sequence[Case]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the first case of each image, in order, and for each case its image among these: cases of one
    image, such as those of three readers, are one forward pass."""
    image_numbers: dict[Path, int] = {}
    image_of = np.array([image_numbers.setdefault(case.image, len(image_numbers)) for case in cases], np.intp)
    return np.unique(image_of, return_index=True)[1], image_of


def _score(
    pairs: DrawnPairs,
    logits: list[NDArray[np.float32]],
    maps: list[NDArray[np.float32]],
    queries: Queries,
    measure: Measure,
) -> Scored:
    """Sweeps the maps of the pairs of a block."""
    swept = np.concatenate(maps)
    counts, native = measure.count(pairs, swept)
    return Scored(pairs, counts, queries.logits(np.concatenate(logits)), swept, native)
