"""Computes one cell on a GPU: pixels are copied in, counts and logits out; maps are never copied at full size.

Four steps run at the same time: decoding into pinned memory (threads), copies to the device (a stream), engine and
sweep (the engine's stream), rows and part files (threads). This thread only enqueues work and collects results.
Rows, chunks and resuming are as in `cell.compute_cell`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....engines.backends.device import SLOTS, DeviceEngine
from ....engines.backends.gpu import load_cupy
from ....engines.errors import EngineError
from ....metrics_gpu.nvrtc import KernelError
from ...results.schema import result_schema
from ...results.storage import KEY_FIELD
from ..cell import CellWork, distinct_images
from ..drawn import CaseColumns
from ..measure import Measure
from ..queries import Queries
from ..scoring import Scored, rows_table
from .device_sweep import Started, start
from .feeding import Batch, PinnedFeed

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case

_BATCHES_OF_ROWS = 4  # batches of a chunk that wait for the writer; more would only use memory
_MOST_WRITERS = 3  # threads of rows, and chunks that wait for them: Arrow and Parquet mostly run without Python's lock


def writers(threads: int) -> int:
    """Threads of rows where the evaluation has so many `threads`. On two cores one reached 0.86 of a device of 35,000
    images a second, and three, which then wait for the decoding ones, 0.79 (benchmarks/device_loop.py)."""
    return max(1, min(_MOST_WRITERS, threads // 2))


def compute_on_device(cell: CellWork, engine: DeviceEngine, measure: Measure, advance: Callable[[int], None]) -> int:
    """As `cell.compute_cell`, with an engine that keeps its scores on the GPU; the same rows.

    A batch that does not fit the GPU is computed in parts. Raises XBenchError; finished chunks stay on disk.
    """
    remaining = [index for index in range(cell.chunks) if not cell.files.has_part(index)]
    batches = [batch for index in remaining for batch in _batches(cell, index, engine.options.max_batch)]
    computed = sum(len(cases) for _, _, cases in batches)
    advance(len(cell.cases) - computed)
    cupy = load_cupy()
    metadata = {**cell.metadata, KEY_FIELD: cell.files.key}
    queries = cell.queries
    with engine.device, _Writer(cell, queries, measure, metadata) as writer:
        loop = _Loop(cupy, cell, engine, queries, measure, writer, advance)
        feed = _feed(cupy, cell, engine, batches)
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
    cell.files.merge(cell.chunks, result_schema(metadata))
    return computed


def _batches(cell: CellWork, index: int, most: int) -> list[tuple[int, bool, Sequence[Case]]]:
    """The batches of a chunk: (chunk, last of it, cases). `most`: cases that the bundle takes at once."""
    cases, size = cell.cases[index * cell.chunk : (index + 1) * cell.chunk], min(cell.batch, most)
    starts = range(0, len(cases), size)
    return [(index, at + size >= len(cases), cases[at : at + size]) for at in starts]


def _feed(
    cupy: Any, cell: CellWork, engine: DeviceEngine, batches: Sequence[tuple[int, bool, Sequence[Case]]]
) -> PinnedFeed:
    reader = cell.reader(engine.bundle.manifest.geometry, tuple(cell.findings))
    return PinnedFeed(cupy, batches, reader, cell.workers)


@dataclass
class _Piece:
    """A part of a batch on the GPU; `started` is None if the batch has no readable image. `ends`: its last part."""

    batch: Batch
    started: Started | None
    ends: bool


@dataclass
class _Loop:
    """Submits to the engine's slots in turn; at most one submission per slot is running."""

    cupy: Any
    cell: CellWork
    engine: DeviceEngine
    queries: Queries
    measure: Measure
    writer: _Writer
    advance: Callable[[int], None]
    under_way: deque[_Piece] = field(default_factory=deque)
    parts: list[Started] = field(default_factory=list)
    slot: int = 0

    def __post_init__(self) -> None:
        self.copies = self.cupy.cuda.Stream(non_blocking=True)

    def add(self, batch: Batch) -> None:
        """Enqueues a batch, after collecting earlier submissions in its slots."""
        count, begun = len(batch.block.pixels), 0
        if not count:
            self.under_way.append(_Piece(batch, None, True))
        while begun < count:
            while len(self.under_way) >= SLOTS:
                self._collect()
            # The host makes the next submission while the GPU still computes the other slot.
            started = self._submit(batch, begun)
            begun += len(started.pairs.cases)
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

    def _submit(self, batch: Batch, begun: int) -> Started:
        return self.engine.within_memory(lambda: self._try(batch, begun))

    def _try(self, batch: Batch, begun: int) -> Started:
        """Copies and computes as many cases from `begun` on as the engine takes, each image once."""
        engine, features = self.engine, self.cell.prompts.features
        pixels = batch.block.pixels[begun : begun + engine.max_batch]
        # Free: `add` has collected the slot's last submission, which was its last reader.
        buffer = engine.input(self.slot, len(features))
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
        scores = engine.submit(target, features, self.slot)
        # An engine may take fewer images than it is given, where memory is short: the cases up to the first image left.
        taken = int(np.append(image_of >= len(scores.logits), True).argmax())
        return start(engine, scores, pairs.part(0, taken), image_of[:taken], self.queries, self.measure)

    def _collect(self) -> None:
        piece = self.under_way.popleft()
        if piece.started is not None:
            piece.started.done.synchronize()
            cases, image_of = piece.started.pairs.cases, piece.started.image_of
            self.engine.check_finite(
                piece.started.logits,
                self.cell.prompts.features,
                lambda image: self._pixels(cases[int(np.argmax(image_of == image))]),
            )
            self.parts.append(piece.started)
        if piece.ends:
            self.writer.add(piece.batch, self.parts)
            self.parts = []
            self.advance(len(piece.batch.block.columns.cases))

    def _pixels(self, case: Case) -> NDArray[np.uint8]:
        """Reads the model input of a case again, uint8 [1, S, S]; its buffer may hold another case now."""
        return self.cell.source(case)[0][None]


