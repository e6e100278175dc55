"""Computes cells on a GPU: pixels are copied in, counts and logits out; maps are never copied at full size.

Four steps run at the same time: decoding into pinned memory (threads), copies to the device (a stream), engine and
sweep (the engine's stream), rows and part files (threads). This thread only enqueues work and collects results.
Rows, chunks and resuming are as in `cell.compute_cells`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....engines.backends.device import SLOTS, DeviceEngine, DeviceScores
from ....engines.backends.gpu import load_cupy
from ....engines.errors import EngineError
from ....metrics_gpu.nvrtc import KernelError
from ..cell import CellWork, chunk_of, distinct_images, merged, metadata_of, missing_chunks, reader_of
from ..drawn import CaseColumns
from ..measure import Measure
from ..queries import Queries
from ..scoring import Scored, rows_table
from .device_sweep import AskedRegions, Started, start
from .feeding import Batch, PinnedFeed

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case

_BATCHES_OF_ROWS = 4  # batches of a chunk that wait for the writer; more would only use memory
_MOST_WRITERS = 3  # threads of rows, and chunks that wait for them: Arrow and Parquet mostly run without Python's lock


def writers(threads: int) -> int:
    """Threads of rows where the evaluation has so many `threads`. On two cores one reached 0.86 of a device of 35,000
    images a second, and three, which then wait for the decoding ones, 0.79 (benchmarks/device_loop.py)."""
    return max(1, min(_MOST_WRITERS, threads // 2))


def compute_on_device(
    cells: Sequence[CellWork], engine: DeviceEngine, measure: Measure, advance: Callable[[int], None]
) -> list[int]:
    """As `cell.compute_cells`, with an engine that keeps its scores on the GPU; the same rows.

    A batch that does not fit the GPU is computed in parts. Raises XBenchError; finished chunks stay on disk.
    """
    first, missing = cells[0], missing_chunks(cells)
    batches = [batch for index in missing for batch in _batches(first, index, engine.options.max_batch)]
    advance(len(first.cases) - sum(len(cases) for _, _, cases in batches))
    cupy = load_cupy()
    queries = {cell.model: cell.queries for cell in cells}
    asked = {index: [_AskedCell(cell, queries[cell.model]) for cell in left] for index, left in missing.items()}
    with engine.device, _Writer(measure, writers(first.workers)) as writer:
        loop = _Loop(cupy, asked, engine, measure, writer, advance)
        feed = PinnedFeed(cupy, batches, reader_of(cells, engine), first.workers)
        try:
            for batch in feed:
                loop.add(batch)
            loop.drain()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            words = " ".join(str(error).split())
            raise EngineError(
                f"The GPU failed while {engine.bundle.name} ran ({words}); the same command goes on from what is "
                "finished, or use --engine onnxruntime-cpu."
            ) from error
        except KernelError as error:
            raise EngineError(str(error)) from error
        finally:
            feed.close()
            loop.close()
    return merged(cells, missing)


def _batches(cell: CellWork, index: int, most: int) -> list[tuple[int, bool, Sequence[Case]]]:
    """The batches of a chunk: (chunk, last of it, cases). `most`: cases that the bundle takes at once."""
    cases, size = chunk_of(cell, index), min(cell.batch, most)
    starts = range(0, len(cases), size)
    return [(index, at + size >= len(cases), cases[at : at + size]) for at in starts]


@dataclass(frozen=True, eq=False)
class _AskedCell:
    """A cell, and what its prompt set asks."""

    cell: CellWork
    queries: Queries


@dataclass
class _Piece:
    """A part of a batch on the GPU; `started`, for each cell, is empty if the batch has no readable image. `ends`: its
    last part."""

    batch: Batch
    started: list[Started]
    ends: bool


@dataclass
class _Loop:
    """Submits to the engine's slots in turn; at most one batch per slot is running. asked: the cells of each chunk."""

    cupy: Any
    asked: Mapping[int, Sequence[_AskedCell]]
    engine: DeviceEngine
    measure: Measure
    writer: _Writer
    advance: Callable[[int], None]
    under_way: deque[_Piece] = field(default_factory=deque)
    parts: list[list[Started]] = field(default_factory=list)
    slot: int = 0

    def __post_init__(self) -> None:
        self.copies = self.cupy.cuda.Stream(non_blocking=True)

    def add(self, batch: Batch) -> None:
        """Enqueues a batch, after collecting earlier submissions in its slots."""
        count, begun = len(batch.block.pixels), 0
        if not count:
            self.under_way.append(_Piece(batch, [], True))
        while begun < count:
            while len(self.under_way) >= SLOTS:
                self._collect()
            # The host makes the next submission while the GPU still computes the other slot.
            started = self._submit(batch, begun)
            begun += len(started[0].pairs.cases)
            self.under_way.append(_Piece(batch, started, begun == count))
            self.slot = (self.slot + 1) % SLOTS

    def drain(self) -> None:
        """Collects all running submissions, and waits until their rows are on disk."""
        while self.under_way:
            self._collect()
        self.writer.finish()

    def close(self) -> None:
        """Waits until the GPU no longer uses the memory that is released after this."""
        for stream in (self.copies, self.engine.stream):
            with suppress(self.cupy.cuda.runtime.CUDARuntimeError):
                stream.synchronize()

    def _submit(self, batch: Batch, begun: int) -> list[Started]:
        return self.engine.within_memory(lambda: self._try(batch, begun))

    def _try(self, batch: Batch, begun: int) -> list[Started]:
        """Copies and computes as many cases from `begun` on as the engine takes, each image once, for each cell."""
        engine, asked = self.engine, self.asked[batch.chunk]
        pixels = batch.block.pixels[begun : begun + engine.max_batch]
        # Free: `add` has collected the slot's last submission, which was its last reader.
        buffer = engine.input(self.slot, max(len(each.cell.prompts.features) for each in asked))
        pixels = pixels[: len(buffer)]
        pairs = batch.block.pairs.part(begun, begun + len(pixels))
        # Cases of one image, such as one case a reader, are one forward pass.
        firsts, image_of = distinct_images(pairs.cases)
        if len(firsts) < len(pixels):
            pixels = pixels[firsts]
        target = buffer[: len(pixels)]
        # A stream of its own, so that the copy runs while the engine works on the other slot; the engine waits for it.
        with self.copies:
            target.set(pixels, stream=self.copies)
            batch.copied = self.copies.record(self.cupy.cuda.Event(disable_timing=True))
        engine.stream.wait_event(batch.copied)
        started, regions = list[Started](), dict[tuple[str, ...], AskedRegions]()
        # Each prompt set is asked in the slot's buffers, when all that reads the one before is in the stream.
        for each, scores in zip(asked, self._answers(target, asked), strict=True):
            # An engine may take fewer images than it is given, where memory is short: the cases up to the first image
            # left.
            taken = int(np.append(image_of >= len(scores.logits), True).argmax())
            if each.queries.findings not in regions:
                some = pairs.part(0, taken).asked(each.queries.findings)
                with engine.stream:
                    masks = self.cupy.asarray(some.masks)
                regions[each.queries.findings] = AskedRegions(some, image_of[:taken], masks)
            started.append(start(engine, scores, regions[each.queries.findings], each.queries, self.measure))
        return started

    def _answers(self, pixels: Any, asked: Sequence[_AskedCell]) -> Iterator[DeviceScores]:
        """The scores of a batch for each cell, with one image pass."""
        if not asked[0].cell.one_of_several:
            yield self.engine.submit(pixels, asked[0].cell.prompts.features, self.slot)
            return
        features = self.engine.submit_pixels(pixels, self.slot)
        for each in asked:
            yield self.engine.submit_text(features, each.cell.prompts.features, self.slot)

    def _collect(self) -> None:
        piece = self.under_way.popleft()
        asked = self.asked[piece.batch.chunk]
        if piece.started:
            last = piece.started[-1]
            last.done.synchronize()

            def pixels(image: int) -> NDArray[np.uint8]:
                """Reads a model input again, uint8 [1, S, S]; its buffer may hold another case now."""
                return asked[0].cell.seen(last.pairs.cases[int(np.argmax(last.image_of == image))])[0][None]

            for each, started in zip(asked, piece.started, strict=True):
                self.engine.check_finite(started.logits, each.cell.prompts.features, pixels)
            self.parts.append(piece.started)
        if piece.ends:
            self.writer.add(piece.batch, asked, self.parts)
            self.parts = []
            self.advance(len(piece.batch.block.columns.cases))


