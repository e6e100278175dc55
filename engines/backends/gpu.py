"""The NVIDIA GPU of this machine, and the packages that reach it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import EngineError, MissingExtraError

__all__ = ["Gpu", "current_gpu", "gpu_reason", "gpu_seen", "load_cupy"]

_DRIVER: Final = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
"""Where the driver shows itself on Linux, in a container, and under Windows."""


@dataclass(frozen=True)
class Gpu:
    """The device a plan is for: marketing name and compute capability ("9.0")."""

    name: str
    capability: str


def load_cupy() -> Any:
    """The CuPy module. Raises MissingExtraError when it is not installed."""
    try:
        import cupy
    except ImportError as error:
        raise MissingExtraError(
            "CuPy is not installed; install xbench-fast[gpu] (CUDA 12) or xbench-fast[gpu-cuda13] (CUDA 13)."
        ) from error
    return cupy


def gpu_reason() -> str | None:
    """None if CuPy finds a GPU that it can use, else why not."""
    try:
        cupy = load_cupy()
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return "there is no NVIDIA GPU"
        cupy.cuda.Device(0).compute_capability  # noqa: B018  # starts the runtime, which fails with an old driver
    except MissingExtraError as error:
        return str(error)
    except Exception as error:  # CuPy's CUDARuntimeError exists only once CuPy is imported
        text = " ".join(str(error).split())
        if "InsufficientDriver" in text:
            return "there is no NVIDIA driver, or it is too old for the CUDA that CuPy was built for"
        return f"CUDA does not start ({text})"
    return None


def gpu_seen() -> bool:
    """Whether this machine has an NVIDIA GPU, usable or not, as far as its driver shows."""
    return any(Path(place).exists() for place in _DRIVER)


def current_gpu(device: int = 0) -> Gpu:
    """Name and compute capability of a GPU. Raises EngineError when there is none."""
    reason = gpu_reason()
    if reason is not None:
        raise EngineError(f"No GPU can be used: {reason}.")
    properties = load_cupy().cuda.runtime.getDeviceProperties(device)
    name = properties["name"]
    text = name.decode() if isinstance(name, bytes) else str(name)
    return Gpu(text, f"{properties['major']}.{properties['minor']}")
