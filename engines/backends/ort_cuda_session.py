"""Sessions of ONNX Runtime on its CUDA provider, and whether that starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base import Engine, EngineInfo, chosen_precision
from ..bundle import Bundle
from ..errors import EngineError, MissingExtraError
from ..precisions import LOW_TYPES
from .cuda_libraries import lacking_libraries
from .gpu import gpu_seen
from .ort_parts import EXTERNAL_DATA
from .ort_session import CPU_PROVIDER, IDENTITY, check_interface, load_onnxruntime, open_session
from .out_of_memory import OutOfMemory, is_out_of_memory

_CUDA = "CUDAExecutionProvider"
_WARNING = 2  # the library's own default
# The provider leaves arithmetic on shapes to the CPU on purpose; any other operation on the CPU has no CUDA kernel.
_SHAPES = frozenset(
    {"Add", "Cast", "Concat", "Constant", "ConstantOfShape", "Div", "Equal", "Expand", "Gather", "Identity", "Mul"}
    | {"Range", "Reshape", "Shape", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"}
)


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


def cuda_info(engine: Engine, backend: str) -> EngineInfo:
    """The engine's description. Raises EngineError when the provider does not start, or for TF32 with another type."""
    reason = cuda_reason(engine.options.device)
    if reason is not None:
        raise EngineError(f"onnxruntime-cuda cannot run here: {reason}.")
    precision = chosen_precision(engine.bundle, tf32=engine.options.tf32)
    device = f"cuda:{engine.options.device}"
    return EngineInfo(backend, device, precision, f"onnxruntime {load_onnxruntime().__version__}")


def cuda_session(engine: Engine, part: bytes | None = None, provider: Mapping[str, str] | None = None) -> Any:
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
        raise failure(bundle, "onnxruntime-cuda", error) from error
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


def failure(bundle: Bundle, backend: str, error: Exception) -> Exception:
    words = " ".join(str(error).split())
    if is_out_of_memory(words):
        return OutOfMemory(words)
    return EngineError(f"{bundle.name} failed on {backend}: {words[:600]}.")
