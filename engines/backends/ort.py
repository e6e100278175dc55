"""ONNX Runtime on the CPU: the engine that runs everywhere, and the text towers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, Scores
from ..bundle import Bundle
from ..errors import EngineError, MissingExtraError
from ..manifest import GraphSpec
from ..rounding import with_rounding
from .ort_session import CPU_PROVIDER, IDENTITY, check_interface, load_onnxruntime, open_session

__all__ = ["CpuEngine", "TextEncoder", "cpu_reason"]


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
    # The library multiplies a matrix of one row by code of its own, which adds in another order. As one of two, an
    # image gets the same bits in a batch of any size, so that a server's answer equals an evaluation's.
    _least = 2

    def _open(self) -> EngineInfo:
        precision = self.bundle.manifest.precision
        graph = _for_cpu(self.bundle.file("image"), precision)
        self._session = open_session(graph, [CPU_PROVIDER], self.threads)
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


class TextEncoder:
    """The text tower of a bundle on ONNX Runtime's CPU provider, `precision` as for `CpuEngine`."""

    def __init__(self, graph: Path, spec: GraphSpec, *, threads: int | None = None, precision: str = "fp32") -> None:
        self._session = open_session(_for_cpu(graph, precision), [CPU_PROVIDER], threads)
        self._names = [tensor.name for tensor in spec.inputs]

    @staticmethod
    def of(bundle: Bundle, *, threads: int | None = None) -> TextEncoder:
        """The encoder of a bundle. Raises BundleError if the bundle has no text graph."""
        precision = bundle.manifest.precision
        return TextEncoder(bundle.file("text"), bundle.graph("text"), threads=threads, precision=precision)

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Features float32 [T, D...] of token ids int64 [T, L] and, if the model takes one, mask int64 [T, L].

        Raises EngineError when the ids do not fit the graph.
        """
        given = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
        if sorted(given) != sorted(self._names):
            raise EngineError(f"The text graph takes {', '.join(self._names)}, not {', '.join(given)}.")
        try:
            features: NDArray[np.float32] = self._session.run(["features"], given)[0]
        except Exception as error:  # see open_session
            raise EngineError(f"The text graph failed: {error}") from error
        return features


def _for_cpu(graph: Path, precision: str) -> Path | bytes:
    return with_rounding(graph) if precision == "bf16" else graph
