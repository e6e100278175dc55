"""The NVIDIA GPU of this machine, and whether CuPy and its compiler can use it."""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ..errors import ConfigError, EngineError, MissingExtraError
from ..extras import CUDA_EXTRAS, missing_package
from .cuda_libraries import load_library

_COMPILERS: Final = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}
"""The package of NVRTC, by CUDA; the extras include it."""

_PROBE: Final = 'extern "C" __global__ void probe() {}'

_DRIVER: Final = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
"""Where the driver shows itself on Linux, in a container, and under Windows."""


@dataclass(frozen=True)
class Gpu:
    """The device a plan is for: marketing name and compute capability ("9.0")."""

    name: str
    capability: str


def load_cupy() -> Any:
    """The CuPy module, with the compiler of its own CUDA loaded. Raises MissingExtraError when it is not installed,
    EngineError when it does not load."""
    try:
        import cupy

        # CuPy looks only where pip installs by default, and takes CUDA 13's before its own; what is loaded, it takes
        # before both.
        load_library(f"libnvrtc.so.{_cuda(cupy)}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(missing_package("CuPy", *CUDA_EXTRAS.values())) from error
    except (ImportError, OSError, RuntimeError) as error:  # a library of it is missing or does not fit
        words = " ".join(str(error).split())[:300]
        raise EngineError(f"CuPy is installed but does not load ({words}); install it again.") from error
    return cupy


def gpu_reason(device: int = 0) -> str | None:
    """None if CuPy can use the GPU with this number and finds the compiler for its kernels, else why not.

    Raises EngineError where there are GPUs, but none with this number.
    """
    try:
        cupy = load_cupy()
        count = cupy.cuda.runtime.getDeviceCount()
        if count < 1:
            return "there is no NVIDIA GPU"
        if device < count:
            # This starts the runtime, which fails with an old driver.
            capability = str(cupy.cuda.Device(device).compute_capability)
            return _compiler_reason(cupy.cuda.nvrtc, _cuda(cupy), capability)
    except (MissingExtraError, EngineError) as error:
        return str(error)
    except Exception as error:  # CuPy's CUDARuntimeError exists only once CuPy is imported
        text = " ".join(str(error).split())
        if "InsufficientDriver" in text:
            return "there is no NVIDIA driver, or it is too old for the CUDA that CuPy was built for"
        return f"CUDA does not start ({text})"
    raise no_such_gpu(device, count)


def _cuda(cupy: Any) -> int:
    """The CUDA that CuPy is built for: 12, 13."""
    return int(cupy.cuda.runtime.runtimeGetVersion()) // 1000


@lru_cache(maxsize=8)  # a compilation takes 30 ms, and every engine of a run asks several times
def _compiler_reason(nvrtc: Any, cuda: int, capability: str) -> str | None:
    """None if `nvrtc`, CuPy's binding, compiles a small kernel for a compute capability ("90"), else why not.

    Asking for its version is not enough: it opens a part of itself, and learns about the GPU, only when it compiles.
    """
    name, package = f"libnvrtc.so.{cuda}", _COMPILERS.get(cuda, "nvidia-cuda-nvrtc")
    if cuda in CUDA_EXTRAS:
        package += f", which xbench-fast[{CUDA_EXTRAS[cuda]}] includes"
    try:
        program = nvrtc.createProgram(_PROBE, "probe.cu", (), ())
    except (RuntimeError, OSError, ImportError):  # cuda-pathfinder's DynamicLibNotFoundError is a RuntimeError
        return f"CuPy finds no compiler for its kernels, {name}; install {package}"
    try:
        nvrtc.compileProgram(program, (f"--gpu-architecture=sm_{capability}",))
        return None
    except RuntimeError as error:  # NVRTCError
        words = " ".join(str(nvrtc.getProgramLog(program)).split()) or str(error)
    finally:
        nvrtc.destroyProgram(program)
    part = re.search(r"failed to open (\S+\.so[.\d]*\d)", words)
    if part:
        return f"the compiler of CuPy's kernels, {name}, does not find its part {part[1]}; reinstall {package}"
    version = ".".join(map(str, nvrtc.getVersion()))
    if "gpu-architecture" in words:
        return (
            f"the compiler of CuPy's kernels, {name} ({version}), does not know compute capability "
            f"{capability[:-1]}.{capability[-1:]}; install a newer {package}"
        )
    return f"the compiler of CuPy's kernels, {name} ({version}), fails ({words[:300]}); reinstall {package}"


def gpu_seen() -> bool:
    """Whether this machine has an NVIDIA GPU, usable or not, as its driver shows."""
    return any(Path(path).exists() for path in _DRIVER)


def no_such_gpu(number: int, count: int) -> EngineError:
    """The error for a number that none of `count` GPUs has."""
    those = ("none", "one, number 0")[count] if count < 2 else f"{count}, numbers 0 to {count - 1}"
    return EngineError(f"There is no GPU {number}: this machine has {those}.")


def gpu_names() -> tuple[str, ...]:
    """The name of each GPU that CUDA shows this process, by number; empty without a driver that answers.

    The driver's library is asked, which honours CUDA_VISIBLE_DEVICES and needs no package.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count, name = ctypes.c_int(), ctypes.create_string_buffer(256)
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return ()
        names = []
        for number in range(count.value):
            driver.cuDeviceGetName(name, len(name), number)
            names.append(name.value.decode(errors="replace"))
    except (OSError, AttributeError):
        return ()
    return tuple(names)


def describe_gpu(number: int) -> dict[str, Any]:
    """A GPU for the record of a run: its number and its name, None where the driver does not answer."""
    return {"number": number, "name": dict(enumerate(gpu_names())).get(number)}


def check_gpu(number: int) -> None:
    """Raises ConfigError unless CUDA shows this process a GPU with this number."""
    names = gpu_names()
    if number < len(names):
        return
    listed = ", ".join(f"{place} ({name})" for place, name in enumerate(names)) or "none"
    among = ", of those in CUDA_VISIBLE_DEVICES" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
    raise ConfigError(f"There is no GPU {number}: CUDA finds {listed}{among}; xbench-fast doctor says more.")


def current_gpu(device: int = 0) -> Gpu:
    """Name and compute capability of a GPU. Raises EngineError when there is none."""
    reason = gpu_reason(device)
    if reason is not None:
        raise EngineError(f"No GPU can be used: {reason}.")
    properties = load_cupy().cuda.runtime.getDeviceProperties(device)
    name = properties["name"]
    text = name.decode() if isinstance(name, bytes) else str(name)
    return Gpu(text, f"{properties['major']}.{properties['minor']}")
