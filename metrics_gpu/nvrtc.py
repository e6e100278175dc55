"""Compiles CUDA C++ at run time with NVRTC and loads it on a GPU; all kernels of this project are made this way.

CuPy's own compilation (`RawModule(code=...)`, operators of arrays) appends `-ftz=true` to the options: subnormals would
become zero, and counts would differ from the CPU's. Its binding of NVRTC, which is used here, passes `OPTIONS` and the
architecture on, and no more; it also finds the library (`engines.backends.gpu.load_cupy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

OPTIONS: Final = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true")
"""Options of every compilation, by NVRTC and by nvcc: nothing fused, subnormals kept, true division. The intrinsics
in the kernels do the same."""

_PACKAGE: Final = {
    12: "nvidia-cuda-nvrtc-cu12, which xbench-fast[gpu] includes",
    13: "nvidia-cuda-nvrtc, which xbench-fast[gpu-cuda13] includes",
}


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
    compiled = compile_source(cupy, source, name, str(cupy.cuda.Device().compute_capability))
    module = cupy.cuda.function.Module()
    module.load(compiled.cubin)
    return module


def compile_source(cupy: Any, source: str, name: str, capability: str) -> Compiled:
    """Compiles `source` for a compute capability ("90") with CuPy's NVRTC; needs no GPU. Raises KernelError."""
    nvrtc = cupy.cuda.nvrtc
    try:
        program = nvrtc.createProgram(source, name, (), ())
    except (RuntimeError, OSError, ImportError) as error:  # as cuda-pathfinder, CuPy and the dynamic linker raise it
        cuda = cupy.cuda.runtime.runtimeGetVersion() // 1000
        package = _PACKAGE.get(cuda, "nvidia-cuda-nvrtc")
        raise KernelError(
            f"The compiler for GPU kernels, libnvrtc.so.{cuda}, is not found; install {package}."
        ) from error
    try:
        nvrtc.compileProgram(program, (*OPTIONS, f"--gpu-architecture=sm_{capability}"))
        return Compiled(nvrtc.getCUBIN(program), nvrtc.getPTX(program).rstrip(b"\0").decode("utf-8", "replace"))
    except RuntimeError as error:  # NVRTCError
        words = " ".join(str(nvrtc.getProgramLog(program)).split()) or str(error)
        raise KernelError(f"{name} does not compile for compute capability {capability}: {words[:600]}.") from error
    finally:
        nvrtc.destroyProgram(program)
