"""Base class of the engines on an NVIDIA GPU: device buffers allocated once, two slots, and one stream for all work.

`submit` leaves scores on the device, so that the sweep reads the engine's own output buffer and only counts and logits
return to the host; `run`, as in every engine, copies them back.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores, joined_scores
from ..bundle import Bundle
from ..errors import EngineError
from .gpu import gpu_reason, load_cupy

SLOTS: Final = 2
"""Batches that may be in flight at once: one is computed, one is filled or read."""

_OUT_OF_MEMORY: Final = re.compile(
    r"failed to allocate memory|out ?of ?memory|smaller than requested bytes|_ALLOC_FAILED|cudaErrorMemoryAllocation",
    re.I,
)

Result = TypeVar("Result")


class OutOfMemory(Exception):
    """The device has too little memory for this batch size; internal to this package."""


@dataclass(frozen=True)
class DeviceScores:
    """logits: cupy float32 [B, Q]; saliency: cupy float32 [B, Q, h, w]; views of the slot's buffers, valid for work in
    the engine's stream until the slot is submitted again."""

    logits: Any
    saliency: Any


def is_out_of_memory(words: str) -> bool:
    """Whether a library's message says that the device has too little memory."""
    return _OUT_OF_MEMORY.search(words) is not None


def does_not_fit(bundle: Bundle) -> EngineError:
    """The error for a model that runs out of memory even with the smallest batch."""
    return EngineError(
        f"{bundle.name} does not fit the memory of the GPU, not even one image at a time; free the GPU, or use "
        "--engine onnxruntime-cpu."
    )


class DeviceEngine(Engine):
    """Base of the GPU backends: memory, slots and out-of-memory handling; a subclass implements `_load` and `_enqueue`.

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
            scores = self.submit(chunk, text, 0)
            with self._entered():
                # Copies to pageable memory return when they are done, so the slot may be used again.
                parts.append(Scores(scores.logits.get(stream=self.stream), scores.saliency.get(stream=self.stream)))
                self.stream.synchronize()
            start += len(scores.logits)
        return joined_scores(parts)

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
        given, queries = len(pixels), len(text)
        batch = self.max_batch if self.options.pad else given
        self._reserve(queries)
        buffer, logits, saliency = self._buffers[slot]
        features = self._features(text)
        grid = self.bundle.manifest.grid
        cells = grid[0] * grid[1]
        with self.stream:
            source = buffer[:batch]
            if not isinstance(pixels, self._cupy.ndarray):
                source[:given].set(np.ascontiguousarray(pixels), stream=self.stream)
            elif batch == given:
                source = self._cupy.ascontiguousarray(pixels)
            elif pixels.data.ptr != buffer.data.ptr:
                source[:given] = pixels
            scores = DeviceScores(
                logits[: batch * queries].reshape(batch, queries),
                saliency[: batch * queries * cells].reshape(batch, queries, *grid),
            )
            self._enqueue(source, features, scores, slot)
        return DeviceScores(scores.logits[:given], scores.saliency[:given])

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

    def _moved(self) -> None:
        """Called after buffers have moved: a subclass drops everything that holds their addresses."""

    @abstractmethod
    def _unload(self) -> None:
        """Releases what `_load` took."""
