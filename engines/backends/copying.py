"""Base class of the engines that copy each batch to a device and back, where CuPy cannot be used."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores, joined_scores
from .device import OutOfMemory, does_not_fit


class CopyingEngine(Engine):
    """Batches of at most `options.max_batch` images, with unused images where `options.pad` asks for them. The batch is
    halved, with a message, when the device has too little memory. A subclass implements `_load`, `_compute` and
    `_close`."""

    def _open(self) -> EngineInfo:
        self._batch = self.options.max_batch
        while True:
            try:
                return self._load()
            except OutOfMemory as error:  # weights do not get smaller with the batch
                if not self.options.neighbour.give_way():
                    raise does_not_fit(self.bundle) from error

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        parts: list[Scores] = []
        start = 0
        while start < len(pixels):
            chunk = pixels[start : start + self._batch]
            unused = self._batch - len(chunk) if self.options.pad else 0
            batch = np.concatenate([chunk, np.zeros((unused, *chunk.shape[1:]), chunk.dtype)]) if unused else chunk
            try:
                scores = self._compute(batch, text)
            except OutOfMemory as error:
                if not self.options.neighbour.give_way():
                    if self._batch == 1:
                        raise does_not_fit(self.bundle) from error
                    self._batch //= 2
                    self.options.say(f"{self.bundle.name}: out of GPU memory, going on with batches of {self._batch}")
                continue
            parts.append(Scores(scores.logits[: len(chunk)], scores.saliency[: len(chunk)]))
            start += len(chunk)
        return joined_scores(parts)

    @abstractmethod
    def _load(self) -> EngineInfo:
        """Loads the graph; raises OutOfMemory or EngineError."""

    @abstractmethod
    def _compute(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """The scores of one batch; raises OutOfMemory or EngineError."""
