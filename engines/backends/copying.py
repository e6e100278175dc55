"""Base class of the engines that copy each batch to a device and back, where CuPy cannot be used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores, joined_scores
from .out_of_memory import OutOfMemory, does_not_fit

Result = TypeVar("Result")


class CopyingEngine(Engine):
    """Batches of at most `options.max_batch` images, with unused images where `options.pad` asks for them. The batch is
    halved, with a message, when the device has too little memory. A subclass implements `_load`, `_compute`, its two
    parts, and `_close`."""

    def _open(self) -> EngineInfo:
        self._batch = self.options.max_batch
        while True:
            try:
                return self._load()
            except OutOfMemory as error:  # weights do not get smaller with the batch
                if not self.options.neighbour.give_way():
                    raise does_not_fit(self.bundle) from error

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        return _trimmed(self._in_batches(pixels, lambda batch: self._compute(batch, text)))

    def _encode(self, pixels: NDArray[np.uint8]) -> list[tuple[int, Any]] | str:
        parts = self._in_batches(pixels, self._compute_features)
        return next((features for _, features in parts if isinstance(features, str)), parts)

    def _ask(self, part: list[tuple[int, Any]], text: NDArray[np.float32]) -> Scores:
        try:
            return _trimmed([(images, self._compute_scores(features, text)) for images, features in part])
        except OutOfMemory as error:
            raise does_not_fit(self.bundle) from error

    def _in_batches(
        self, pixels: NDArray[np.uint8], compute: Callable[[NDArray[np.uint8]], Result]
    ) -> list[tuple[int, Result]]:
        """For each batch the number of its images that are not unused ones, and what `compute` gives of it."""
        parts: list[tuple[int, Result]] = []
        start = 0
        while start < len(pixels):
            chunk = pixels[start : start + self._batch]
            unused = self._batch - len(chunk) if self.options.pad else 0
            batch = np.concatenate([chunk, np.zeros((unused, *chunk.shape[1:]), chunk.dtype)]) if unused else chunk
            try:
                parts.append((len(chunk), compute(batch)))
            except OutOfMemory as error:
                if not self.options.neighbour.give_way():
                    if self._batch == 1:
                        raise does_not_fit(self.bundle) from error
                    self._batch //= 2
                    self.options.say(f"{self.bundle.name}: out of GPU memory, going on with batches of {self._batch}")
                continue
            start += len(chunk)
        return parts

    @abstractmethod
    def _load(self) -> EngineInfo:
        """Loads the graph; raises OutOfMemory or EngineError."""

    @abstractmethod
    def _compute(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """The scores of one batch; raises OutOfMemory or EngineError."""

    @abstractmethod
    def _compute_features(self, pixels: NDArray[np.uint8]) -> Any:
        """The features of one batch, or a text as of `_encode`. Raises as `_compute`."""

    @abstractmethod
    def _compute_scores(self, features: Any, text: NDArray[np.float32]) -> Scores:
        """The scores of one batch, from its features. Raises as `_compute`."""


def _trimmed(parts: Sequence[tuple[int, Scores]]) -> Scores:
    return joined_scores([Scores(scores.logits[:images], scores.saliency[:images]) for images, scores in parts])
