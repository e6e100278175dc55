"""The fused sweep on a GPU, through CuPy: one launch for a batch, compiled at run time (`nvrtc`) from `sweep.cu`.

The integers equal the CPU's (`sweep.sweep`). Both check their arguments by the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..nvrtc import load_kernels
from .arguments import check_frames, check_maps, grid_size
from .counts import Counts, PackedCounts, packed_size
from .gpu_tables import DeviceTables
from .masks import GRID
from .sweep_options import Sweeping

THREADS: Final = 256  # a block, as sweep_map.cu defines it


def source() -> str:
    """CUDA C++ source of the kernels `sweep`, `pack_rows` and `mean_maps`, both files as one."""
    folder = files(__package__)
    kernel, helpers = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("sweep.cu", "sweep_map.cu"))
    before, include, after = kernel.partition('#include "sweep_map.cu"')
    assert include, "sweep.cu does not include sweep_map.cu"
    return before + helpers + after.partition("\n")[2]


@dataclass(frozen=True, eq=False)
class _Kernels:
    module: Any
    tables: DeviceTables


@lru_cache
def _kernels(device: int) -> _Kernels:
    """The kernels, compiled for a device and loaded there, and the tables they read. `device` is CuPy's current one."""
    import cupy

    return _Kernels(load_kernels(cupy, source(), "sweep.cu"), DeviceTables(cupy))


def sweep_on_gpu(
    saliency: Any,
    masks: Any,
    size: tuple[int, int] | None,
    frames: Any,
    sweeping: Sweeping,
    stream: Any = None,
) -> Counts:
    """`sweep.sweep` of CuPy arrays; the counts are CuPy arrays on the same device, ready once the stream reaches them.

    saliency: cupy float32 [P, h, w]. masks: cupy bool [P, H, W], or packed uint8 with `size`. frames: NumPy or CuPy
    float64 [P, 4] or None.
    Raises TypeError and ValueError as `sweep.sweep`, TypeError if only one of maps and masks is on the GPU, and
    KernelError if the kernels cannot be compiled.
    """
    import cupy

    if not isinstance(masks, cupy.ndarray) or masks.dtype not in (np.bool_, np.uint8):
        raise TypeError("masks must be a bool or a packed uint8 CuPy array where the saliency is a CuPy array")
    height, width = grid_size(masks, size, GRID)
    pairs = len(masks)
    check_maps(saliency, pairs)
    spans = check_frames(frames.get() if isinstance(frames, cupy.ndarray) else frames, pairs)
    with saliency.device, stream if stream is not None else cupy.cuda.get_current_stream():
        counts = PackedCounts(cupy.empty(packed_size(pairs), np.uint8), pairs)  # the kernel writes every element
        if pairs == 0:
            return counts
        kernels = _kernels(int(saliency.device.id))
        words = _words(cupy, kernels, masks, width)
        tables = kernels.tables
        numbers = (*saliency.shape[1:], height, width, words.shape[2], sweeping.normalisation_number)
        kernels.module.get_function("sweep")(
            (pairs,),
            (THREADS,),
            (
                cupy.ascontiguousarray(saliency),
                words,
                *tables.axes(spans, saliency.shape[1:], (height, width), sweeping.upsample),
                tables.thresholds(sweeping.thresholds),
                *(np.int32(number) for number in numbers),
                *(getattr(counts, field.name) for field in fields(Counts)),  # in the kernel's order
            ),
        )
    return counts


def mean_maps(saliency: Any, starts: NDArray[np.integer], places: NDArray[np.integer]) -> Any:
    """The mean of the maps in a list for each of P pairs, cupy float32 [P, h, w], enqueued in the current stream.

    saliency: cupy float32 [M, h, w], contiguous. starts: [P + 1], where the list of each pair begins in `places`, which
    are numbers of maps. The mean is taken in float64, in the order of the list, and rounded once; a list of one is that
    map. Not by CuPy's operators: what CuPy compiles takes subnormals for zero.
    """
    import cupy

    pairs = len(starts) - 1
    means = cupy.empty((pairs, *saliency.shape[1:]), np.float32)
    if means.size == 0:
        return means
    lists = cupy.asarray(np.concatenate([starts, places]).astype(np.int32))
    cells = np.int32(means[0].size)
    rows = (saliency, lists[: pairs + 1], lists[pairs + 1 :], cells, np.int64(means.size), means)
    blocks = (means.size + THREADS - 1) // THREADS
    _kernels(int(saliency.device.id)).module.get_function("mean_maps")((blocks,), (THREADS,), rows)
    return means


def _words(cupy: Any, kernels: _Kernels, masks: Any, width: int) -> Any:
    """Masks as rows of 32-bit words, lowest bit first: cupy uint32 [P, H, ceil(W / 32)]."""
    pairs, height = masks.shape[:2]
    stride = (width + 31) // 32
    if masks.dtype == np.uint8:
        contiguous = cupy.ascontiguousarray(masks)
        if masks.shape[2] == 4 * stride and contiguous.data.ptr % 4 == 0:  # the words are there already
            return contiguous.view(np.uint32)
        padded, count = cupy.zeros((pairs, height, 4 * stride), np.uint8), masks.shape[2]
        # A copy of the driver: CuPy's would be compiled, for which it needs CUDA's headers.
        runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream()
        rows = (padded.data.ptr, 4 * stride, contiguous.data.ptr, count, count, pairs * height)
        runtime.memcpy2DAsync(*rows, runtime.memcpyDeviceToDevice, stream.ptr)
        return padded.view(np.uint32)
    words = cupy.zeros((pairs, height, stride), np.uint32)
    blocks = (words.size + THREADS - 1) // THREADS
    flags = (cupy.ascontiguousarray(masks), words, np.int64(pairs * height), np.int32(width), np.int32(stride))
    kernels.module.get_function("pack_rows")((blocks,), (THREADS,), flags)
    return words
