"""The accepted images of one model: a limit on their number, and the engine's batches (micro-batching)."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Scores
from ....engines.prompts.prompt_set import PromptSet
from ..prometheus_metrics import Metrics
from ..protocol.request_errors import Draining, Overloaded, TooLarge
from ..settings import ServiceSettings

Run = Callable[[NDArray[np.uint8], NDArray[np.float32]], Scores]

_LONGEST_WAIT: Final = 60  # seconds, the most that a refused client is asked to wait
_MEMORY: Final = 0.1  # weight of the newest batch in the running mean


@dataclass(eq=False)
class _Waiting:
    """One image that waits for the engine: pixels uint8 [1, S, S], the future of its scores, its arrival time."""

    pixels: NDArray[np.uint8]
    prompts: PromptSet
    future: asyncio.Future[Scores]
    since: float


class ModelQueue:
    """Accepts at most `settings.queue` images at once, and runs `run` in one thread on batches of them that ask for the
    same prompt set.

    A request that does not fit is refused at once, as a whole. A batch starts as soon as it holds `settings.max_batch`
    images, or its oldest image has waited `settings.max_delay` seconds and the engine is free. The image that has
    waited longest decides which prompt set is next, so none waits forever. Used from one event loop.
    """

    def __init__(self, name: str, run: Run, settings: ServiceSettings, metrics: Metrics) -> None:
        self.accepted = 0  # images that are not answered yet
        self._name = name
        self._run = run
        self._settings = settings
        self._metrics = metrics
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._seconds: float | None = None  # running mean of an image's time in the engine
        self._idle = True
        self._refusing = False
        self._closing = False
        # One thread: an engine is never run by two at once, and the event loop stays free.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{name}")
        self._task: asyncio.Task[None] | None = None
        metrics.waiting.labels(name).set_function(lambda: self.waiting)
        metrics.accepted.labels(name).set_function(lambda: self.accepted)

    async def start(self, pixels: NDArray[np.uint8], prompts: PromptSet) -> None:
        """Runs the engine once, which is not counted, and begins to form batches. Raises what the engine raises."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._worker, self._run, pixels, prompts.features)
        self._task = loop.create_task(self._serve())

    def refuse(self) -> None:
        """Accepts nothing from now on."""
        self._refusing = True

    async def close(self) -> None:
        """Refuses new images, answers the accepted ones, then stops."""
        self.refuse()
        await self._empty.wait()
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._worker.shutdown(wait=False)

    @property
    def waiting(self) -> int:
        """Number of images that are not in the engine yet."""
        return sum(map(len, list(self._waiting.values())))

    @contextmanager
    def accept(self, images: int) -> Iterator[None]:
        """Reserves room for `images` while a request is processed. Raises the errors of `check`."""
        self.check(images)
        self.accepted += images
        self._empty.clear()
        try:
            yield
        finally:
            self.accepted -= images
            if self.accepted == 0:
                self._empty.set()

    def check(self, images: int) -> None:
        """Raises TooLarge when `images` never fit, Overloaded when they do not fit now, Draining after `refuse`."""
        if self._refusing:
            raise Draining("The server is shutting down; try another one.", retry_after=5)
        limit = self._settings.queue
        if images > limit:
            raise TooLarge(f"The request holds {images} images, {self._name} takes {limit} at once.")
        if self.accepted + images > limit:
            raise Overloaded(
                f"{self._name} is working on {self.accepted} of {limit} images; try again later.",
                retry_after=self.retry_after,
            )

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least 1, after which the accepted images are probably answered."""
        seconds = (self._seconds or 0.0) * self.accepted
        return min(_LONGEST_WAIT, max(1, math.ceil(seconds)))

    async def submit(self, pixels: NDArray[np.uint8], prompts: PromptSet) -> Scores:
        """Scores of pixels uint8 [N, 1, S, S]. Raises what the engine raises. Cancelling removes the images."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        images = [_Waiting(image, prompts, loop.create_future(), now) for image in pixels]
        queue = self._waiting.setdefault(id(prompts), deque())
        queue.extend(images)
        # `_next_batch` needs to wake for the first image and for a full batch only: for any other it already waits for
        # the oldest image's delay.
        if self._idle or len(queue) >= self._settings.max_batch:
            self._arrived.set()
        try:
            if len(images) == 1:
                return await images[0].future
            parts = await asyncio.gather(*(image.future for image in images))
        finally:
            for image in images:
                image.future.cancel()
        return Scores(
            np.concatenate([part.logits for part in parts]), np.concatenate([part.saliency for part in parts])
        )

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        while batch := await self._next_batch():
            start = time.perf_counter()
            results = await loop.run_in_executor(self._worker, self._results, batch)
            self._note(len(batch), time.perf_counter() - start)
            for image, result in zip(batch, results, strict=True):
                if image.future.done():  # cancelled while the engine worked
                    continue
                if isinstance(result, Exception):
                    image.future.set_exception(result)
                else:
                    image.future.set_result(result)

    async def _next_batch(self) -> list[_Waiting]:
        """The next batch, once it is full or its oldest image has waited long enough; empty after `close`."""
        loop, most = asyncio.get_running_loop(), self._settings.max_batch
        while True:
            queue = min(self._waiting.values(), key=lambda queue: queue[0].since, default=None)
            if queue is None and self._closing:
                return []
            left = None if queue is None else queue[0].since + self._settings.max_delay - loop.time()
            if queue is not None and left is not None and (self._closing or len(queue) >= most or left <= 0):
                batch = [queue.popleft() for _ in range(min(len(queue), most))]
                if not queue:
                    del self._waiting[id(batch[0].prompts)]
                if batch := [image for image in batch if not image.future.done()]:
                    return batch
                continue
            # No arrival is lost: nothing is awaited between the look at the queues and `clear`.
            self._idle = queue is None
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrived.wait()

    def _results(self, batch: Sequence[_Waiting]) -> list[Scores | Exception]:
        """Scores of each image, or why there are none; an image that the engine refuses does not affect the others."""
        try:
            scores = self._run(np.stack([image.pixels for image in batch]), batch[0].prompts.features)
        # Any exception of an engine goes to the requests that wait for it; the thread continues.
        except Exception as error:
            return [error] if len(batch) == 1 else [self._results([image])[0] for image in batch]
        # Slices keep the axis of images.
        return [Scores(scores.logits[i : i + 1], scores.saliency[i : i + 1]) for i in range(len(batch))]

    def _note(self, images: int, seconds: float) -> None:
        newest = seconds / images
        self._seconds = newest if self._seconds is None else (1 - _MEMORY) * self._seconds + _MEMORY * newest
        metrics = self._metrics
        metrics.child(metrics.batch_images, self._name).observe(images)
        metrics.child(metrics.engine_seconds, self._name).observe(seconds)
