"""What an engine is: it opens a bundle's image graph and turns pixels and text features into scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .bundle import Bundle
from .errors import EngineError

__all__ = ["Engine", "EngineInfo", "Scores"]


@dataclass(frozen=True)
class EngineInfo:
    """What runs the graph: backend ("onnxruntime-cpu"), device ("cpu"), precision ("fp32") and versions."""

    backend: str
    device: str
    precision: str
    detail: str


@dataclass(frozen=True)
class Scores:
    """logits: float32 [B, Q]; saliency: float32 [B, Q, h, w], on the model's own grid, not normalised."""

    logits: NDArray[np.float32]
    saliency: NDArray[np.float32]


class Engine(ABC):
    """Base of all backends: it owns life cycle and checks, a subclass fills `_open`, `_run` and `_close`.

    Use it as a context manager. `run` may be called from one thread at a time.
    """

    def __init__(self, bundle: Bundle, *, threads: int | None = None) -> None:
        self.bundle = bundle
        self.threads = threads
        self._info: EngineInfo | None = None

    @property
    def info(self) -> EngineInfo:
        """Raises EngineError before the engine is opened."""
        if self._info is None:
            raise EngineError(f"The engine for {self.bundle.name} is not open; use it in a with statement.")
        return self._info

    def __enter__(self) -> Self:
        if self._info is None:
            self._info = self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._info is not None:
            self._info = None
            self._close()

    def run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """Scores of a batch.

        pixels: uint8 [B, 1, S, S], bright is radio-dense, prepared with the bundle's geometry; text: float32
        [Q, D...], the features of one prompt set. Raises EngineError for inputs that do not fit, when the backend
        fails, and when the logits are not finite.
        """
        backend = self.info.backend
        self._check("pixels", pixels, np.dtype(np.uint8), 0)
        self._check("text", text, np.dtype(np.float32), 1)
        scores = self._run(np.ascontiguousarray(pixels), np.ascontiguousarray(text))
        batch, queries = pixels.shape[0], text.shape[0]
        wanted = ((batch, queries), (batch, queries, *self.bundle.manifest.grid))
        if (scores.logits.shape, scores.saliency.shape) != wanted:
            raise EngineError(
                f"{self.bundle.name} on {backend} returned logits {scores.logits.shape} and saliency "
                f"{scores.saliency.shape} instead of {wanted[0]} and {wanted[1]}; export the bundle again."
            )
        if not np.isfinite(scores.logits).all():
            bad = np.argwhere(~np.isfinite(scores.logits))[0]
            raise EngineError(
                f"{self.bundle.name} on {backend} returned a logit that is not finite (image {bad[0]} of the batch, "
                f"query {bad[1]}); check the checkpoint, or use --engine onnxruntime-cpu."
            )
        return scores

    def _check(self, name: str, array: NDArray[np.generic], dtype: np.dtype[np.generic], position: int) -> None:
        shape = self.bundle.graph("image").inputs[position].shape
        fits = array.ndim == len(shape) and all(
            isinstance(want, str) or want == have for want, have in zip(shape, array.shape, strict=True)
        )
        if array.dtype != dtype or not fits or array.shape[0] == 0:
            raise EngineError(
                f"{self.bundle.name} takes {name} as {dtype} {list(shape)}, not {array.dtype} {list(array.shape)}."
            )

    @abstractmethod
    def _open(self) -> EngineInfo:
        """Loads the graph; raises EngineError with the reason when it cannot run here."""

    @abstractmethod
    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """Runs one checked batch."""

    @abstractmethod
    def _close(self) -> None:
        """Releases what `_open` took."""
