"""ONNX Runtime on the CPU: the engine that runs everywhere."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores, joined_scores
from ..errors import EngineError, MissingExtraError
from .ort_session import CPU_PROVIDER, IDENTITY, check_interface, graph_for_cpu, load_onnxruntime, open_session

_PAIR: Final = 2
"""Number of images that the graph gets, always."""

_AT_ONCE: Final = 4
"""Largest number of pairs computed at the same time: one pair alone leaves cores idle between its operations."""


def cpu_reason(device: int = 0) -> str | None:
    """None if ONNX Runtime can run on the CPU, else why not; it needs no GPU."""
    try:
        open_session(IDENTITY, [CPU_PROVIDER], 1)
    except (EngineError, MissingExtraError) as error:
        return str(error)
    return None


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

    def _open(self) -> EngineInfo:
        precision, apart = self.bundle.manifest.precision, self.options.throughput
        graph = graph_for_cpu(self.bundle.file("image"), precision)
        self._session = open_session(graph, [CPU_PROVIDER], 1 if apart else self.threads)
        check_interface(self._session, self.bundle.graph("image"), self.bundle)
        threads = self.threads or os.cpu_count() or 1
        at_once = threads if apart else min(_AT_ONCE, threads)
        self._submitters = ThreadPoolExecutor(at_once, thread_name_prefix="onnxruntime-cpu")
        return EngineInfo(self.backend, self.device, precision, f"onnxruntime {load_onnxruntime().__version__}")

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        batch = len(pixels)
        if batch % _PAIR:
            pixels = np.concatenate([pixels, pixels[-1:]])

        def run(start: int) -> Scores:
            pair = pixels[start : start + _PAIR]
            return Scores(*self._session.run(["logits", "saliency"], {"pixels": pair, "text": text}))

        starts = range(0, len(pixels), _PAIR)
        try:
            pairs = list(self._submitters.map(run, starts) if len(starts) > 1 else map(run, starts))
        except Exception as error:  # see open_session
            raise EngineError(f"{self.bundle.name} failed on {self.backend}: {error}") from error
        scores = joined_scores(pairs)
        return Scores(scores.logits[:batch], scores.saliency[:batch])

    def _close(self) -> None:
        self._submitters.shutdown()
        del self._session