class _Writer:
    """Threads that make rows and, of each complete chunk of a cell, its part file. Use as a context manager."""

    def __init__(self, measure: Measure, threads: int) -> None:
        self._measure, self._writers = measure, threads
        self._rows: dict[str, tuple[list[CaseColumns], list[Future[Scored]]]] = {}
        self._chunks: deque[Future[None]] = deque()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rows")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, batch: Batch, asked: Sequence[_AskedCell], parts: Sequence[Sequence[Started]]) -> None:
        """Accepts a computed batch: for each part of it what was started for each cell.

        Waits while too much is unwritten. Raises the error of an earlier one, if any.
        """
        for each, *started in zip(asked, *parts, strict=True):
            columns, scored = self._rows.setdefault(each.cell.model, ([], []))
            columns.append(batch.block.columns.asked(batch.block.pairs.findings, each.queries.findings))
            scored += [self._pool.submit(part.scored, each.queries, self._measure) for part in started]
            if len(scored) > _BATCHES_OF_ROWS:
                scored[-_BATCHES_OF_ROWS - 1].result()
            if batch.last:
                # Tasks begin in order, so those that this one waits for never wait for it.
                self._chunks.append(self._pool.submit(self._write, each, batch.chunk, columns, scored))
        if batch.last:
            self._rows = {}
        while len(self._chunks) > self._writers * len(asked):
            self._chunks.popleft().result()

    def finish(self) -> None:
        """Waits for all chunks. Raises their error, if any."""
        while self._chunks:
            self._chunks.popleft().result()

    def _write(
        self, asked: _AskedCell, chunk: int, columns: Sequence[CaseColumns], scored: Sequence[Future[Scored]]
    ) -> None:
        cell, parts = asked.cell, [part.result() for part in scored]
        table = rows_table(columns, parts, asked.queries.findings, cell.model, cell.dataset, metadata_of(cell))
        cell.files.write_part(chunk, table)
