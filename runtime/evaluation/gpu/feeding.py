"""Batches for an engine on the GPU: threads decode them in advance, directly into pinned memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..decoding import DecodedCase

if TYPE_CHECKING:
    from ...datasets.base import Case

__all__ = ["Batch", "PinnedFeed", "pinned"]


@dataclass
class Batch:
    """A batch ready for the engine.

    chunk: the part file it belongs to; `last`: no other batch of that chunk follows. items: all its cases; readable:
    those of them with pixels, and `pixels` are theirs, uint8 [n, 1, S, S], pinned. `copied`: an event
    after which `pixels` may be overwritten; the code that copies them sets it.
    """

    chunk: int
    last: bool
    items: Sequence[DecodedCase]
    pixels: NDArray[np.uint8]
    copied: Any = None
    readable: list[DecodedCase] = field(init=False)

    def __post_init__(self) -> None:
        self.readable = [item for item in self.items if item.status == "ok"]


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
    """Decodes `batches` of (chunk, last of it, cases) by `decode` in `workers` threads, a few batches ahead.

    side: S of the model input. The threads write the pixels directly into the buffer of the copy to the device.
    """

    def __init__(
        self,
        cupy: Any,
        batches: Sequence[tuple[int, bool, Sequence[Case]]],
        decode: Callable[[Case], DecodedCase],
        side: int,
        workers: int,
    ) -> None:
        largest = max((len(cases) for _, _, cases in batches), default=1)
        self._batches, self._decode = batches, decode
        self._ahead = min(max(3, 1 + -(-2 * workers // largest)), max(1, len(batches)))
        self._piece = -(-largest // (2 * workers))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        # One more than the waiting batches: the batch yielded last may still be copied to the device.
        shape = (largest, 1, side, side)
        self._ring = [_Buffer(pinned(cupy, shape, np.uint8)) for _ in range(self._ahead + 1)]

    def __iter__(self) -> Iterator[Batch]:
        waiting: deque[tuple[int, bool, _Buffer, list[Future[list[DecodedCase]]]]] = deque()
        for number, (chunk, last, cases) in enumerate(self._batches):
            if len(waiting) == self._ahead:
                yield self._ready(*waiting.popleft())
            buffer = self._ring[number % len(self._ring)]
            buffer.wait()
            pieces = [
                self._pool.submit(self._fill, cases[start : start + self._piece], buffer.pixels[start:])
                for start in range(0, len(cases), self._piece)
            ]
            waiting.append((chunk, last, buffer, pieces))
        while waiting:
            yield self._ready(*waiting.popleft())

    def close(self) -> None:
        """Stops decoding and waits for the tasks that have started."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self, cases: Sequence[Case], target: NDArray[np.uint8]) -> list[DecodedCase]:
        done = []
        for case, place in zip(cases, target, strict=False):
            decoded = self._decode(case)
            if decoded.pixels is not None:
                place[0] = decoded.pixels
            done.append(decoded)
        return done

    def _ready(self, chunk: int, last: bool, buffer: _Buffer, pieces: Sequence[Future[list[DecodedCase]]]) -> Batch:
        items = [item for piece in pieces for item in piece.result()]
        kept = [place for place, item in enumerate(items) if item.status == "ok"]
        for to, place in enumerate(kept):
            if to != place:
                buffer.pixels[to] = buffer.pixels[place]
        # The buffer holds the pixels now; memory of a store need not stay in use.
        for item in items:
            item.pixels = None
        buffer.batch = Batch(chunk, last, items, buffer.pixels[: len(kept)])
        return buffer.batch


def pinned(cupy: Any, shape: tuple[int, ...], kind: Any) -> NDArray[Any]:
    """An empty array in page-locked memory of the host, from CuPy's pool: copies do not block the CPU."""
    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(max(1, count) * np.dtype(kind).itemsize)
    return np.frombuffer(memory, kind, count).reshape(shape)
