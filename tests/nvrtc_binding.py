"""CuPy's binding of NVRTC, `cupy.cuda.nvrtc`, over the library alone: for tests where CuPy is not installed.

Names, arguments and results are those of CuPy 13.6 and 14.2. Needs no GPU, as theirs.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest


class NVRTCError(RuntimeError):
    """Its message is the status; the log of a compilation is asked for."""


class Binding:
    """`cupy.cuda.nvrtc` of an NVRTC."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"nvrtc{name}")(*arguments)
        if status:
            raise NVRTCError(f"{self._library.nvrtcGetErrorString(status).decode()} ({status})")

    def _bytes(self, name: str, program: int) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{name}Size", ctypes.c_void_p(program), ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{name}", ctypes.c_void_p(program), buffer)
        return buffer.raw

    def createProgram(self, src: str, name: str, headers: Any, include_names: Any) -> int:
        assert not headers and not include_names
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), src.encode(), name.encode(), 0, None, None)
        return program.value or 0

    def compileProgram(self, prog: int, options: Any) -> None:
        given = [option.encode() for option in options]
        self._call("CompileProgram", ctypes.c_void_p(prog), len(given), (ctypes.c_char_p * len(given))(*given))

    def getCUBIN(self, prog: int) -> bytes:
        return self._bytes("CUBIN", prog)

    def getPTX(self, prog: int) -> bytes:
        return self._bytes("PTX", prog)

    def getProgramLog(self, prog: int) -> str:
        return self._bytes("ProgramLog", prog).rstrip(b"\0").decode()

    def destroyProgram(self, prog: int) -> None:
        self._call("DestroyProgram", ctypes.byref(ctypes.c_void_p(prog)))


def compiling_cupy() -> Any:
    """CuPy as far as it compiles: the installed one, else its binding of the NVRTC that is here. Skips without both."""
    try:
        from xbench_fast.engines.backends.gpu import load_cupy

        return load_cupy()
    except Exception:  # not installed, or not for this machine
        from xbench_fast.engines.backends.cuda_libraries import load_library
    for cuda in (13, 12):
        if load_library(name := f"libnvrtc.so.{cuda}"):
            runtime = SimpleNamespace(runtimeGetVersion=lambda cuda=cuda: 1000 * cuda)
            return SimpleNamespace(cuda=SimpleNamespace(nvrtc=Binding(name), runtime=runtime))
    pytest.skip("NVRTC is not installed here")