class _Writer:
    """Threads that make rows and, of each complete chunk, its part file. Use as a context manager."""

    def __init__(self, cell: CellWork, queries: Queries, measure: Measure, metadata: dict[str, str]) -> None:
        self._cell, self._queries, self._measure, self._metadata = cell, queries, measure, metadata
        self._columns: list[CaseColumns] = []
        self._scored: list[Future[Scored]] = []
        self._chunks: deque[Future[None]] = deque()
        self._writers = writers(cell.workers)
        self._pool = ThreadPoolExecutor(self._writers, thread_name_prefix="rows")

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def add(self, batch: Batch, parts: Sequence[Started]) -> None:
        """Accepts a computed batch; waits while too much is unwritten. Raises the error of an earlier one, if any."""
        self._columns.append(batch.block.columns)
        self._scored += [self._pool.submit(part.scored, self._queries, self._measure) for part in parts]
        if len(self._scored) > _BATCHES_OF_ROWS:
            self._scored[-_BATCHES_OF_ROWS - 1].result()
        if batch.last:
            # Tasks begin in order, so those that this one waits for never wait for it.
            self._chunks.append(self._pool.submit(self._write, batch.chunk, self._columns, self._scored))
            self._columns, self._scored = [], []
        while len(self._chunks) > self._writers:
            self._chunks.popleft().result()

    def finish(self) -> None:
        """Waits for all chunks. Raises their error, if any."""
        while self._chunks:
            self._chunks.popleft().result()

    def _write(self, chunk: int, columns: Sequence[CaseColumns], scored: Sequence[Future[Scored]]) -> None:
        cell, parts = self._cell, [part.result() for part in scored]
        table = rows_table(columns, parts, self._queries.findings, cell.model, cell.dataset, self._metadata)
        cell.files.write_part(chunk, table)
