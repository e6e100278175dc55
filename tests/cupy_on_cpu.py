"""As much of CuPy as the sweep uses, over NumPy arrays, with its kernels run on the CPU from their own CUDA source.

What is tested this way is all but the device: the arguments and the launch that `sweep_cupy` builds, and the kernels'
arithmetic, indices and barriers.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from xbench_fast.metrics_gpu import nvrtc
from xbench_fast.metrics_gpu.nvrtc import OPTIONS
from xbench_fast.metrics_gpu.sweep import gpu as sweep_gpu

SHIM = Path(__file__).resolve().parent / "cuda_shim"
# The one option of the device that changes the arithmetic here is the one against fused products and sums.
FLAGS = [OPTIONS[0], "-ffp-contract=off", "-Wall", "-Werror", "-Wno-unknown-pragmas"]


class ndarray(np.ndarray):
    """An array that says it is CuPy's. It can be copied and cut into slices, and refuses what CuPy would compile code
    for, in which subnormals are zero: arithmetic, conversion, places from an array."""

    def __array_ufunc__(self, function, *_, **__):
        raise AssertionError(f"{function.__name__} of an array on a GPU: write a kernel")

    def __array_function__(self, function, *_, **__):
        raise AssertionError(f"{function.__name__} of an array on a GPU: write a kernel")

    def astype(self, *_, **__):
        raise AssertionError("an array on a GPU is converted: write a kernel")

    def __getitem__(self, place):
        assert not has_array(place), "an array on a GPU is gathered: write a kernel"
        return super().__getitem__(place)

    def __setitem__(self, place, values):
        assert not has_array(place), "an array on a GPU is scattered: write a kernel"
        assert self[place].flags.c_contiguous, "rows of an array on a GPU are copied: use memcpy2D"
        assert getattr(values, "dtype", self.dtype) == self.dtype, "an array on a GPU is converted: write a kernel"
        super().__setitem__(place, values)

    def get(self):
        return np.array(self.view(np.ndarray))

    @property
    def device(self):
        return DEVICE

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


ndarray.__module__ = "cupy"


def has_array(place):
    return any(isinstance(one, np.ndarray | list) for one in (place if isinstance(place, tuple) else (place,)))


class Within:
    """A stream or device: something to work in, which notes that it was entered."""

    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append(self)
        return self

    def __exit__(self, *_):
        return None

    def synchronize(self):
        return None


class Runtime:
    """The calls of the CUDA runtime that are made by address; `rows` are those copied."""

    memcpyDeviceToDevice = 3
    rows = 0

    def runtimeGetVersion(self):
        return 13020

    def memcpy2DAsync(self, dst, dpitch, src, spitch, width, height, kind, stream):
        assert kind == self.memcpyDeviceToDevice and stream is not None and width <= min(dpitch, spitch)
        for row in range(height):
            ctypes.memmove(dst + row * dpitch, src + row * spitch, width)
        self.rows += height


DEVICE = Within([])
DEVICE.id = 0
DEVICE.compute_capability = "90"


@contextmanager
def installed(cupy) -> Iterator[None]:
    """`cupy` instead of CuPy; the source is not compiled for a GPU, the one given must be whole."""

    def compiled(given, source, name, capability):
        assert "sweep(" in source and "#include" not in source
        assert given is cupy and (name, capability) == ("sweep.cu", "90")
        return nvrtc.Compiled(CUBIN, "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", cupy)
        patch.setattr(nvrtc, "compile_source", compiled)
        sweep_gpu._kernels.cache_clear()
        yield
    sweep_gpu._kernels.cache_clear()


CUBIN = b"machine code"


def compiler():
    return shutil.which("g++")


def build(target: Path, source: Path, *flags: str) -> Path:
    """The shim around `source`, a shared library or program at `target`."""
    command = [
        compiler(),
        *FLAGS,
        *flags,
        f'-DSWEEP_SOURCE="{source}"',
        "-o",
        str(target),
        str(SHIM / "sweep_shim.cpp"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return target


def fake_cupy(library: ctypes.CDLL, threads: int | None = None):
    """A module for `sys.modules["cupy"]`. threads: launch the sweep in blocks of this size, not the one asked for."""
    launches, allocators, stream = [], [], Within([])
    stream.ptr = 7

    class Module:
        def load(self, cubin):
            assert cubin == CUBIN

        def get_function(self, name):
            function = getattr(library, f"shim_{name}")
            function.restype = None

            def launch(grid, block, arguments):
                launches.append((name, grid, block))
                size = threads if threads and name == "sweep" else block[0]
                values = [ctypes.c_uint(grid[0]), ctypes.c_uint(size)]
                for value in arguments:
                    if isinstance(value, ndarray):
                        assert value.flags.c_contiguous
                        values.append(ctypes.c_void_p(value.ctypes.data))
                    else:
                        assert isinstance(value, np.integer)
                        values.append({4: ctypes.c_int, 8: ctypes.c_longlong}[value.itemsize](int(value)))
                function(*values)

            return launch

    def asarray(values, dtype=None):
        return np.asarray(values, dtype).view(ndarray)

    def empty(shape, dtype):
        """Never zeros: whatever is not written shows."""
        array = np.empty(shape, dtype)
        array.view(np.uint8)[...] = 99
        return array.view(ndarray)

    return SimpleNamespace(
        ndarray=ndarray,
        asarray=asarray,
        ascontiguousarray=lambda values: np.ascontiguousarray(values).view(ndarray),
        zeros=lambda shape, dtype: np.zeros(shape, dtype).view(ndarray),
        empty=empty,
        cuda=SimpleNamespace(
            get_current_stream=lambda: stream,
            Device=lambda: DEVICE,
            function=SimpleNamespace(Module=Module),
            runtime=Runtime(),
            set_allocator=allocators.append,
        ),
        allocators=allocators,
        launches=launches,
    )
