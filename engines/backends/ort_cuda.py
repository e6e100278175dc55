"""ONNX Runtime's CUDA provider: inputs and outputs bound by device pointer, all work in the engine's own stream.

The library copies nothing. CuPy owns the buffers and the stream; where CuPy cannot be used, a plain session that copies
from and to the host is used instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, EngineOptions, Scores, chosen_precision
from ..bundle import Bundle
from ..errors import EngineError, MissingExtraError
from ..precisions import LOW_TYPES
from .copying import CopyingEngine
from .cuda_libraries import lacking_libraries
from .device import DeviceEngine, DeviceScores, OutOfMemory, is_out_of_memory
from .gpu import gpu_reason, gpu_seen
from .graph_cut import too_large
from .ort_parts import EXTERNAL_DATA, OrtParts
from .ort_session import CPU_PROVIDER, IDENTITY, check_interface, load_onnxruntime, open_session
from .torch_reasons import one_line

_CUDA = "CUDAExecutionProvider"
_WARNING = 2  # the library's own default
_NONE = -1  # the library's number for a run that neither captures nor replays
_MOST_CAPTURES = 16  # of a session, which keeps them all: two slots, and again after the buffers or features moved
# Earlier versions wait for the GPU after each replay (onnxruntime pull request 28686 of May 2026). Then the host could
# not prepare the next batch meanwhile, which costs more than launches do.
_REPLAYS_WITHOUT_WAITING = (1, 28)
# The provider leaves arithmetic on shapes to the CPU on purpose; any other operation on the CPU has no CUDA kernel.
_SHAPES = frozenset(
    {"Add", "Cast", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand", "Gather", "Identity", "Mul"}
    | {"Range", "Reshape", "Shape", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"}
)


def cuda_engine(bundle: Bundle, *, threads: int | None = None, options: EngineOptions | None = None) -> Engine:
    """An `OrtCudaEngine`, or a `HostCudaEngine` where CuPy cannot be used."""
    reason = gpu_reason((options or EngineOptions()).device)
    if reason is None:
        return OrtCudaEngine(bundle, threads=threads, options=options)
    return HostCudaEngine(bundle, threads=threads, options=options, reason=reason)


def cuda_reason(device: int = 0) -> str | None:
    """None if ONNX Runtime really starts its CUDA provider on this GPU, else why not.

    The list of available providers is not enough: it names CUDA even where no driver exists, and the session then
    falls back to the CPU without an exception. So a session is opened, its providers are checked, and it runs once.
    """
    try:
        ort = load_onnxruntime()
    except MissingExtraError as error:
        return str(error)
    if _CUDA not in ort.get_available_providers():
        return "the installed onnxruntime is the CPU build; install xbench-fast[gpu] instead of xbench-fast[cpu]"
    # Not onnxruntime.preload_dlls(): it looks only next to its own package, and prints to standard output.
    built_for = str(getattr(ort, "cuda_version", "")).partition(".")[0]
    lacking = lacking_libraries(int(built_for)) if built_for.isdigit() else None
    ort.set_default_logger_severity(4)  # what it would print about libraries is said below, in a line
    try:
        session = open_session(IDENTITY, [(_CUDA, {"device_id": str(device)}), CPU_PROVIDER], 1)
        if _CUDA in session.get_providers():
            session.run(None, {session.get_inputs()[0].name: np.zeros(1, np.float32)})
            return None
    except Exception as error:  # see open_session
        words = " ".join(str(error).split())[:300]
        return f"{lacking} ({words})" if lacking else words
    finally:
        ort.set_default_logger_severity(_WARNING)
    if not gpu_seen():
        return "its CUDA provider does not start: there is no NVIDIA driver"
    return f"its CUDA provider does not start: {lacking or 'the NVIDIA driver, CUDA or cuDNN is of another version'}"


class OrtCudaEngine(DeviceEngine):
    """The image graph on ONNX Runtime's CUDA provider, in its own types; `options.tf32` lets float32 products use
    TF32.

    Where `options.pad` gives all batches one shape, the provider captures a launch that comes a second time, and
    replays it. It does so for graphs without control flow of which it runs everything but arithmetic on shapes, and
    refuses others when it loads them. A capture is valid for its addresses and has a number; others need another one.
    Unproven on hardware: it was written against the library's documentation, on a machine without a GPU.
    """

    backend = "onnxruntime-cuda"

    def _load(self) -> EngineInfo:
        info = _cuda_info(self, self.backend)
        release = tuple(int(part) for part in load_onnxruntime().__version__.split(".")[:2])
        self._open_session(capture=self.options.pad and release >= _REPLAYS_WITHOUT_WAITING)
        return replace(info, detail=f"{info.detail}, CUDA graphs") if self._capture else info

    def _open_session(self, *, capture: bool) -> None:
        self._unload()
        self._capture = capture
        stream = {"user_compute_stream": str(self.stream.ptr)}
        if capture:
            try:
                self._session = _cuda_session(self, provider={**stream, "enable_cuda_graph": "1"})
            except EngineError:
                self._capture = False
        if not self._capture:
            self._session = _cuda_session(self, provider=stream)
        self._bindings: dict[tuple[int, int, int], Any] = {}
        self._captures: dict[tuple[int, int, int], int] = {}
        self._numbers = iter(range(1, _MOST_CAPTURES + 1))
        self._how = {number: self._run_options(number) for number in range(-1, _MOST_CAPTURES + 1)}

    def _run_options(self, capture: int) -> Any:
        how = load_onnxruntime().RunOptions()
        how.log_severity_level = 4
        # Without this every run waits for the GPU.
        how.add_run_config_entry("disable_synchronize_execution_providers", "1")
        if self._capture:
            how.add_run_config_entry("gpu_graph_id", str(capture))
        return how

    def _enqueue(self, pixels: Any, text: Any, scores: DeviceScores, slot: int) -> None:
        key = (slot, *scores.logits.shape)
        own_buffer = pixels.data.ptr == self._buffers[slot][0].data.ptr
        binding = self._bindings.get(key) if own_buffer else None
        captures = len(self._captures)
        capture = _NONE if binding is None else self._capture_of(key)
        try:
            if binding is None:
                binding = self._bind(pixels, text, scores)
                if own_buffer:
                    self._bindings[key] = binding
            self._session.run_with_iobinding(binding, self._how[capture])
        except Exception as error:  # see open_session
            failure = _failure(self.bundle, self.backend, error)
            if len(self._captures) == captures or isinstance(failure, OutOfMemory):
                raise failure from error
            self.options.say(
                f"{self.bundle.name}: runs without CUDA graphs, because capturing one failed ({one_line(error)})"
            )
            self._open_session(capture=False)
            self._enqueue(pixels, text, scores, slot)

    def _capture_of(self, key: tuple[int, int, int]) -> int:
        """The number of the capture for a launch that was made before; _NONE for a launch without one.

        While the next engine is opened in another thread, nothing is captured: what it allocates would end the capture.
        """
        if self._capture and key not in self._captures and not self.options.neighbour.busy:
            number = next(self._numbers, _NONE)
            if number != _NONE:
                self._captures[key] = number
        return self._captures.get(key, _NONE)

    def _bind(self, pixels: Any, text: Any, scores: DeviceScores) -> Any:
        binding = self._session.io_binding()
        number = self.options.device
        for name, array, dtype in (("pixels", pixels, np.uint8), ("text", text, np.float32)):
            binding.bind_input(name, "cuda", number, dtype, tuple(array.shape), array.data.ptr)
        for name, array in (("logits", scores.logits), ("saliency", scores.saliency)):
            binding.bind_output(name, "cuda", number, np.float32, tuple(array.shape), array.data.ptr)
        return binding

    def _moved(self) -> None:
        self._bindings.clear()
        self._captures.clear()

    def _unload(self) -> None:
        # In this order: a binding belongs to its session.
        for name in ("_bindings", "_session"):
            if hasattr(self, name):
                delattr(self, name)


class HostCudaEngine(CopyingEngine):
    """The same graph where CuPy cannot be used, for `reason`: every batch is copied to the GPU and back."""

    backend = "onnxruntime-cuda"

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        options: EngineOptions | None = None,
        reason: str = "it is not asked for",
    ) -> None:
        super().__init__(bundle, threads=threads, options=options)
        self._reason = reason

    def _load(self) -> EngineInfo:
        info = _cuda_info(self, self.backend)
        self._session = _cuda_session(self)
        self._divided: OrtParts | None = None
        self.options.say(
            f"{self.bundle.name}: batches are copied to the GPU and back, because CuPy cannot be used: {self._reason}"
        )
        return info

    def _compute(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        try:
            return Scores(*self._session.run(["logits", "saliency"], {"pixels": pixels, "text": text}))
        except Exception as error:  # see open_session
            raise _failure(self.bundle, self.backend, error) from error

    def _compute_features(self, pixels: NDArray[np.uint8]) -> Any:
        if self._divided is None:
            divided = OrtParts.of(self.bundle.file("image"), lambda part: _cuda_session(self, part))
            if isinstance(divided, str):
                return divided
            self._divided = divided
        try:
            features = self._divided.encode(pixels)
        except Exception as error:  # see open_session
            raise _failure(self.bundle, self.backend, error) from error
        return too_large(features.size) or features

    def _compute_scores(self, features: Any, text: NDArray[np.float32]) -> Scores:
        assert self._divided is not None
        try:
            return self._divided.ask(features, text)
        except Exception as error:  # see open_session
            raise _failure(self.bundle, self.backend, error) from error

    def _close(self) -> None:
        del self._session
        self._divided = None


def _cuda_info(engine: Engine, backend: str) -> EngineInfo:
    """The engine's description. Raises EngineError when the provider does not start, or for TF32 with another type."""
    reason = cuda_reason(engine.options.device)
    if reason is not None:
        raise EngineError(f"onnxruntime-cuda cannot run here: {reason}.")
    precision = chosen_precision(engine.bundle, tf32=engine.options.tf32)
    device = f"cuda:{engine.options.device}"
    return EngineInfo(backend, device, precision, f"onnxruntime {load_onnxruntime().__version__}")


