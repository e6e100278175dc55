"""ONNX Runtime on the CPU: the engine that runs everywhere."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Features, ImageFeatures, Scores, joined_scores
from ..errors import EngineError, MissingExtraError
from .graph_cut import too_large
from .ort_parts import EXTERNAL_DATA, OrtParts, PartFeatures
from .ort_session import CPU_PROVIDER, IDENTITY, check_interface, graph_for_cpu, load_onnxruntime, open_session

_PAIR: Final = 2
"""Number of images that the graph gets, always."""

_AT_ONCE: Final = 4
"""Largest number of pairs computed at the same time: one pair alone leaves cores idle between its operations."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def cpu_reason(device: int = 0) -> str | None:
    """None if ONNX Runtime can run on the CPU, else why not; it needs no GPU."""
    try:
        open_session(IDENTITY, [CPU_PROVIDER], 1)
    except (EngineError, MissingExtraError) as error:
        return str(error)
    return None


@dataclass(frozen=True, eq=False)
class _Features:
    """Of `images` images, the last one perhaps twice: by pairs, or joined where the graph allows it."""

    images: int
    pairs: list[PartFeatures] | None
    joined: PartFeatures | None


class CpuEngine(Engine):
    """The image graph on ONNX Runtime's CPU provider.

    The order in which the library adds the terms of a matrix product depends on the number of rows: how it divides the
    product between threads and into blocks follows from the shapes, and a single row has different code. A batch is
    therefore computed in pairs, the last image twice where the number is odd, and a few pairs at the same time. So an
    image's scores have the same bits in a batch of any size. They still depend on the processor, the version of the
    library and the number of threads; the last no more where `options.throughput` gives each pair one thread. Threads
    then never wait for one another between the operations of a graph, but a pair alone has one core.

    fp16 graphs run as that provider runs them: in float32, with less rounding than on a GPU. It has no bfloat16; a bf16
    graph runs with float32 operations whose results are rounded, which needs the package onnx.
    """

    backend = "onnxruntime-cpu"
    device = "cpu"
    splits = True

    def _open(self) -> EngineInfo:
        precision, apart = self.bundle.manifest.precision, self.options.throughput
        self._session: Any = self._opened(self._graph())
        self._divided: OrtParts | None = None
        self._same_bits: dict[tuple[int, ...], bool] = {}
        check_interface(self._session, self.bundle.graph("image"), self.bundle)
        threads = self.threads or os.cpu_count() or 1
        at_once = threads if apart else min(_AT_ONCE, threads)
        self._submitters = ThreadPoolExecutor(at_once, thread_name_prefix="onnxruntime-cpu") if at_once > 1 else None
        return EngineInfo(self.backend, self.device, precision, f"onnxruntime {load_onnxruntime().__version__}")

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        if self._session is None:  # closed for its parts
            self._session = self._opened(self._graph())
        session = self._session

        def run(pair: NDArray[np.uint8]) -> Scores:
            return Scores(*session.run(["logits", "saliency"], {"pixels": pair, "text": text}))

        return _trimmed(self._at_once(run, _pairs(pixels)), len(pixels))

    def _encode(self, pixels: NDArray[np.uint8]) -> _Features | str:
        if self._divided is None:
            divided = OrtParts.of(self._graph(), self._opened)
            if isinstance(divided, str):
                return divided
            self._session, self._divided = None, divided  # the weights would be in memory twice
        pairs = self._at_once(self._divided.encode, _pairs(pixels))
        if fault := too_large(pairs[0].size):
            self._divided = None
            return fault
        joined = self._divided.joined(pairs) if len(pairs) > 1 else None
        return _Features(len(pixels), pairs if joined is None else None, joined)

    def _ask(self, part: _Features, text: NDArray[np.float32]) -> Scores:
        """The scores of all images at once, which reads the weights once and not for every pair; or by pairs, where the
        other shapes give other bits. That is seen once for each shape: the order of sums does not depend on values."""
        divided = self._divided
        assert divided is not None
        if part.joined is None:
            return _trimmed(self._at_once(lambda pair: divided.ask(pair, text), part.pairs or []), part.images)
        shape = (*part.joined.pixels.shape[:1], *text.shape)
        if self._same_bits.get(shape, True):
            (together,) = self._at_once(lambda every: divided.ask(every, text), [part.joined])
            if shape in self._same_bits:
                return _trimmed([together], part.images)
        every = range(0, len(part.joined.pixels), _PAIR)
        pairs = [divided.part(part.joined, start, start + _PAIR) for start in every]
        scores = joined_scores(self._at_once(lambda pair: divided.ask(pair, text), pairs))
        if shape not in self._same_bits:
            self._same_bits[shape] = all(
                np.array_equal(one, other, equal_nan=True)
                for one, other in ((scores.logits, together.logits), (scores.saliency, together.saliency))
            )
        return _trimmed([scores], part.images)

    def split(self, features: Features) -> list[ImageFeatures] | None:
        images = list[ImageFeatures]()
        for part in features.parts or ():
            assert self._divided is not None
            batch = part.joined or self._divided.joined(part.pairs)
            if batch is None:
                return None
            images += [self._divided.of_image(batch, place) for place in range(part.images)]
        return images or None

    def join(self, pixels: NDArray[np.uint8], images: Sequence[ImageFeatures]) -> Features:
        assert self._divided is not None
        parts, start = list[_Features](), 0
        for part in self._parts(pixels):
            chosen = _even(images[start : start + len(part)])
            batch = self._divided.collected(np.concatenate(_pairs(part)), chosen)
            alone = len(chosen) == _PAIR
            parts.append(_Features(len(part), [batch] if alone else None, None if alone else batch))
            start += len(part)
        return Features(pixels, tuple(parts))

    def _at_once(self, work: Callable[[Item], Result], pairs: Sequence[Item]) -> list[Result]:
        """What `work` gives of each pair, a few of them at the same time."""
        try:
            pool = self._submitters  # a single thread would only take over from this one for each pair
            return list(map(work, pairs) if pool is None or len(pairs) == 1 else pool.map(work, pairs))
        except Exception as error:  # see open_session
            raise EngineError(f"{self.bundle.name} failed on {self.backend}: {error}") from error

    def _graph(self) -> Path | bytes:
        return graph_for_cpu(self.bundle.file("image"), self.bundle.manifest.precision)

    def _opened(self, graph: Path | bytes) -> Any:
        folder = {EXTERNAL_DATA: str(self.bundle.file("image").parent)} if isinstance(graph, bytes) else None
        return open_session(graph, [CPU_PROVIDER], 1 if self.options.throughput else self.threads, entries=folder)

    def _close(self) -> None:
        if self._submitters is not None:
            self._submitters.shutdown()
        self._session = self._divided = None


def _pairs(pixels: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    if len(pixels) % _PAIR:
        pixels = np.concatenate([pixels, pixels[-1:]])
    return [pixels[start : start + _PAIR] for start in range(0, len(pixels), _PAIR)]


def _even(images: Sequence[ImageFeatures]) -> Sequence[ImageFeatures]:
    return [*images, images[-1]] if len(images) % _PAIR else images


def _trimmed(pairs: list[Scores], images: int) -> Scores:
    scores = joined_scores(pairs)
    return Scores(scores.logits[:images], scores.saliency[:images])
