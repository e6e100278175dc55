"""Single images -> batches of the engine, formed while others wait (micro-batching)."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Scores
from ....engines.prompts import PromptSet
from ..protocol.errors import Draining

__all__ = ["Batcher", "Run"]

Run = Callable[[NDArray[np.uint8], NDArray[np.float32]], Scores]


@dataclass(eq=False)
class _Item:
    """One image that waits: pixels uint8 [1, S, S], where its scores go and since when it waits."""

    pixels: NDArray[np.uint8]
    prompts: PromptSet
    future: asyncio.Future[Scores]
    since: float


class Batcher:
    """Runs `run` in one thread, on batches of images that ask for the same prompt set.

    A batch starts as soon as it holds `max_batch` images, or its oldest image has waited `max_delay` seconds and the
    engine is free. The image that has waited longest decides which prompt set is next, so none waits for ever.
    `observe(images, seconds)` is told of every batch. Used from one event loop; how many wait is bounded by
    `admission`, not here.
    """

    def __init__(
        self,
        run: Run,
        *,
        max_batch: int,
        max_delay: float,
        name: str = "engine",
        observe: Callable[[int, float], None] = lambda images, seconds: None,
    ) -> None:
        self._run = run
        self._max_batch = max_batch
        self._max_delay = max_delay
        self._observe = observe
        self._waiting: OrderedDict[int, deque[_Item]] = OrderedDict()
        self._arrived = asyncio.Event()
        self._closing = False
        self._idle = True
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{name}")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to form batches, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    async def close(self) -> None:
        """Answers what waits, then stops."""
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._worker.shutdown(wait=False)

    @property
    def waiting(self) -> int:
        """Images that are not in the engine yet."""
        return sum(map(len, self._waiting.values()))

    async def submit(self, pixels: NDArray[np.uint8], prompts: PromptSet) -> Scores:
        """Scores of pixels uint8 [N, 1, S, S].

        Raises Draining after `close`, and what the engine raises. Cancelling takes the images out of the queue.
        """
        if self._closing:
            raise Draining("The server is shutting down; ask another one.", retry_after=5)
        loop = asyncio.get_running_loop()
        now = loop.time()
        items = [_Item(image, prompts, loop.create_future(), now) for image in pixels]
        queue = self._waiting.setdefault(id(prompts), deque())
        queue.extend(items)
        if self._idle or len(queue) >= self._max_batch:
            self._arrived.set()
        try:
            if len(items) == 1:
                return await items[0].future
            found = await asyncio.gather(*(item.future for item in items))
        finally:
            for item in items:
                item.future.cancel()
        return Scores(
            np.concatenate([scores.logits for scores in found]), np.concatenate([scores.saliency for scores in found])
        )

    async def _serve(self) -> None:
        while True:
            self._drop_done()
            if self._waiting:
                await self._fill()
                batch = self._take()
                if batch:
                    await self._answer(batch)
            elif self._closing:
                return
            else:
                self._idle = True
                await self._arrival(None)
                self._idle = False

    async def _fill(self) -> None:
        """Waits until the next batch is full, or its oldest image has waited long enough."""
        loop = asyncio.get_running_loop()
        queue = self._next()
        until = queue[0].since + self._max_delay
        while not self._closing and len(queue) < self._max_batch and (left := until - loop.time()) > 0:
            await self._arrival(left)

    async def _arrival(self, seconds: float | None) -> None:
        self._arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()

    def _next(self) -> deque[_Item]:
        """The queue whose first image has waited longest."""
        return min(self._waiting.values(), key=lambda queue: queue[0].since)

    def _take(self) -> list[_Item]:
        """The next batch; empty when nobody waits any more."""
        self._drop_done()
        if not self._waiting:
            return []
        queue = self._next()
        return [queue.popleft() for _ in range(min(len(queue), self._max_batch))]

    def _drop_done(self) -> None:
        """Forgets the images nobody waits for any more."""
        for key, queue in list(self._waiting.items()):
            kept = deque(item for item in queue if not item.future.done())
            if kept:
                self._waiting[key] = kept
            else:
                del self._waiting[key]

    async def _answer(self, batch: Sequence[_Item]) -> None:
        loop = asyncio.get_running_loop()
        start = time.perf_counter()
        results = await loop.run_in_executor(self._worker, self._results, batch)
        self._observe(len(batch), time.perf_counter() - start)
        for item, result in zip(batch, results, strict=True):
            _finish(item, result)

    def _results(self, batch: Sequence[_Item]) -> list[Scores | Exception]:
        """Scores of each image, or why there are none; one that the engine refuses does not harm its neighbours."""
        try:
            scores = self._run(np.stack([item.pixels for item in batch]), batch[0].prompts.features)
        # Whatever an engine raises belongs to those who wait for it; the thread goes on.
        except Exception as error:
            return [error] if len(batch) == 1 else [self._results([item])[0] for item in batch]
        return [
            Scores(scores.logits[place : place + 1], scores.saliency[place : place + 1]) for place in range(len(batch))
        ]


def _finish(item: _Item, result: Scores | Exception) -> None:
    if item.future.done():
        return
    if isinstance(result, Exception):
        item.future.set_exception(result)
    else:
        item.future.set_result(result)
