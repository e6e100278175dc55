"""The machine's upper limits, measured in the same run: a memory copy and a matrix product."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import EngineError
from ...metrics_gpu.nvrtc import KernelError
from ..host.machine_record import usable_cores

_ROUNDS = 5


@dataclass(frozen=True)
class CeilingSizes:
    """Bytes of the copied array, and the side of the square matrices."""

    copy: int
    side: int


CPU_SIZES = CeilingSizes(1 << 27, 1024)
GPU_SIZES = CeilingSizes(1 << 30, 8192)


@dataclass(frozen=True)
class Ceilings:
    """bandwidth: bytes per second of a copy, read and written both counted. products: multiply-accumulates per second
    of a matrix product, by the type of its factors."""

    device: str
    bandwidth: float
    products: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        tera = {precision: round(2 * rate / 1e12, 3) for precision, rate in self.products.items()}
        return {"device": self.device, "copy_gb_s": round(self.bandwidth / 1e9, 2), "product_tflop_s": tera}


def cpu_ceilings(sizes: CeilingSizes = CPU_SIZES) -> Ceilings:
    """NumPy's copy, and its float32 product with a thread for each core."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    source = rng.integers(0, 256, sizes.copy, np.uint8)
    target = np.empty_like(source)
    copy = _seconds(lambda: np.copyto(target, source), lambda: None)
    a, b = (rng.standard_normal((sizes.side, sizes.side)).astype(np.float32) for _ in range(2))
    out = np.empty_like(a)
    with threadpool_limits(usable_cores(), user_api="blas"):
        product = _seconds(lambda: np.matmul(a, b, out=out), lambda: None)
    return Ceilings("cpu", 2 * sizes.copy / copy, {"fp32": sizes.side**3 / product})


def gpu_ceilings(device: int = 0, sizes: CeilingSizes = GPU_SIZES) -> Ceilings:
    """CuPy's copy within the device, and its product of float32 and float16 matrices of random numbers.

    CuPy has no bfloat16; the supported GPUs multiply it as fast as float16. Takes 2 GiB of the device, and gives them
    back. Raises MissingExtraError and EngineError.
    """
    from ...engines.backends.gpu import load_cupy

    cupy = load_cupy()
    with gpu_errors(cupy, "Measuring the GPU"), cupy.cuda.Device(device):
        wait = cupy.cuda.get_current_stream().synchronize
        pool = cupy.get_default_memory_pool()
        source, target = (cupy.empty(sizes.copy, np.uint8) for _ in range(2))
        copy = _seconds(partial(cupy.copyto, target, source), wait)
        del source, target
        products = {}
        for precision, dtype in (("fp32", np.float32), ("fp16", np.float16)):
            pool.free_all_blocks()
            a, b = (cupy.asarray(_random_matrix(sizes.side, dtype, seed)) for seed in range(2))
            out = cupy.empty(a.shape, dtype)
            products[precision] = sizes.side**3 / _seconds(partial(cupy.matmul, a, b, out=out), wait)
            del a, b, out
        pool.free_all_blocks()
        products["bf16"] = products["fp16"]
        return Ceilings(f"cuda:{device}", 2 * sizes.copy / copy, products)


def _random_matrix(side: int, dtype: type[np.floating[Any]], seed: int) -> NDArray[Any]:
    """A square matrix whose rows repeat, as most of the time would go into drawing it; zeros multiply faster."""
    rows = min(side, 512)
    drawn = np.random.default_rng(seed).standard_normal((rows, side), np.float32).astype(dtype)
    return np.tile(drawn, (-(-side // rows), 1))[:side]


@contextmanager
def gpu_errors(cupy: Any, what: str) -> Iterator[None]:
    """Turns an exception of CUDA or of the kernels' compiler, raised while the GPU does `what`, into an EngineError."""
    try:
        yield
    except EngineError:
        raise
    except KernelError as error:
        raise EngineError(str(error)) from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.memory.OutOfMemoryError) as error:
        words = " ".join(str(error).split())
        raise EngineError(f"{what} failed: {words}; free the GPU, or measure less of it.") from error
    except (RuntimeError, ImportError, OSError) as error:  # a library is absent, as cuda-pathfinder or CuPy raise it
        words = " ".join(str(error).split())[:300]
        raise EngineError(f"{what} failed: {words}; xbench-fast doctor names the library that is lacking.") from error


def _seconds(work: Callable[[], object], wait: Callable[[], object]) -> float:
    """Median seconds of one call, after two warm-up calls."""
    seconds = []
    for turn in range(_ROUNDS + 2):
        start = time.perf_counter()
        work()
        wait()
        if turn >= 2:
            seconds.append(time.perf_counter() - start)
    return max(median(seconds), 1e-12)
