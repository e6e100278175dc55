"""The service: requests of any transport in, answers out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from ....engines.errors import XBenchError
from ..prometheus_metrics import Metrics
from ..protocol.request_errors import DeadlineExceeded, Internal, RequestError, as_request_error
from ..protocol.requests import Answer, Request, check_request
from ..queue.model_queue import ModelQueue
from ..settings import ServiceSettings
from .feature_cache import FeatureCache, KeptFeatures, KeptImages
from .image_decoding import Decoders
from .request_images import Prepared, prepare_quick, shown_side
from .response_outputs import build_answer, check_answer_size
from .served_models import Catalogue, ServedModel

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_CHEAP = frozenset({"findings", "logits", "logits_negative", "probabilities", "probabilities_pair", "saliency"})
_CHEAP |= {"sizes", "frames"}


class Service:
    """Answers requests for the models of an open catalogue. Use as an async context manager, from one event loop.

    On entering, every model is run once. On leaving, requests that were accepted are answered and new ones refused.
    """

    def __init__(self, catalogue: Catalogue, settings: ServiceSettings, metrics: Metrics) -> None:
        self.catalogue = catalogue
        self.settings = settings
        self.metrics = metrics
        self._queues: dict[str, ModelQueue] = {}
        self._pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="serve")
        self._free = asyncio.Semaphore(settings.workers)
        self._decoders = Decoders(settings.workers)
        self._cache = FeatureCache(settings.feature_cache, metrics)
        self._refusing = False

    async def __aenter__(self) -> Self:
        for name, model in self.catalogue.models.items():
            run = KeptFeatures(self._cache, model.engine).run
            queue = ModelQueue(name, run, self.settings, self.metrics)
            pixels = np.random.default_rng(0).integers(0, 256, (2, 1, *2 * (model.geometry.size,)), np.uint8)
            await queue.start(pixels, model.prompt_sets[model.default_set])
            self._queues[name] = queue
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def ready(self) -> bool:
        """Whether requests are accepted."""
        return bool(self._queues) and not self._refusing

    def refuse(self) -> None:
        """Refuses new requests from now on."""
        self._refusing = True
        for queue in self._queues.values():
            queue.refuse()

    async def close(self) -> None:
        """Refuses new requests and returns when all accepted ones are answered."""
        self.refuse()
        for queue in self._queues.values():
            await queue.close()
        await self._decoders.close()
        self._cache.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def check_room(self, model: str) -> None:
        """Raises Draining or Overloaded if a request of one image for this model would be refused now.

        For a transport that can refuse a request before it reads the images.
        """
        self._queues[model].check(1)

    @contextmanager
    def counted(self, model: str) -> Iterator[None]:
        """Counts a request that is refused within, before `infer` is called; `model`: the name that the client gave."""
        try:
            yield
        except RequestError as error:
            self.metrics.requests.labels(self._model_label(model), error.code).inc()
            raise

    async def infer(self, request: Request) -> Answer:
        """The answer to a request. Raises RequestError, and nothing else but CancelledError."""
        start = time.perf_counter()
        label = self._model_label(request.model)
        code = "CANCELLED"
        try:
            answer = await self._answer(request)
            code = "OK"
            self.metrics.child(self.metrics.images, label).inc(request.count)
            return answer
        except RequestError as error:
            code = error.code
            raise
        except XBenchError as error:
            code = as_request_error(error).code
            raise as_request_error(error) from error
        # An error in this code or in an external engine: the client gets a general message, the log the details.
        except Exception as error:
            _LOG.exception("A request for %s failed unexpectedly", label)
            code = Internal.code
            raise Internal from error
        finally:
            self.metrics.child(self.metrics.requests, label, code).inc()
            self.metrics.child(self.metrics.request_seconds, label).observe(time.perf_counter() - start)

    async def _answer(self, request: Request) -> Answer:
        check_request(request)
        model = self.catalogue.get(request.model)
        if request.pixels is not None:
            model.check_pixels(request.pixels)
        seconds = min(request.timeout or self.settings.timeout, self.settings.timeout)
        with self._queues[model.name].accept(request.count):
            try:
                async with asyncio.timeout(seconds):
                    return await self._compute(request, model, seconds)
            except TimeoutError as error:
                raise DeadlineExceeded(
                    f"The answer was not ready within {seconds:g} s; try again when the server is less busy."
                ) from error

    async def _compute(self, request: Request, model: ServedModel, seconds: float) -> Answer:
        selection = await self.work(partial(model.select, request), short=request.prompts is None)
        check_answer_size(request.outputs, request.count, len(selection.queries.findings), model.grid)
        images = await self._prepare(request, model, seconds)
        pixels = request.pixels
        if pixels is None:
            pixels = np.stack([image.pixels for image in images])[:, None]
        scores = await self._queues[model.name].submit(pixels, selection.prompts)
        build = partial(build_answer, request, model, selection, images, scores)
        return await self.work(build, short=request.outputs <= _CHEAP and request.count <= 4)

    async def _prepare(self, request: Request, model: ServedModel, seconds: float) -> list[Prepared]:
        """The images of a request. Raises ImageError and Internal."""
        quick = partial(prepare_quick, request, model.geometry)
        if request.pixels is not None or not self._cache.limit:
            images = await self.work(quick, short=request.pixels is not None and not shown_side(request.outputs))
            return images or await self._decoders.prepare(request, model.geometry, seconds)

        def known_or_quick() -> tuple[KeptImages, list[Prepared] | None]:
            kept = KeptImages(self._cache, request, model.geometry)
            images = kept.get()
            if images is None and (images := quick()) is not None:
                kept.put(images)
            return kept, images

        kept, images = await self.work(known_or_quick, short=False)
        if images is None:
            images = await self._decoders.prepare(request, model.geometry, seconds)
            kept.put(images)
        return images

    async def work(self, function: Callable[[], T], *, short: bool) -> T:
        """Runs `function` in the thread pool, or at once if it is `short`.

        Work waits for a thread here and not in the pool, which would keep a request's images after its timeout.
        """
        if short:
            return function()
        loop = asyncio.get_running_loop()
        await self._free.acquire()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop was closed before the thread ended
                loop.call_soon_threadsafe(self._free.release)

        future = self._pool.submit(function)
        future.add_done_callback(ended)
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # as in `infer`

    def _model_label(self, model: str) -> str:
        """The model's name as a label of metrics; names invented by clients do not become labels."""
        return model if model in self._queues else "unknown"
