"""Base class of the engines on an NVIDIA GPU: device buffers allocated once, two slots, and one stream for all work.

`submit` leaves scores on the device, so that the sweep reads the engine's own output buffer and only counts and logits
return to the host; `run`, as in every engine, copies them back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores, joined_scores
from ..errors import EngineError
from .gpu import gpu_reason, load_cupy
from .out_of_memory import OutOfMemory, does_not_fit

SLOTS: Final = 2
"""Batches that may be in flight at once: one is computed, one is filled or read."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class DeviceScores:
    """logits: cupy float32 [B, Q]; saliency: cupy float32 [B, Q, h, w]; views of the slot's buffers, valid for work in
    the engine's stream until the slot is submitted again."""

    logits: Any
    saliency: Any


@dataclass(frozen=True, eq=False)
class DeviceFeatures:
    """A batch of `images` images to be asked several prompt sets, with unused ones in `pixels`, cupy uint8. values: the
    backend's own tensors; None: all of the graph runs."""

    images: int
    pixels: Any
    values: Any


class DeviceEngine(Engine):
    """Base of the GPU backends: memory and slots; a subclass implements `_load` and `_enqueue`, and where it takes
    graphs apart `_enqueue_image` and `_enqueue_text`.

    `stream` is the cupy.cuda.Stream all work is enqueued in. `max_batch` is the largest batch of one submission; it is
    halved, with a message to `options.say`, when the device has too little memory.
    """

    stream: Any
    max_batch: int

    def _open(self) -> EngineInfo:
        cupy = load_cupy()
        reason = gpu_reason(self.options.device)
        if reason is not None:
            raise EngineError(f"No GPU can be used: {reason}; use --engine onnxruntime-cpu.")
        self._cupy = cupy
        self._device = cupy.cuda.Device(self.options.device)
        self.max_batch = self.options.max_batch
        self._text: tuple[NDArray[np.float32], Any] | None = None
        self._buffers: list[tuple[Any, Any, Any]] = []
        self._queries = 0
        with self._entered():
            cupy.get_default_memory_pool().free_all_blocks()  # kept by earlier work; the engine allocates elsewhere
            self.stream = cupy.cuda.Stream(non_blocking=True)
            try:
                return self.within_memory(self._load)
            except BaseException:
                self._unload()  # another engine may need the memory
                raise

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        parts = []
        start = 0
        while start < len(pixels):
            chunk = pixels[start : start + self.max_batch]
            parts.append(self._on_host(self.submit(chunk, text, 0)))
            start += len(parts[-1].logits)
        return joined_scores(parts)

    def _encode(self, pixels: NDArray[np.uint8]) -> list[DeviceFeatures] | str:
        parts, start = list[DeviceFeatures](), 0

        def encoded() -> DeviceFeatures:
            return self.submit_pixels(pixels[start : start + self.max_batch], 0)

        while start < len(pixels) and not self._whole:
            parts.append(self.within_memory(encoded))
            start += parts[-1].images
        return self._whole or parts

    def _ask(self, part: list[DeviceFeatures], text: NDArray[np.float32]) -> Scores:
        try:
            return joined_scores([self._on_host(self.submit_text(features, text, 0)) for features in part])
        except (OutOfMemory, self._cupy.cuda.memory.OutOfMemoryError) as error:
            raise does_not_fit(self.bundle) from error

    def _on_host(self, scores: DeviceScores) -> Scores:
        """Copies to pageable memory, which return when they are done, so that the slot may be used again."""
        with self._entered():
            copied = Scores(scores.logits.get(stream=self.stream), scores.saliency.get(stream=self.stream))
            self.stream.synchronize()
        return copied

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Makes the device current; a CUDA error inside becomes an EngineError."""
        try:
            with self._device:
                yield
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            words = " ".join(str(error).split())
            raise EngineError(
                f"The GPU failed while {self.bundle.name} ran ({words}); run the same command again, or use --engine "
                "onnxruntime-cpu."
            ) from error

    @property
    def device(self) -> Any:
        """The cupy.cuda.Device; enter it before any other use of CuPy for this engine."""
        return self._device

    def input(self, slot: int, queries: int) -> Any:
        """The slot's own pixel buffer, cupy uint8 [max_batch, 1, S, S], for batches of `queries` queries.

        The caller may fill it, in `stream` or ordered before it by an event, and give it to `submit` from its first
        image on: this saves a copy and allows the launch to be captured. The buffer moves when memory runs out: call
        this method before each batch.
        """

        def reserved() -> Any:
            self._reserve(queries)
            return self._buffers[slot][0]

        with self._entered():
            return self.within_memory(reserved)

    def submit(self, pixels: Any, text: NDArray[np.float32], slot: int) -> DeviceScores:
        """Enqueues one batch and returns at once.

        pixels: uint8 [B, 1, S, S], a NumPy array or a CuPy array of this device, which must not change until the
        stream has reached this batch. text: float32 [Q, D...]; uploaded when it is not the array of the last call.
        slot: 0 or 1. When memory runs out, only the first `max_batch` images are taken: the shape of the scores says
        how many. Raises EngineError, also for CUDA errors.
        """
        with self._entered():
            return self.within_memory(lambda: self._submit(pixels[: self.max_batch], text, slot))

    def _submit(self, pixels: Any, text: NDArray[np.float32], slot: int) -> DeviceScores:
        self._reserve(len(text))
        features = self._features(text)
        with self.stream:
            source = self._placed(pixels, slot)
            scores = self._scores(len(source), len(text), slot)
            self._enqueue(source, features, scores, slot)
        return DeviceScores(scores.logits[: len(pixels)], scores.saliency[: len(pixels)])

    def submit_pixels(self, pixels: Any, slot: int) -> DeviceFeatures:
        """Enqueues what depends on the pixels alone, once for any number of `submit_text`; returns at once.

        pixels, slot: as in `submit`, of at most `max_batch` images; call `input` for the largest prompt set before.
        Raises EngineError, and OutOfMemory or CuPy's error: all steps of a batch go through `within_memory` together.
        """
        with self._entered(), self.stream:
            self._reserve(max(1, self._queries))
            source = self._placed(pixels, slot)
            values = self._whole or self._enqueue_image(source)
        if isinstance(values, str):
            self._run_whole(values)
            values = None
        return DeviceFeatures(len(pixels), source, values)

    def submit_text(self, features: DeviceFeatures, text: NDArray[np.float32], slot: int) -> DeviceScores:
        """Enqueues the scores of such a batch, in the slot's buffers; returns at once. Raises as `submit_pixels`."""
        with self._entered():
            self._reserve(len(text))
            with self.stream:
                # Not kept: the next prompt set has another one, and what waits for it in the stream comes first.
                on_device = self._cupy.asarray(np.ascontiguousarray(text))
                scores = self._scores(len(features.pixels), len(text), slot)
                if features.values is None:
                    self._enqueue(features.pixels, on_device, scores, slot)
                else:
                    self._enqueue_text(features, on_device, scores)
        return DeviceScores(scores.logits[: features.images], scores.saliency[: features.images])

    def _placed(self, pixels: Any, slot: int) -> Any:
        """The pixels on the device, with unused images where `options.pad` asks for them; in the current stream."""
        buffer, given = self._buffers[slot][0], len(pixels)
        batch = self.max_batch if self.options.pad else given
        source = buffer[:batch]
        if not isinstance(pixels, self._cupy.ndarray):
            source[:given].set(np.ascontiguousarray(pixels), stream=self.stream)
        elif batch == given:
            source = self._cupy.ascontiguousarray(pixels)
        elif pixels.data.ptr != buffer.data.ptr:
            source[:given] = pixels
        return source

    def _scores(self, batch: int, queries: int, slot: int) -> DeviceScores:
        _, logits, saliency = self._buffers[slot]
        grid = self.bundle.manifest.grid
        return DeviceScores(
            logits[: batch * queries].reshape(batch, queries),
            saliency[: batch * queries * grid[0] * grid[1]].reshape(batch, queries, *grid),
        )

    def _reserve(self, queries: int) -> None:
        """Buffers for `max_batch` images and at least `queries` queries."""
        if self._buffers and queries <= self._queries:
            return
        cupy, grid = self._cupy, self.bundle.manifest.grid
        shape = tuple(int(n) for n in self.bundle.graph("image").inputs[0].shape[1:])
        self._buffers.clear()
        pairs = self.max_batch * queries
        with self.stream:  # CuPy's pool keeps memory by stream, and gives it again to the stream that had it
            self._buffers.extend(
                (
                    cupy.empty((self.max_batch, *shape), np.uint8),
                    cupy.empty(pairs, np.float32),
                    cupy.empty(pairs * grid[0] * grid[1], np.float32),
                )
                for _ in range(SLOTS)
            )
            if self.options.pad:
                for pixels, _, _ in self._buffers:
                    pixels.fill(0)
        self.stream.synchronize()  # the caller may fill them in another stream, which does not wait for earlier work
        self._queries = queries
        self._moved()

    def _features(self, text: NDArray[np.float32]) -> Any:
        if self._text is None or self._text[0] is not text:
            # A copy, because the caller may change or release its array.
            with self.stream:
                self._text = (text, self._cupy.asarray(np.ascontiguousarray(text)))
            self._moved()
        return self._text[1]

    def within_memory(self, attempt: Callable[[], Result]) -> Result:
        """The result of `attempt()`, which is repeated with half of `max_batch` while the device has too little memory.

        First of all the engine that is opened in advance, if any, is closed.
        Raises EngineError when `max_batch` cannot be halved any more.
        """
        while True:
            try:
                return attempt()
            except (OutOfMemory, self._cupy.cuda.memory.OutOfMemoryError) as error:
                if not self.options.neighbour.give_way():
                    if self.max_batch == 1:
                        raise does_not_fit(self.bundle) from error
                    self.max_batch //= 2
                    line = f"{self.bundle.name}: out of GPU memory, going on with batches of {self.max_batch}"
                    self.options.say(line)
                # Work in flight still uses the memory that is released here.
                self.stream.synchronize()
                self._buffers.clear()
                self._cupy.get_default_memory_pool().free_all_blocks()

    def _close(self) -> None:
        with self._entered():
            try:
                self.stream.synchronize()
            finally:
                self._unload()
                self._buffers.clear()
                self._text = None

    @abstractmethod
    def _load(self) -> EngineInfo:
        """Loads the graph for batches up to `max_batch`; raises OutOfMemory or EngineError."""

    @abstractmethod
    def _enqueue(self, pixels: Any, text: Any, scores: DeviceScores, slot: int) -> None:
        """Enqueues the graph in `stream`, its outputs into `scores`; raises OutOfMemory or EngineError."""

    def _enqueue_image(self, pixels: Any) -> Any:
        """Enqueues the image part and gives its features, or a text as `_encode`. Raises as `_enqueue`."""
        return f"{self.info.backend} runs graphs whole"

    def _enqueue_text(self, features: DeviceFeatures, text: Any, scores: DeviceScores) -> None:
        """Enqueues the rest of the graph, its outputs into `scores`. Raises as `_enqueue`."""
        raise self._lacks("_enqueue_text", "_enqueue_image")

    def _moved(self) -> None:
        """Called after buffers have moved: a subclass drops everything that holds their addresses."""

    @abstractmethod
    def _unload(self) -> None:
        """Releases what `_load` took."""
