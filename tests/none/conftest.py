"""What several files here need: the sweep's CUDA source as a library of this machine's CPU, and a device over it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy_on_cpu
import device_on_cpu
import fake_tensorrt
import pytest
from xbench_fast.metrics_gpu.sweep import gpu as sweep_cupy


@pytest.fixture(scope="session")
def sweep_library(root: Path, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if cupy_on_cpu.compiler() is None:
        pytest.skip("no g++ here to run the CUDA source on the CPU")
    target = tmp_path_factory.mktemp("shim") / "sweep.so"
    return ctypes.CDLL(str(cupy_on_cpu.build(target, root / "metrics_gpu/sweep/sweep.cu", "-O2", "-fPIC", "-shared")))


@pytest.fixture
def device(sweep_library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CuPy with streams, and TensorRT, over a device made of arrays."""
    fake = device_on_cpu.fake_device(library=sweep_library)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "tensorrt", fake_tensorrt.make("11.4.0.106", fake.streams))
    sweep_cupy._kernels.cache_clear()
    yield fake
    sweep_cupy._kernels.cache_clear()
