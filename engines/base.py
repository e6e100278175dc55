"""The base class of engines: an engine opens a bundle's image graph and turns pixels and text features into scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from .bundle import Bundle
from .errors import EngineError
from .manifest import TensorSpec
from .precisions import LOW_TYPES
from .quantised import engine_complaint

CPU_BATCH: Final = 16
"""Images per batch of an evaluation on a CPU, where a larger batch is no faster and takes more memory."""


@dataclass(frozen=True)
class EngineInfo:
    """What runs the graph: backend ("onnxruntime-cpu"), device ("cpu"), precision ("fp32") and versions."""

    backend: str
    device: str
    precision: str
    detail: str


class Neighbour:
    """Another engine that shares the device with this one: here, none."""

    @property
    def busy(self) -> bool:
        """Whether it is being opened, in another thread. It does not begin while this engine is called."""
        return False

    def give_way(self) -> bool:
        """Closes it, where the device has too little memory for both; whether that released any."""
        return False


ALONE: Final = Neighbour()


@dataclass(frozen=True)
class EngineOptions:
    """Options of the GPU backends, and `throughput`, which is for the CPU backend.

    max_batch: largest number of images in one submission, for which buffers are allocated; a bundle that states a
    smaller `largest_batch` bounds it. build: whether a TensorRT plan may be built. pad: compute every batch at the
    largest size, with unused images that are cut off the scores: one shape for all, so that nothing is chosen or
    planned anew for the last batch. tf32: let float32 products round their inputs to TF32. device: number of the GPU.
    throughput: each thread computes separate images, so that large batches take less time, small ones more, and
    scores do not depend on the number of threads. say: receives messages about slow steps and fallbacks. neighbour:
    what else is open on the device; it gives way before a batch is halved.
    """

    max_batch: int = 64
    build: bool = True
    pad: bool = False
    tf32: bool = False
    device: int = 0
    throughput: bool = False
    say: Callable[[str], None] = lambda line: None
    neighbour: Neighbour = ALONE


def chosen_precision(bundle: Bundle, *, tf32: bool) -> str:
    """The precision of a bundle's graph, or "tf32". Raises EngineError for TF32 with a graph that is not float32."""
    precision = bundle.manifest.precision
    if tf32 and precision != "fp32":
        raise EngineError(f"TF32 is for float32 graphs, {bundle.name} holds {precision}; leave --tf32 out.")
    return "tf32" if tf32 else precision


@dataclass(frozen=True)
class Scores:
    """logits: float32 [B, Q]; saliency: float32 [B, Q, h, w], on the model's own grid, not normalised."""

    logits: NDArray[np.float32]
    saliency: NDArray[np.float32]


def joined_scores(parts: Sequence[Scores]) -> Scores:
    """The scores of the parts of one batch, in order."""
    if len(parts) == 1:
        return parts[0]
    return Scores(np.concatenate([part.logits for part in parts]), np.concatenate([part.saliency for part in parts]))


@dataclass(frozen=True, eq=False)
class Features:
    """What an engine keeps of a batch of images, to be asked several prompt sets (`Engine.encode`).

    pixels: uint8 [B, 1, S, S], the batch, which must not change meanwhile. parts: the backend's own tensors, of the
    images in parts of the batch; None: the graph does not fall apart, and every question runs all of it.
    """

    pixels: NDArray[np.uint8]
    parts: tuple[Any, ...] | None


ImageFeatures = tuple[NDArray[Any], ...]
"""What `Engine.split` gives of one image: the backend's features as arrays."""


