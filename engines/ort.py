"""ONNX Runtime: the engine that runs everywhere, on the CPU or through CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Engine, EngineInfo, Scores
from .bundle import Bundle
from .errors import EngineError, MissingExtraError
from .manifest import GraphSpec

__all__ = ["CpuEngine", "CudaEngine", "TextEncoder", "cpu_reason", "cuda_reason"]

# A graph of one Identity node: enough to see whether a provider really starts here.
_IDENTITY = bytes.fromhex(
    "08083a370a100a017812017922084964656e746974791201675a0f0a0178120a0a08080112040a020801620f0a0179120a0a08080112040a02"
    "080142040a001011"
)
_CUDA: list[Any] = [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]
_CPU: list[Any] = ["CPUExecutionProvider"]
_TYPES = {"uint8": "tensor(uint8)", "int64": "tensor(int64)", "float16": "tensor(float16)", "float32": "tensor(float)"}


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "onnxruntime is not installed; install xbench-fast[cpu], or xbench-fast[gpu] where there is an NVIDIA GPU."
        ) from error
    return onnxruntime


def _session(graph: Path | bytes, providers: Sequence[Any], threads: int | None) -> Any:
    ort = _onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 4  # failures arrive as exceptions; the library's own prints would only repeat them
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return ort.InferenceSession(
            graph if isinstance(graph, bytes) else str(graph), options, providers=list(providers)
        )
    except Exception as error:  # the library raises its own classes, which share no base but Exception
        raise EngineError(
            f"ONNX Runtime cannot load {graph if isinstance(graph, Path) else 'a graph'}: {error}"
        ) from error


def cpu_reason() -> str | None:
    """None if ONNX Runtime can run on the CPU, else why not."""
    try:
        _session(_IDENTITY, _CPU, 1)
    except (EngineError, MissingExtraError) as error:
        return str(error)
    return None


def cuda_reason() -> str | None:
    """None if ONNX Runtime really starts its CUDA provider here, else why not.

    The list of available providers proves nothing: it names CUDA even where no driver exists, and the session then
    falls back to the CPU without an exception. So one is opened and asked.
    """
    try:
        ort = _onnxruntime()
    except MissingExtraError as error:
        return str(error)
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return "the installed onnxruntime is the CPU build; install xbench-fast[gpu] instead of xbench-fast[cpu]"
    try:
        if hasattr(ort, "preload_dlls"):
            ort.preload_dlls()
        session = _session(_IDENTITY, _CUDA, 1)
    except EngineError as error:
        return str(error)
    if "CUDAExecutionProvider" not in session.get_providers():
        return "its CUDA provider does not start: no NVIDIA driver, or CUDA or cuDNN missing or of another version"
    return None


class CpuEngine(Engine):
    """The image graph on ONNX Runtime's CPU provider, in the graph's own precision."""

    backend = "onnxruntime-cpu"
    device = "cpu"
    _providers: Sequence[Any] = _CPU

    def _open(self) -> EngineInfo:
        self._session = _session(self.bundle.file("image"), self._providers, self.threads)
        _check_interface(self._session, self.bundle.graph("image"), self.bundle)
        return EngineInfo(self.backend, self.device, "fp32", f"onnxruntime {_onnxruntime().__version__}")

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        try:
            logits, saliency = self._session.run(["logits", "saliency"], {"pixels": pixels, "text": text})
        except Exception as error:  # see _session
            raise EngineError(f"{self.bundle.name} failed on {self.backend}: {error}") from error
        return Scores(logits, saliency)

    def _close(self) -> None:
        del self._session


class CudaEngine(CpuEngine):
    """The image graph on ONNX Runtime's CUDA provider, float32 without TF32."""

    backend = "onnxruntime-cuda"
    device = "cuda:0"
    _providers = _CUDA

    def _open(self) -> EngineInfo:
        reason = cuda_reason()
        if reason is not None:
            raise EngineError(f"onnxruntime-cuda cannot run here: {reason}.")
        info = super()._open()
        if "CUDAExecutionProvider" not in self._session.get_providers():
            raise EngineError(f"ONNX Runtime loaded {self.bundle.name} without CUDA; use --engine onnxruntime-cpu.")
        return info


class TextEncoder:
    """The text tower of a bundle on ONNX Runtime's CPU provider."""

    def __init__(self, graph: Path, spec: GraphSpec, *, threads: int | None = None) -> None:
        self._session = _session(graph, _CPU, threads)
        self._names = [tensor.name for tensor in spec.inputs]

    @staticmethod
    def of(bundle: Bundle, *, threads: int | None = None) -> TextEncoder:
        """The encoder of a bundle. Raises BundleError if the bundle has no text graph."""
        return TextEncoder(bundle.file("text"), bundle.graph("text"), threads=threads)

    def run(self, ids: NDArray[np.int64], mask: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Features float32 [T, D...] of token ids int64 [T, L] and, if the model takes one, mask int64 [T, L].

        Raises EngineError when the ids do not fit the graph.
        """
        given = {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}
        if sorted(given) != sorted(self._names):
            raise EngineError(f"The text graph takes {', '.join(self._names)}, not {', '.join(given)}.")
        try:
            features: NDArray[np.float32] = self._session.run(["features"], given)[0]
        except Exception as error:  # see _session
            raise EngineError(f"The text graph failed: {error}") from error
        return features


def _check_interface(session: Any, spec: GraphSpec, bundle: Bundle) -> None:
    """The file must have the tensors bundle.json promises; dynamic axes may carry any name."""
    for kind, promised, found in (
        ("input", spec.inputs, session.get_inputs()),
        ("output", spec.outputs, session.get_outputs()),
    ):
        have = {t.name: (t.type, [n if isinstance(n, int) else None for n in t.shape]) for t in found}
        want = {t.name: (_TYPES[t.dtype], [n if isinstance(n, int) else None for n in t.shape]) for t in promised}
        if have != want:
            raise EngineError(
                f"{bundle.path / spec.file} has the {kind}s {have}, bundle.json promises {want}; export it again."
            )
