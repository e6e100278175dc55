"""The NVIDIA GPU of this machine, and the packages and libraries that reach it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import EngineError, MissingExtraError

__all__ = ["Gpu", "current_gpu", "gpu_reason", "gpu_seen", "lacking_libraries", "load_cupy"]

_EXTRAS: Final = {12: "xbench-fast[gpu]", 13: "xbench-fast[gpu-cuda13]"}
_CUFFT: Final = {12: 11, 13: 12}

_DRIVER: Final = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
"""Where the driver shows itself on Linux, in a container, and under Windows."""


@dataclass(frozen=True)
class Gpu:
    """The device a plan is for: marketing name and compute capability ("9.0")."""

    name: str
    capability: str


def lacking_libraries(cuda: int) -> str | None:
    """Loads the libraries of a CUDA (12, 13) that ONNX Runtime and CuPy look for by name; None, or which are not found.

    Libraries of packages that were installed with pip's --target are found too, which neither of the two does. Nothing
    is printed.
    """
    by_cuda = (f"lib{name}.so.{cuda}" for name in ("cudart", "nvrtc", "cublasLt", "cublas"))  # each after its needs
    others = (f"libcufft.so.{_CUFFT.get(cuda, cuda - 1)}", "libcurand.so.10", "libcudnn.so.9")
    absent = [name for name in (*by_cuda, *others) if not _loaded(name)]
    if not absent:
        return None
    listed = " and ".join(filter(None, (", ".join(absent[:-1]), absent[-1])))
    advice = _EXTRAS.get(cuda, f"the packages of CUDA {cuda}")
    return f"{listed} {'is' if len(absent) == 1 else 'are'} not found; install {advice}"


def _loaded(name: str) -> bool:
    for path, mode in _places(name):
        try:
            ctypes.CDLL(path, mode)
        except OSError:
            continue
        return True
    return False


def _places(name: str) -> Iterator[tuple[str, int]]:
    """Where a library may be, and how to open it there."""
    yield name, os.RTLD_NOLOAD
    for folder in sys.path:
        for path in sorted(Path(folder).glob(f"nvidia/*/lib/{name}")):
            yield str(path), ctypes.DEFAULT_MODE
    yield name, ctypes.DEFAULT_MODE
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = str(load_nvidia_dynamic_lib(name.removeprefix("lib").partition(".")[0]).abs_path)
    except (ImportError, RuntimeError, OSError):  # it is not installed, or does not find it
        return
    if Path(found).name.startswith(name):
        yield found, ctypes.DEFAULT_MODE


def load_cupy() -> Any:
    """The CuPy module, with the compiler of its own CUDA loaded. Raises MissingExtraError when it is not installed,
    EngineError when it does not load."""
    try:
        import cupy

        # CuPy looks only where pip installs by default, and takes CUDA 13's before its own; what is loaded, it takes
        # before both.
        _loaded(_compiler(cupy))
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "CuPy is not installed; install xbench-fast[gpu] (CUDA 12) or xbench-fast[gpu-cuda13] (CUDA 13)."
        ) from error
    except (ImportError, OSError, RuntimeError) as error:  # a library of it is missing or does not fit
        words = " ".join(str(error).split())[:300]
        raise EngineError(f"CuPy is installed but does not load ({words}); install it again.") from error
    return cupy


def gpu_reason() -> str | None:
    """None if CuPy finds a GPU that it can use and the compiler for its kernels, else why not."""
    try:
        cupy = load_cupy()
        if cupy.cuda.runtime.getDeviceCount() < 1:
            return "there is no NVIDIA GPU"
        cupy.cuda.Device(0).compute_capability  # noqa: B018  # starts the runtime, which fails with an old driver
        return _compiler_reason(cupy)
    except (MissingExtraError, EngineError) as error:
        return str(error)
    except Exception as error:  # CuPy's CUDARuntimeError exists only once CuPy is imported
        text = " ".join(str(error).split())
        if "InsufficientDriver" in text:
            return "there is no NVIDIA driver, or it is too old for the CUDA that CuPy was built for"
        return f"CUDA does not start ({text})"


def _compiler(cupy: Any) -> str:
    """The file of NVRTC, of the CUDA that CuPy is built for."""
    return f"libnvrtc.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}"


def _compiler_reason(cupy: Any) -> str | None:
    """None if CuPy can load NVRTC, which compiles its kernels and ours."""
    try:
        cupy.cuda.nvrtc.getVersion()
    except (RuntimeError, OSError, ImportError):  # cuda-pathfinder's DynamicLibNotFoundError is a RuntimeError
        name = _compiler(cupy)
        extra = _EXTRAS.get(int(name.rpartition(".")[2]), "nvidia-cuda-nvrtc")
        return f"CuPy finds no compiler for its kernels, {name}; install {extra}"
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