class Engine(ABC):
    """Base of all backends: it has the life cycle and the checks; a subclass implements `_open`, `_run` and `_close`.

    Use it as a context manager. `run` may be called from one thread at a time.
    """

    backend: str = ""
    splits: bool = False
    """Whether `split` can give features."""

    def __init__(self, bundle: Bundle, *, threads: int | None = None, options: EngineOptions | None = None) -> None:
        self.bundle = bundle
        self.threads = threads
        asked = options or EngineOptions()
        self.options = replace(asked, max_batch=bundle.manifest.batch_within(asked.max_batch))
        self._asked_batch = asked.max_batch
        self._info: EngineInfo | None = None
        self._inputs: tuple[TensorSpec, ...] = ()
        self._whole = ""

    @property
    def info(self) -> EngineInfo:
        """Raises EngineError before the engine is opened."""
        if self._info is None:
            raise EngineError(f"The engine for {self.bundle.name} is not open; use it in a with statement.")
        return self._info

    def complaint(self) -> str | None:
        """Why this engine must not run the bundle, a sentence; None if it may. Known before the engine is opened."""
        return engine_complaint(self.bundle.manifest, self.bundle.name, self.backend)

    def __enter__(self) -> Self:
        if self._info is None:
            complaint = self.complaint()
            if complaint is not None:
                raise EngineError(complaint)
            self._inputs = self.bundle.graph("image").inputs
            if self.options.max_batch < self._asked_batch:
                self.options.say(
                    f"{self.bundle.name}: batches of at most {self.options.max_batch} images instead of "
                    f"{self._asked_batch}, the largest that its bundle.json states as compared"
                )
            self._info = self._open()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._info is not None:
            self._info = None
            self._close()

    def run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """Scores of a batch.

        pixels: uint8 [B, 1, S, S], bright is radio-dense, prepared with the bundle's geometry; text: float32
        [Q, D...], the features of one prompt set. Raises EngineError for inputs that do not fit, when the backend
        fails, and when the logits are not finite. More images than the bundle's `largest_batch` are run in parts.
        """
        self._check("pixels", pixels, np.dtype(np.uint8), 0)
        self._check("text", text, np.dtype(np.float32), 1)
        pixels, text = np.ascontiguousarray(pixels), np.ascontiguousarray(text)
        return self._checked(joined_scores([self._run(part, text) for part in self._parts(pixels)]), pixels, text)

    def encode(self, pixels: NDArray[np.uint8]) -> Features:
        """What depends on the pixels alone, computed once for any number of `ask` (engines/README.md).

        pixels: as in `run`. The first call takes the graph apart, which takes as long as opening the engine. Where it
        does not fall apart, or its features are too large, the pixels are kept alone. Raises EngineError as `run`.
        """
        self._check("pixels", pixels, np.dtype(np.uint8), 0)
        pixels = np.ascontiguousarray(pixels)
        parts = list[Any]()
        for part in self._parts(pixels) if not self._whole else ():
            made = self._encode(part)
            if isinstance(made, str):
                self._run_whole(made)
                break
            parts.append(made)
        return Features(pixels, None if self._whole else tuple(parts))

    def ask(self, features: Features, text: NDArray[np.float32]) -> Scores:
        """The scores of a batch that this engine encoded: those of `run(pixels, text)`, to the bit or but for rounding.

        text: as in `run`. Raises EngineError as `run`.
        """
        if features.parts is None:
            return self.run(features.pixels, text)
        self._check("text", text, np.dtype(np.float32), 1)
        text = np.ascontiguousarray(text)
        scores = joined_scores([self._ask(part, text) for part in features.parts])
        return self._checked(scores, features.pixels, text)

    def _run_whole(self, why: str) -> None:
        """From now on every question runs all of the graph; it is said once."""
        if not self._whole:
            self._whole = why
            self.options.say(f"{self.bundle.name}: each prompt set computes the images again, because {why}")

    def split(self, features: Features) -> list[ImageFeatures] | None:
        """The features of each image alone, copied to the host's memory, for `join`; None where this engine, or the
        graph, has no features of single images."""
        return None

    def join(self, pixels: NDArray[np.uint8], images: Sequence[ImageFeatures]) -> Features:
        """The features of a batch from those of its images that `split` gave, perhaps of several batches.

        pixels: as in `run`, the same images in the same order.
        """
        raise self._lacks("join", "split")

    def _parts(self, pixels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        most = self.bundle.manifest.batch_within(len(pixels))
        return [pixels[start : start + most] for start in range(0, len(pixels), most)]

    def _checked(self, scores: Scores, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """The scores, which have the promised shapes and finite logits. Raises EngineError."""
        backend = self.info.backend
        batch, queries = pixels.shape[0], text.shape[0]
        wanted = ((batch, queries), (batch, queries, *self.bundle.manifest.grid))
        if (scores.logits.shape, scores.saliency.shape) != wanted:
            raise EngineError(
                f"{self.bundle.name} on {backend} returned logits {scores.logits.shape} and saliency "
                f"{scores.saliency.shape} instead of {wanted[0]} and {wanted[1]}; export the bundle again."
            )
        self.check_finite(scores.logits, text, lambda image: pixels[image])
        return scores

    def check_finite(
        self, logits: NDArray[np.float32], text: NDArray[np.float32], pixels: Callable[[int], NDArray[np.uint8]]
    ) -> None:
        """Raises EngineError if one of the logits [B, Q] is not finite.

        pixels: the model input uint8 [1, S, S] of an image of the batch; called only to find the layer whose numbers
        overflow in a half-precision graph.
        """
        if np.isfinite(logits).all():
            return
        from .backends.overflow import explain_overflow  # imports ONNX Runtime, so only when needed

        image, query = (int(n) for n in np.argwhere(~np.isfinite(logits))[0])
        advice = "check the checkpoint, or use --engine onnxruntime-cpu"
        if self.bundle.manifest.precision in LOW_TYPES:
            advice = explain_overflow(self.bundle, pixels(image), text)
        raise EngineError(
            f"{self.bundle.name} on {self.info.backend} returned a logit that is not finite (image {image} of the "
            f"batch, query {query}); {advice}."
        )

    def _check(self, name: str, array: NDArray[np.generic], dtype: np.dtype[np.generic], position: int) -> None:
        self.info  # noqa: B018 - raises before the engine is opened
        shape = self._inputs[position].shape
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

    def _encode(self, pixels: NDArray[np.uint8]) -> Any:
        """The features of one checked batch; a text, as here: why this engine runs every graph, or this one, whole."""
        return f"{self.info.backend} runs graphs whole"

    def _ask(self, part: Any, text: NDArray[np.float32]) -> Scores:
        """The scores of a batch, from what `_encode` gave."""
        raise self._lacks("_ask", "_encode")

    def _lacks(self, method: str, partner: str) -> EngineError:
        """What an engine of a third party says that has one of two methods."""
        return EngineError(f"{type(self).__name__} has {partner} and lacks {method}; add it to this engine.")

    @abstractmethod
    def _close(self) -> None:
        """Releases what `_open` took."""
