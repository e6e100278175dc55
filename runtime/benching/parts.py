"""Benchmarks of single parts: the sweep on the CPU and on the GPU, and the decoding of image files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.sweep.masks import pack_masks
from ...metrics_gpu.sweep.sweep import sweep
from .ceilings import Ceilings, gpu_errors
from .inputs import make_pairs
from .measurement import Limit, Measurement
from .oracle import check_counts, check_decode
from .plan import Plan
from .timing import timed

_DISTINCT = 1024  # different random pairs; more are repetitions of these, at other addresses
_CHECKED = 3


def host_sweep(plan: Plan, ceilings: Ceilings) -> Measurement:
    """The compiled sweep in one thread, maps and packed masks in memory."""
    grids, masks = _pairs(plan)
    packed = pack_masks(masks)
    fresh = _checked(plan, lambda maps, bits: sweep(maps, bits))

    def work(repeat: int) -> None:
        sweep(grids, packed)

    seconds = timed(work, plan.repeats, plan.seconds)
    return Measurement(
        "sweep",
        "14 x 14 to 224 x 224",
        "numba, one thread",
        len(grids),
        {"pairs": len(grids)},
        seconds,
        _limit(ceilings, grids, packed),
        problems=fresh,
    )


def gpu_sweep(plan: Plan, ceilings: Ceilings | None, device: int = 0) -> Measurement:
    """The kernel on maps and packed masks that are on the GPU; counts stay there. ceilings: None where they could not
    be measured."""
    from ...engines.backends.gpu import load_cupy

    cupy = load_cupy()
    with gpu_errors(cupy, "The sweep on the GPU"):
        return _gpu_sweep(cupy, plan, ceilings, device)


def _gpu_sweep(cupy: Any, plan: Plan, ceilings: Ceilings | None, device: int) -> Measurement:
    drawn, masks = _pairs(plan)
    times = -(-plan.pairs // len(drawn))
    with cupy.cuda.Device(device):
        wait = cupy.cuda.get_current_stream().synchronize
        grids = cupy.asarray(np.tile(drawn, (times, 1, 1))[: plan.pairs])
        packed = cupy.asarray(np.tile(pack_masks(masks), (times, 1, 1))[: plan.pairs])
        fresh = _checked(plan, lambda maps, bits: sweep(cupy.asarray(maps), cupy.asarray(bits)).on_host())

        def work(repeat: int) -> None:
            sweep(grids, packed)
            wait()

        seconds = timed(work, plan.repeats, plan.seconds)
    return Measurement(
        "sweep",
        "14 x 14 to 224 x 224",
        f"CUDA kernel through CuPy, cuda:{device}",
        plan.pairs,
        {"pairs": plan.pairs},
        seconds,
        None if ceilings is None else _limit(ceilings, drawn, pack_masks(masks[:1])),
        problems=fresh,
    )


def decode(plan: Plan, paths: list[Path]) -> Measurement:
    """Files to native grey pixels in `plan.threads` threads; the limit is Pillow in one thread times that number."""
    from ..data.images.decode import decode_ahead, read_grey

    problems = [reason for path in paths[:_CHECKED] if (reason := check_decode(path, read_grey(path)))]

    def work(repeat: int) -> None:
        for _ in decode_ahead(read_grey, paths, plan.threads, window=4 * plan.threads):
            pass

    seconds = timed(work, plan.repeats, plan.seconds)
    return Measurement(
        "decode",
        f"{len(paths)} files, the first {paths[0].suffix[1:].upper()}",
        f"{plan.threads} threads",
        None,
        {"images": len(paths)},
        seconds,
        _pillow_limit(paths, plan.threads),
        problems=problems,
    )


def _pairs(plan: Plan) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    return make_pairs(min(plan.pairs, _DISTINCT), np.random.default_rng([plan.seed, 6]))


def _checked(plan: Plan, run: Callable[[NDArray[np.float32], NDArray[np.uint8]], Any]) -> list[str]:
    """Sweeps new random pairs and compares their counts with a loop over pixels."""
    grids, masks = make_pairs(_CHECKED, np.random.default_rng([plan.seed, 7]))
    reason = check_counts(run(grids, pack_masks(masks)), grids, masks)
    return [reason] if reason else []


def _limit(ceilings: Ceilings, grids: NDArray[np.float32], packed: NDArray[np.uint8]) -> Limit:
    """Pairs per second if nothing but reading maps and masks and writing counts took time."""
    moved = grids[0].nbytes + packed[0].nbytes + 2 * 101 * 4 + 2 * 4 + 2
    return Limit(f"copy bandwidth over {moved} bytes a pair", ceilings.bandwidth / moved)


def _pillow_limit(paths: list[Path], threads: int) -> Limit | None:
    """The rate of Pillow in as many threads, if they did not slow each other down."""
    from PIL import Image

    readable = [path for path in paths if path.suffix.lower() in (".png", ".jpg", ".jpeg")][:32]
    if not readable:
        return None
    start = time.perf_counter()
    for path in readable:
        with Image.open(path) as image:
            image.load()
    rate = len(readable) / max(time.perf_counter() - start, 1e-12)
    return Limit(f"Pillow in one thread, times {threads}", threads * rate)
