"""What the loop around a GPU costs the host: 20,000 prepared images, 14 findings, about 2 regions an image.

    python benchmarks/device_loop.py [--cases 20000] [--rate 35000] [--batch 256] [--rows 1,3] [--json FILE]

The device is a clock: an engine in CuPy's place takes batch / rate seconds for a batch, and its events sleep until the
time at which it would be done. Copies, maps, sweep and launches take it no time, and the counts were computed before.
Reading prepared pixels and masks, the loop, rows, part files and their merging are those of `eval`, so the share of
`rate` that is reached is what the host allows, on this number of cores. Not in it: the launches of the sweep, copies
from memory that is not pinned, and a wait that spins, as CUDA's does, and so holds one core.

Each number of threads that make rows (`--rows`) is measured in turns, every measurement in a process of its own. Rates
are of the cell until its last part is on disk, and with merging. Processor time is given by thread, and by calls that
release the interpreter lock (as `host_loop.py` times them), in a separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import host_loop
import numpy as np
from xbench_fast.engines.backends import device
from xbench_fast.engines.backends.device import DeviceEngine
from xbench_fast.engines.base import EngineInfo, EngineOptions
from xbench_fast.engines.geometry import Geometry
from xbench_fast.metrics_gpu.grounding.protocols import protocol
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.data.cache.mask_store import MaskStore
from xbench_fast.runtime.data.cache.preparing import PreparedSet, prepare
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.images.contents import Contents
from xbench_fast.runtime.evaluation.cell import CellWork
from xbench_fast.runtime.evaluation.decoded_blocks import CaseReader
from xbench_fast.runtime.evaluation.gpu import device_cell, device_sweep
from xbench_fast.runtime.evaluation.measure import Measure
from xbench_fast.runtime.results.storage import CellFiles

GEOMETRY, GRID, THREADS, ONE = Geometry("squash", 224, 224, "bicubic"), (14, 14), 2, threading.Lock()


class Array(np.ndarray):
    """An array of the device. Copies of it to the host are made at once, those from the host not at all."""

    def set(self, values, stream=None):
        pass

    def get(self, stream=None, out=None, blocking=True):
        out[...] = self.view(np.ndarray)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


class Stream:
    """Work that was enqueued, as the time at which it is done."""

    ptr = 7

    def __init__(self, non_blocking=True):
        self.done = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def work(self, seconds):
        self.done = max(self.done, time.perf_counter()) + seconds

    def record(self, event):
        event.done = self.done
        return event

    def wait_event(self, event):
        self.done = max(self.done, event.done)

    def synchronize(self):
        sleep_until(self.done)


class Event:
    """A time of the device's clock."""

    def __init__(self, disable_timing=False):
        self.done = 0.0

    def synchronize(self):
        sleep_until(self.done)


def sleep_until(moment):
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)


def on_device(values, dtype=None):
    return np.asarray(values, dtype).view(Array)


def make_cupy():
    """As much of CuPy as the loop and `DeviceEngine` use."""
    here = Stream()
    return SimpleNamespace(
        ndarray=Array,
        empty=lambda shape, dtype: np.zeros(shape, dtype).view(Array),
        asarray=on_device,
        ascontiguousarray=lambda values: values,
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
        cuda=SimpleNamespace(
            Device=lambda number=0: here,
            Stream=Stream,
            Event=Event,
            alloc_pinned_memory=bytearray,
            memory=SimpleNamespace(OutOfMemoryError=MemoryError),
            runtime=SimpleNamespace(CUDARuntimeError=OSError, getDeviceCount=lambda: 1),
        ),
    )


class Clock(DeviceEngine):
    """An engine that computes nothing for the time that a batch takes."""

    backend = "clock"

    def __init__(self, rate, batch):
        shape = ("batch", 1, GEOMETRY.size, GEOMETRY.size)
        manifest = SimpleNamespace(geometry=GEOMETRY, grid=GRID, precision="fp16", batch_within=lambda count: count)
        bundle: Any = SimpleNamespace(
            name="clock", manifest=manifest, graph=lambda name: SimpleNamespace(inputs=[SimpleNamespace(shape=shape)])
        )
        super().__init__(bundle, options=EngineOptions(batch, pad=True))
        self.rate = rate

    def complaint(self):
        return None

    def _load(self):
        return EngineInfo(self.backend, "none", "fp16", "")

    def _enqueue(self, pixels, text, scores, slot):
        self.stream.work(len(pixels) / self.rate)

    def _unload(self):
        pass


