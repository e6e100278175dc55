"""ONNX Runtime on the CPU: the engine that runs everywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores
from ..errors import EngineError, MissingExtraError
from .ort_session import CPU_PROVIDER, IDENTITY, check_interface, graph_for_cpu, load_onnxruntime, open_session

__all__ = ["CpuEngine", "cpu_reason"]


def cpu_reason() -> str | None:
    """None if ONNX Runtime can run on the CPU, else why not."""
    try:
        open_session(IDENTITY, [CPU_PROVIDER], 1)
    except (EngineError, MissingExtraError) as error:
        return str(error)
    return None


class CpuEngine(Engine):
    """The image graph on ONNX Runtime's CPU provider.

    fp16 graphs run as that provider runs them: in float32, with less rounding than on a GPU. It has no bfloat16; a bf16
    graph runs with float32 operations whose results are rounded, which needs the package onnx.
    """

    backend = "onnxruntime-cpu"
    device = "cpu"
    # The library multiplies a matrix of one row with special code, which adds in another order. A single image runs in
    # a batch of two, so that it gets the same bits in a batch of any size: a server's answer equals an evaluation's.
    _least = 2

    def _open(self) -> EngineInfo:
        precision = self.bundle.manifest.precision
        self._session = open_session(graph_for_cpu(self.bundle.file("image"), precision), [CPU_PROVIDER], self.threads)
        check_interface(self._session, self.bundle.graph("image"), self.bundle)
        return EngineInfo(self.backend, self.device, precision, f"onnxruntime {load_onnxruntime().__version__}")

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        batch = len(pixels)
        if batch < self._least:
            pixels = np.repeat(pixels, self._least, axis=0)
        try:
            logits, saliency = self._session.run(["logits", "saliency"], {"pixels": pixels, "text": text})
        except Exception as error:  # see open_session
            raise EngineError(f"{self.bundle.name} failed on {self.backend}: {error}") from error
        return Scores(logits[:batch], saliency[:batch])

    def _close(self) -> None:
        del self._session
