"""Compiles CUDA C++ at run time with NVRTC and loads it on a GPU; all kernels of this project are made this way.

CuPy's own compilation (`RawModule(code=...)`) appends `-ftz=true` to the options that it is given: subnormal numbers
would become zero, and counts would differ from the CPU's. Here NVRTC gets `OPTIONS` and the architecture, and no more.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["OPTIONS", "Compiled", "KernelError", "compile_source", "find_nvrtc", "load_kernels"]

OPTIONS: Final = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true")
"""Options of every compilation, by NVRTC and nvcc alike: nothing fused, subnormals kept, true division. The intrinsics
in the kernels do the same."""

_EXTRA: Final = {12: "gpu", 13: "gpu-cuda13"}


class KernelError(RuntimeError):
    """A kernel cannot be compiled: NVRTC is missing or does not take the source. The message says what to do."""


@dataclass(frozen=True)
class Compiled:
    """cubin: machine code of one architecture; ptx: the assembler text that it was made from."""

    cubin: bytes
    ptx: str


def load_kernels(cupy: Any, source: str, name: str) -> Any:
    """The kernels of `source` on CuPy's current device: an object with `get_function(name)`, to be kept per device.

    name: of the source, for messages. Compiles each time, in half a second; nothing is kept on disk. Raises
    KernelError, and CuPy's errors when the device refuses the code.
    """
    cuda = cupy.cuda.runtime.runtimeGetVersion() // 1000
    compiled = compile_source(source, name, str(cupy.cuda.Device().compute_capability), cuda)
    module = cupy.cuda.function.Module()
    module.load(compiled.cubin)
    return module


def compile_source(source: str, name: str, capability: str, cuda: int) -> Compiled:
    """Compiles `source` for a compute capability ("90") with the NVRTC of a CUDA (12, 13). Raises KernelError."""
    nvrtc = find_nvrtc(cuda)
    program = ctypes.c_void_p()
    options = [option.encode() for option in (*OPTIONS, f"--gpu-architecture=sm_{capability}")]
    _checked(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None))
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if status:
            words = " ".join(_text(nvrtc, "ProgramLog", program).split()) or _word(nvrtc, status)
            raise KernelError(f"{name} does not compile for compute capability {capability}: {words[:600]}.")
        return Compiled(_bytes(nvrtc, "CUBIN", program), _text(nvrtc, "PTX", program))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def find_nvrtc(cuda: int) -> ctypes.CDLL:
    """NVRTC of a CUDA (12, 13): the one that is loaded, else of the packages on sys.path, else where cuda-pathfinder or
    the system finds it. Raises KernelError."""
    name = f"libnvrtc.so.{cuda}"
    for path, mode in _places(name):
        try:
            return ctypes.CDLL(path, mode)
        except OSError:
            continue
    package = "nvidia-cuda-nvrtc" if cuda >= 13 else f"nvidia-cuda-nvrtc-cu{cuda}"
    extra = f", which xbench-fast[{_EXTRA[cuda]}] includes" if cuda in _EXTRA else ""
    raise KernelError(f"The compiler for GPU kernels, {name}, is not found; install {package}{extra}.")


def _places(name: str) -> Iterator[tuple[str, int]]:
    """Where the library may be, and how to open it there."""
    yield name, os.RTLD_NOLOAD
    for folder in sys.path:  # also of packages that were installed with pip's --target
        for path in sorted(Path(folder).glob(f"nvidia/*/lib/{name}")):
            yield str(path), ctypes.DEFAULT_MODE
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        found = str(load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, RuntimeError, OSError):  # it is not installed, or does not find it
        found = ""
    if Path(found).name.startswith(name):
        yield found, ctypes.DEFAULT_MODE
    yield name, ctypes.DEFAULT_MODE


def _bytes(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    """What the library has made of a program: its "CUBIN", "PTX" or "ProgramLog"."""
    size = ctypes.c_size_t()
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _checked(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _text(nvrtc: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> str:
    return _bytes(nvrtc, what, program).rstrip(b"\0").decode("utf-8", "replace")


def _checked(nvrtc: ctypes.CDLL, status: int) -> None:
    if status:
        raise KernelError(f"NVRTC failed: {_word(nvrtc, status)}.")


def _word(nvrtc: ctypes.CDLL, status: int) -> str:
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    return str(nvrtc.nvrtcGetErrorString(status).decode())
