"""Batches for an engine on the GPU: threads read them in advance, directly into pinned memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..decoded_blocks import BegunBlock, Block, CaseReader

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case


@dataclass
class Batch:
    """A batch ready for the engine.

    chunk: the part file it belongs to; `last`: no other batch of that chunk follows. block: its cases, with the pixels
    of the readable ones, pinned. `copied`: an event after which the pixels may be overwritten; the code that copies
    them sets it.
    """

    chunk: int
    last: bool
    block: Block
    copied: Any = None


@dataclass
class _Buffer:
    pixels: NDArray[np.uint8]
    batch: Batch | None = None

    def wait(self) -> None:
        """Waits until the content has been copied to the device."""
        if self.batch is not None and self.batch.copied is not None:
            self.batch.copied.synchronize()
        self.batch = None


class PinnedFeed:
    """Reads `batches` of (chunk, last of it, cases) in `workers` threads, a few batches ahead.

    The threads write the pixels directly into the buffer of the copy to the device.
    """

    def __init__(
        self,
        cupy: Any,
        batches: Sequence[tuple[int, bool, Sequence[Case]]],
        reader: CaseReader,
        workers: int,
    ) -> None:
        largest = max((len(cases) for _, _, cases in batches), default=1)
        self._batches, self._reader, side = batches, reader, reader.geometry.size
        self._ahead = min(max(3, 1 + -(-2 * workers // largest)), max(1, len(batches)))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        # One more than the waiting batches: the batch yielded last may still be copied to the device.
        shape = (largest, 1, side, side)
        self._ring = [_Buffer(pinned(cupy, shape, np.uint8)) for _ in range(self._ahead + 1)]

    def __iter__(self) -> Iterator[Batch]:
        waiting: deque[tuple[int, bool, _Buffer, Future[BegunBlock]]] = deque()
        for number, (chunk, last, cases) in enumerate(self._batches):
            if len(waiting) == self._ahead:
                yield self._ready(*waiting.popleft())
            buffer = self._ring[number % len(self._ring)]
            buffer.wait()
            begun = self._pool.submit(self._reader.begin, cases, buffer.pixels[: len(cases)], self._pool)
            waiting.append((chunk, last, buffer, begun))
        while waiting:
            yield self._ready(*waiting.popleft())

    def close(self) -> None:
        """Stops decoding and waits for the tasks that have started."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    @staticmethod
    def _ready(chunk: int, last: bool, buffer: _Buffer, begun: Future[BegunBlock]) -> Batch:
        buffer.batch = Batch(chunk, last, begun.result().result())
        return buffer.batch


def pinned(cupy: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An empty array in page-locked memory of the host, from CuPy's pool: copies do not block the CPU."""
    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(max(1, count) * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype, count).reshape(shape)
