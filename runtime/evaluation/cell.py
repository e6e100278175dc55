"""Computes a cell (a model on a dataset), or the cells of several prompt sets in one pass over the images, in chunks.

At most two computed chunks are not on disk yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    from ..data.images.tiles import Tiling
    from ..data.images.views import View

T = TypeVar("T")
_SWEEPERS = 2  # threads of the sweep, whose kernel runs without Python's lock
_CHUNKS_IN_FLIGHT = 2  # that are computed and not yet on disk: one is being written while the next is swept


@dataclass(frozen=True)
class CellWork:
    """The inputs and options of one cell.

    `findings`: class of the dataset -> finding of the prompt set; `contents`: those in which `source` enters what it
    reads; `sizes`, `draw`: see `CaseReader`. `phrases`: how cases are asked their own phrases; then
    the features of `prompts`, one per finding, are not used. `one_of_several`: whether the prompt set is one of
    several: the engine then encodes the images and is asked, also where no other set is left to compute. `view`: what
    is changed in every image; None: nothing. `tiles`: how images are divided, which `source` does; None: not at all.
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
    one_of_several: bool = False
    view: View | None = None
    tiles: Tiling | None = None

    @property
    def queries(self) -> Queries:
        """The queries of the findings, whose maps are put back on the unchanged image."""
        return Queries.of(self.prompts, self.findings, mirrored=self.view is not None and self.view.mirrored)

    @property
    def seen(self) -> PixelSource:
        """The source of what the model sees: `source`, with the change of the view."""
        return self.source if self.view is None else self.view.source(self.source)

    @property
    def chunks(self) -> int:
        return -(-len(self.cases) // self.chunk)


def compute_cell(cell: CellWork, engine: Engine, measure: Measure, advance: Callable[[int], None]) -> int:
    """As `compute_cells` of this cell alone."""
    return compute_cells([cell], engine, measure, advance)[0]


def compute_cells(
    cells: Sequence[CellWork], engine: Engine, measure: Measure, advance: Callable[[int], None]
) -> list[int]:
    """Computes the chunks that are not on disk yet, and merges all of them into the finished cells.

    The cells differ in model, prompts, findings and files alone: an image is read once for all of them, and so are its
    regions drawn. Four steps run at the same time: decoding in `cell.workers` threads, the engine in this thread, the
    sweep in up to two more, and the part files in one more. Batches never cross a chunk, so a resumed run has the same
    batches as an uninterrupted one. `advance` is called with the number of newly finished cases. Returns the number of
    cases computed now for each cell; the others were reused from an earlier process. Raises XBenchError; finished
    chunks stay on disk in every case.
    """
    first, missing = cells[0], missing_chunks(cells)
    advance(len(first.cases) - sum(len(chunk_of(first, index)) for index in missing))
    queries = {cell.model: cell.queries for cell in cells}
    reader = reader_of(cells, engine)
    ahead = read_ahead(reader, (chunk_of(first, index) for index in missing), first.batch, first.workers)
    sweepers = min(_SWEEPERS, first.workers)
    sweeper = ThreadPoolExecutor(sweepers, thread_name_prefix="sweep")
    # One thread: Arrow and Parquet mostly run without Python's lock, and chunks are written in order.
    writer, written = ThreadPoolExecutor(1, thread_name_prefix="rows"), deque[Future[None]]()
    try:
        for index, left in missing.items():
            chunks = [_CellChunk(cell, queries[cell.model]) for cell in left]
            submitted: list[Future[Scored]] = []
            waiting = len(chunk_of(first, index))
            while waiting:
                block = next(ahead)
                waiting -= len(block.columns.cases)
                asked = [chunk.begin(block, reader.findings) for chunk in chunks]
                _ask(block, engine, asked, advance)
                for chunk, part in zip(chunks, asked, strict=True):
                    if part.logits:
                        submitted.append(sweeper.submit(_score, part, measure))
                        chunk.scored.append(submitted[-1])
                    # At most one block more than sweepers waits: maps of all blocks would fill memory if the engine is
                    # faster than the sweep.
                    if len(submitted) > sweepers + 1:
                        submitted[-sweepers - 2].result()
            written.extend(writer.submit(_write, chunk, index) for chunk in chunks)
            while len(written) > _CHUNKS_IN_FLIGHT * len(chunks):
                written.popleft().result()
        for part_file in written:
            part_file.result()
    finally:
        ahead.close()
        writer.shutdown(wait=True)  # what is computed is not lost
        sweeper.shutdown(wait=True, cancel_futures=True)
    return merged(cells, missing)


def missing_chunks(cells: Sequence[CellWork]) -> dict[int, list[CellWork]]:
    """The chunks that are not on disk yet, each with its cells."""
    missing = {index: [cell for cell in cells if not cell.files.has_part(index)] for index in range(cells[0].chunks)}
    return {index: left for index, left in missing.items() if left}


def reader_of(cells: Sequence[CellWork], engine: Engine) -> CaseReader:
    """Reads cases with the regions of all findings that a cell asks for."""
    first, findings = cells[0], tuple(dict.fromkeys(name for cell in cells for name in cell.findings))
    geometry, planes = engine.bundle.manifest.geometry, 1 if first.tiles is None else 1 + len(first.tiles)
    return CaseReader(first.seen, geometry, findings, first.contents, first.draw, first.sizes, first.view, planes)


def merged(cells: Sequence[CellWork], missing: Mapping[int, Sequence[CellWork]]) -> list[int]:
    """Merges the chunks, which are on disk; returns how many cases of each cell were missing before."""
    for cell in cells:
        cell.files.merge(cell.chunks, result_schema(metadata_of(cell)))
    return [sum(len(chunk_of(cell, index)) for index, left in missing.items() if cell in left) for cell in cells]


@dataclass(frozen=True, eq=False)
class _AskedBlock:
    """The pairs of a block whose regions one prompt set asks for, and what the engine says of the batches so far:
    logits [B, Q], and the maps [P, h, w] of their pairs."""

    cell: CellWork
    queries: Queries
    pairs: DrawnPairs
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    maps: list[NDArray[np.float32]] = field(default_factory=list)

    def take(self, scores: Scores, start: int, stop: int) -> None:
        """Enters the scores of the images from `start` to before `stop`."""
        first, last = np.searchsorted(self.pairs.of_case, (start, stop)).tolist()
        of_case, of_finding = self.pairs.of_case[first:last] - start, self.pairs.of_finding[first:last]
        self.logits.append(scores.logits)
        self.maps.append(self.queries.maps(scores.saliency, of_case, of_finding))


@dataclass(frozen=True, eq=False)
class _CellChunk:
    """A chunk of a cell while it is computed."""

    cell: CellWork
    queries: Queries
    columns: list[CaseColumns] = field(default_factory=list)
    scored: list[Future[Scored]] = field(default_factory=list)

    def begin(self, block: Block, findings: Sequence[str]) -> _AskedBlock:
        """What is asked of a block that was read with the regions of all `findings`."""
        self.columns.append(block.columns.asked(findings, self.queries.findings))
        return _AskedBlock(self.cell, self.queries, block.pairs.asked(self.queries.findings))


def chunk_of(cell: CellWork, index: int) -> Sequence[Case]:
    """The cases of a chunk."""
    return cell.cases[index * cell.chunk : (index + 1) * cell.chunk]


def batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter."""
    while batch := list(islice(items, size)):
        yield batch


def metadata_of(cell: CellWork) -> dict[str, str]:
    """The metadata of a cell's files."""
    return {**cell.metadata, KEY_FIELD: cell.files.key}


def _write(chunk: _CellChunk, index: int) -> None:
    """Stores the rows of a chunk; little of it holds the interpreter, so the next chunk is computed meanwhile."""
    cell, parts = chunk.cell, [part.result() for part in chunk.scored]
    table = rows_table(chunk.columns, parts, tuple(cell.findings), cell.model, cell.dataset, metadata_of(cell))
    cell.files.write_part(index, table)


def _ask(block: Block, engine: Engine, asked: Sequence[_AskedBlock], advance: Callable[[int], None]) -> None:
    """Enters what the engine says of the batches of a block."""
    batch, cases = asked[0].cell.batch, block.pairs.cases
    ends = [*range(0, len(block.columns.cases), batch), len(block.columns.cases)]
    images = np.concatenate([[0], np.cumsum(block.columns.readable)])[ends]
    for (start, stop), (begin, end) in zip(pairwise(images.tolist()), pairwise(ends), strict=True):
        if stop > start:
            said = _answers(engine, block.pixels[start:stop], cases[start:stop], [part.cell for part in asked])
            for part, scores in zip(asked, said, strict=True):
                part.take(scores, start, stop)
        advance(end - begin)


def _answers(
    engine: Engine, pixels: NDArray[np.uint8], cases: Sequence[Case], cells: Sequence[CellWork]
) -> Iterator[Scores]:
    """What the engine says of a batch for each cell, with one forward pass for each image and each of its tiles."""
    first, size = cells[0], pixels.shape[-1]

    def joined(scores: Iterable[Scores]) -> Scores:
        return next(iter(scores)) if first.tiles is None else first.tiles.joined(list(scores), size)

    if (phrases := first.phrases) is not None:
        yield joined(phrases.run(plane, cases) for plane in _planes(pixels))
        return
    firsts, image_of = distinct_images(cases)
    once = len(firsts) == len(cases)
    pixels = pixels if once else pixels[firsts]
    planes = _planes(pixels)
    features = [engine.encode(plane) for plane in planes] if first.one_of_several else None
    for cell in cells:
        text = cell.prompts.features
        if features is None:
            scores = joined(engine.run(plane, text) for plane in planes)
        else:
            scores = joined(engine.ask(of_plane, text) for of_plane in features)
        yield scores if once else Scores(scores.logits[image_of], scores.saliency[image_of])


def _planes(pixels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """The model inputs [B, 1, S, S] of images, and of each of their tiles."""
    return [pixels[:, plane : plane + 1] for plane in range(pixels.shape[1])]


def distinct_images(cases: Sequence[Case]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The places of the first case of each image, in order, and for each case its image among these: cases of one
    image, such as those of three readers, are one forward pass."""
    image_numbers: dict[Path, int] = {}
    image_of = np.array([image_numbers.setdefault(case.image, len(image_numbers)) for case in cases], np.intp)
    return np.unique(image_of, return_index=True)[1], image_of


def _score(part: _AskedBlock, measure: Measure) -> Scored:
    """Sweeps the maps of the pairs of a block."""
    swept = np.concatenate(part.maps)
    counts, native = measure.count(part.pairs, swept)
    return Scored(part.pairs, counts, part.queries.logits(np.concatenate(part.logits)), swept, native)