def answers(most):
    """In the place of the sweep and of the mean over prompts: what they give for `most` pairs, cut to those asked."""
    rng = np.random.default_rng(2)
    maps = rng.random((most, *GRID), np.float32)
    masks = np.zeros((most, 224, 224), np.bool_)
    for mask, (top, left, height, width) in zip(masks, rng.integers(20, 100, (most, 4)).tolist(), strict=True):
        mask[top : top + height, left : left + width] = True
    counts = sweep(maps, masks)
    held = {name: on_device(getattr(counts, name)) for name in Counts.__dataclass_fields__}
    maps = on_device(maps)

    def swept(saliency, masks, **how):
        return Counts(**{name: values[: len(masks)] for name, values in held.items()})

    return swept, lambda saliency, ends, places: maps[: len(ends) - 1]


def timed(owner, name, spent, what):
    """Lets calls of a method add their thread's seconds to `spent`."""
    real = getattr(owner, name)

    def call(*args, **kwargs):
        start = time.thread_time()
        try:
            return real(*args, **kwargs)
        finally:
            with ONE:
                spent[what] += time.thread_time() - start

    setattr(owner, name, call)


def compute(cache, cases, out, options):
    """Runs one cell; its seconds by the wall clock until its parts are written and whole, and of threads."""
    count = len(host_loop.FINDINGS)
    prompts: Any = SimpleNamespace(
        findings=host_loop.FINDINGS, finding_of=np.arange(count), polarity=np.ones(count, np.int8),
        features=np.zeros((count, 1), np.float32),
    )  # fmt: skip
    spent, contents = defaultdict[str, float](float), Contents()
    cupy = sys.modules["cupy"] = make_cupy()
    for module in (device, device_cell, device_sweep):
        vars(module)["load_cupy"] = lambda: cupy
    vars(device)["gpu_reason"] = lambda number: None
    swept, vars(device_sweep)["mean_maps"] = answers(options.batch * count)
    vars(device_cell)["writers"] = lambda threads: options.writers
    with PreparedSet.open(cache, "bench", cases, [GEOMETRY]) as images:
        images.use(contents)
        with MaskStore.open(cache, "bench", cases, "the cases of this benchmark") as draw:
            names, files = {name: name for name in host_loop.FINDINGS}, CellFiles(out, "cell", "0" * 64)
            chunk = -(-host_loop.CHUNK // options.batch) * options.batch
            cell = CellWork(
                "model", "data", prompts, names, cases, files, images.source(GEOMETRY), options.batch, chunk, THREADS,
                contents=contents, draw=draw,
            )  # fmt: skip
            with Clock(options.rate, options.batch) as engine:
                measure, ended = Measure(protocol("default"), swept), list[float]()
                real = CellFiles.merge

                def merge(*arguments):
                    ended.extend((time.perf_counter(), time.thread_time()))
                    real(*arguments)

                CellFiles.merge = merge  # type: ignore[method-assign]
                wall, cpu, loop = time.perf_counter(), time.process_time(), time.thread_time()
                if options.side == "lock":
                    host_loop.time_released(spent)
                elif options.side == "whole":
                    timed(device_sweep.Started, "scored", spent, "rows")
                    timed(device_cell._Writer, "_write", spent, "rows")
                    timed(CaseReader, "begin", spent, "feed")
                device_cell.compute_on_device([cell], engine, measure, lambda done: None)
                whole, cpu = time.perf_counter() - wall, time.process_time() - cpu
                CellFiles.merge = real  # type: ignore[method-assign]
    spent["loop"], spent["merging"] = ended[1] - loop, time.thread_time() - ended[1]
    return ended[0] - wall, whole, cpu, spent, files.final


def side(options):
    """One measurement in this process; prints it as JSON."""
    code = SimpleNamespace(Boxes=Boxes, Case=Case)
    cases = host_loop.make_cases(code, options.folder / "images", options.cases)
    cache, wanted = options.folder / "cache", options.side
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        first, some = (cache, cases) if wanted == "prepare" else (Path(scratch) / "warm", cases[: host_loop.WARM])
        with PreparedSet.open(first, "bench", some, [GEOMETRY]) as images:
            prepare(images, range(len(some)), THREADS, lambda done: None)
        options.side = "warm"
        compute(first, some, Path(scratch) / "a", options)
        if wanted == "prepare":
            return
        options.side = wanted
        parts, whole, cpu, spent, final = compute(cache, cases, Path(scratch) / "b", options)
        rows = options.folder / f"rows-{options.writers}.parquet"
        final.replace(rows)
    each = 1e6 / len(cases)
    figures = {"images_per_s": len(cases) / parts, "with_merging_per_s": len(cases) / whole, "cpu_us": cpu * each}
    print(json.dumps({**figures, "us": {name: seconds * each for name, seconds in sorted(spent.items())}}))


def ask(what, options, folder, writers):
    command = [sys.executable, str(Path(__file__).resolve()), "--side", what, "--folder", str(folder)]
    for name, value in (("cases", options.cases), ("rate", options.rate), ("batch", options.batch)):
        command += [f"--{name}", str(value)]
    done = subprocess.run(
        [*command, "--writers", str(writers)], stdout=subprocess.PIPE, check=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    return json.loads(done.stdout) if done.stdout else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=35_000, help="images a second of the device [35000]")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rows", default="1,3", help="numbers of threads that make rows [1,3]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--writers", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side(options)
        return
    numbers, rounds = [int(number) for number in options.rows.split(",")], list[list[Any]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        host_loop.make_images(folder / "images", options.cases)
        ask("prepare", options, folder, numbers[0])
        for number in range(options.rounds):
            rounds.append([ask("whole", options, folder, writers) for writers in numbers])
            said = ", ".join(f"{one['images_per_s']:.0f}" for one in rounds[-1])
            print(f"round {number + 1}: {said} images/s", flush=True)
        locks = [ask("lock", options, folder, writers) for writers in numbers]
        for writers in numbers[1:]:
            host_loop.same_rows(folder / f"rows-{numbers[0]}.parquet", folder / f"rows-{writers}.parquet")
    report(options, numbers, rounds, locks)


def report(options, numbers, rounds, locks):
    from xbench_fast.runtime.benching.benchmark_record import write_record
    from xbench_fast.runtime.benching.timing import median_ratio

    figures = {name: getattr(options, name) for name in ("cases", "rate", "batch")}
    figures |= {"findings": len(host_loop.FINDINGS), "decoding_threads": THREADS, "rows_threads": {}}
    turns = list(zip(*rounds, strict=True))
    for writers, found, lock in zip(numbers, turns, locks, strict=True):
        rates = [one["images_per_s"] for one in found]
        one = {
            "images_per_s": rates,
            "share": median(rates) / options.rate,
            "times_the_first": median_ratio(rates, [each["images_per_s"] for each in turns[0]]),
            "with_merging_per_s": median(each["with_merging_per_s"] for each in found),
            "cpu_us": median(each["cpu_us"] for each in found),
            "thread_us": {name: median(each["us"][name] for each in found) for name in found[0]["us"]},
            "released_us": {name: value for name, value in lock["us"].items() if name not in ("loop", "merging")},
        }
        one["lock_us"] = lock["cpu_us"] - sum(one["released_us"].values())
        figures["rows_threads"][str(writers)] = one
        told = ", ".join(f"{name} {value:.1f}" for name, value in one["thread_us"].items())
        print(
            f"{writers} threads of rows: {median(rates):.0f} images/s, {one['share']:.2f} of the device; CPU "
            f"{one['cpu_us']:.1f} us an image ({told}), under the lock {one['lock_us']:.1f}"
        )
    if options.json:
        write_record(options.json, figures)


if __name__ == "__main__":
    main()