def _cuda_session(engine: Engine, part: bytes | None = None, provider: Mapping[str, str] | None = None) -> Any:
    """A session of the image graph, or of a part of it, that runs on the GPU. Raises OutOfMemory or EngineError."""
    bundle, options = engine.bundle, engine.options
    settings = {
        "device_id": str(options.device),
        "use_tf32": "1" if options.tf32 else "0",
        # By default algorithms are timed, for every new shape: slow at first, and another run may choose others, whose
        # sums have other last bits.
        "cudnn_conv_algo_search": "HEURISTIC",
        # Tensor cores take half-precision images with the channels last.
        "prefer_nhwc": "1" if bundle.manifest.precision in LOW_TYPES else "0",
        # An arena that grows by powers of two would take memory that CuPy needs.
        "arena_extend_strategy": "kSameAsRequested",
        **(provider or {}),
    }
    try:
        session = open_session(
            part or bundle.file("image"),
            [(_CUDA, settings), CPU_PROVIDER],
            engine.threads,
            entries={
                "session.record_ep_graph_assignment_info": "1",
                **({EXTERNAL_DATA: str(bundle.file("image").parent)} if part else {}),
            },
        )
    except EngineError as error:
        raise _failure(bundle, "onnxruntime-cuda", error) from error
    if _CUDA not in session.get_providers():
        raise EngineError(f"ONNX Runtime loaded {bundle.name} without CUDA; use --engine onnxruntime-cpu.")
    if part is None:
        check_interface(session, bundle.graph("image"), bundle)
    left = _on_cpu(session)
    if left and part is None:
        listed = ", ".join(f"{count} {operation}" for operation, count in sorted(left.items()))
        options.say(f"{bundle.name}: not all of it runs on the GPU, ONNX Runtime leaves to the CPU: {listed}")
    return session


def _on_cpu(session: Any) -> Counter[str]:
    """Operations the session runs on the CPU, except arithmetic on shapes; empty where the library does not show it."""
    ask = getattr(session, "get_provider_graph_assignment_info", None)
    if ask is None:
        return Counter()
    nodes = (node for part in ask() if part.ep_name == CPU_PROVIDER for node in part.get_nodes())
    return Counter(node.op_type for node in nodes if node.op_type not in _SHAPES)


def _failure(bundle: Bundle, backend: str, error: Exception) -> Exception:
    words = " ".join(str(error).split())
    if is_out_of_memory(words):
        return OutOfMemory(words)
    return EngineError(f"{bundle.name} failed on {backend}: {words[:600]}.")
