"""Preparing images: `xbench-fast prepare` against the usual loop and careful code, and reading what is prepared.

    python benchmarks/prepare.py --png FOLDER [--dicom FOLDER] [--threads 2] [--rounds 5] [--json FILE]

The usual loop is that of research code, image by image in one thread: Pillow (for DICOM: pydicom's `pixel_array`),
convert to RGB, bicubic to 224. Careful code keeps grey and works in a pool of `--threads` processes, whose start is
not timed: Pillow, or, where OpenCV is installed, its decoder and Pillow's bicubic (OpenCV's own gives other pixels).
Ours is the code of the command, which also writes its files, in `--threads` threads. Rounds alternate, so that a busy
machine slows all; the wall-clock ratio needs idle cores, the ratio of processor time does not. Memory is the peak of a
process that prepares the same images under N and 8 N names.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import Clocked, clocked, median_ratio
from xbench_fast.runtime.data.cache.preparing import PreparedSet, prepare
from xbench_fast.runtime.data.datasets.dataset import Case

GEOMETRY = Geometry("squash", 224, 224, "bicubic")
NAMES = (50, 400)  # images of the two processes whose memory is compared
Pixels = NDArray[np.uint8]


def make_cases(paths: list[Path]) -> list[Case]:
    return [Case(f"{number}", path, {}, {}, "all") for number, path in enumerate(paths)]


def usual_loop(paths: list[Path]) -> Iterator[Pixels]:
    from PIL import Image

    for path in paths:
        if path.suffix == ".dcm":
            import pydicom

            image = Image.fromarray(pydicom.dcmread(path).pixel_array)
        else:
            image = Image.open(path)
        yield np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.BICUBIC))


def careful_pillow(path: Path) -> tuple[Pixels, float]:
    """The grey pixels that the model gets, and the CPU seconds they took."""
    from PIL import Image

    start = time.process_time()
    if path.suffix == ".dcm":
        import pydicom

        image = Image.fromarray(pydicom.dcmread(path).pixel_array)
    else:
        image = Image.open(path)
    pixels = np.asarray(image.convert("L").resize((224, 224), Image.Resampling.BICUBIC))
    return pixels, time.process_time() - start


def careful_opencv(path: Path) -> tuple[Pixels, float]:
    """As `careful_pillow`, with OpenCV's decoder; none of OpenCV's decoders reads DICOM."""
    import cv2
    from PIL import Image

    start = time.process_time()
    cv2.setNumThreads(1)
    image = Image.fromarray(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE))
    pixels = np.asarray(image.resize((224, 224), Image.Resampling.BICUBIC))
    return pixels, time.process_time() - start


CAREFUL = {"pillow_pool": careful_pillow, "opencv_pool": careful_opencv}


def pooled(pool: ProcessPoolExecutor, name: str, paths: list[Path], threads: int) -> Clocked[list[Pixels]]:
    """All images through a pool, with the CPU time of its processes."""
    chunk = max(1, len(paths) // (4 * threads))
    once = clocked(lambda: list(pool.map(CAREFUL[name], paths, chunksize=chunk)))
    pixels, seconds = zip(*once.result, strict=True)
    return Clocked(once.wall, once.cpu + sum(seconds), once.thread, list(pixels))


def careful_ways(paths: list[Path]) -> list[str]:
    """Those of CAREFUL that can be run here on these files."""
    readable = paths[0].suffix != ".dcm" and importlib.util.find_spec("cv2") is not None
    return [name for name in CAREFUL if name != "opencv_pool" or readable]


def fill(cache: Path, cases: list[Case], threads: int) -> None:
    with PreparedSet.open(cache, "bench", cases, [GEOMETRY]) as images:
        done = prepare(images, range(len(cases)), threads, lambda count: None)
    if done.decoded != len(cases):
        raise SystemExit(f"only {done.decoded} of {len(cases)} images could be decoded")


def read(cache: Path, cases: list[Case]) -> Pixels:
    """All prepared images, copied into one array like a batch."""
    with PreparedSet.open(cache, "bench", cases, [GEOMETRY]) as images:
        source = images.source(GEOMETRY)
        return np.stack([source(case)[0] for case in cases])


def compare(paths: list[Path], threads: int, rounds: int) -> dict[str, Any]:
    with ProcessPoolExecutor(threads, mp_context=multiprocessing.get_context("spawn")) as pool:
        return compare_with(pool, paths, threads, rounds)


def compare_with(pool: ProcessPoolExecutor, paths: list[Path], threads: int, rounds: int) -> dict[str, Any]:
    cases = make_cases(paths)
    ways = careful_ways(paths)
    rounds_of: dict[str, list[Clocked[Any]]] = {name: [] for name in ("usual", "prepare", "read", *ways)}
    for number in range(rounds + 1):
        careful = [pooled(pool, name, paths, threads) for name in ways]
        with tempfile.TemporaryDirectory() as folder:
            usual = clocked(lambda: list(usual_loop(paths)))
            ours = clocked(partial(fill, Path(folder), cases, threads))
            again = clocked(partial(read, Path(folder), cases))
        for pixels, kept in zip(usual.result, again.result, strict=True):
            # One side rounds a colour image's luminance before the resize, the other after it, hence the tolerance.
            if np.abs(pixels[..., 1].astype(int) - kept).max() > 3:
                raise SystemExit("the prepared pixels are not those of the usual loop")
        for name, pooled_once in zip(ways, careful, strict=True):
            if any(
                np.abs(kept - pixels.astype(int)).max() > 1
                for pixels, kept in zip(pooled_once.result, again.result, strict=True)
            ):
                raise SystemExit(f"the prepared pixels are not those of {name}")
        if number:  # the first round is a warm-up for files and imports
            rounds_done: tuple[Clocked[Any], ...] = (usual, ours, again, *careful)
            for name, once in zip(rounds_of, rounds_done, strict=True):
                rounds_of[name].append(replace(once, result=None))  # not the pixels of every round

    def seconds(name: str, clock: str) -> list[float]:
        return [getattr(once, clock) for once in rounds_of[name]]

    def ratio(one: str, other: str, clock: str) -> float:
        return round(median_ratio(seconds(one, clock), seconds(other, clock)), 2)

    def each(name: str, clock: str) -> float:
        return round(1e3 * median(seconds(name, clock)) / len(paths), 3)

    return {
        "images": len(paths),
        "usual_ms": each("usual", "wall"),
        "usual_cpu_ms": each("usual", "cpu"),
        "prepare_ms": each("prepare", "wall"),
        "prepare_cpu_ms": each("prepare", "cpu"),
        "read_ms": each("read", "wall"),
        "prepare_times_faster": ratio("usual", "prepare", "wall"),
        "prepare_times_less_cpu": ratio("usual", "prepare", "cpu"),
        "prepare_times_faster_if_every_thread_had_a_core": round(threads * ratio("usual", "prepare", "cpu"), 2),
        "read_times_faster_than_prepare_in_cpu": ratio("prepare", "read", "cpu"),
        "read_times_faster_than_usual": ratio("usual", "read", "wall"),
        **{f"{name}_ms": each(name, "wall") for name in ways},
        **{f"{name}_cpu_ms": each(name, "cpu") for name in ways},
        **{f"prepare_times_faster_than_{name}": ratio(name, "prepare", "wall") for name in ways},
        **{f"prepare_times_less_cpu_than_{name}": ratio(name, "prepare", "cpu") for name in ways},
    }


def peak(paths: list[Path], count: int, threads: int) -> float:
    """Peak memory in MB of a process that prepares `count` images (the given ones, under other names)."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            source = paths[number % len(paths)]
            (Path(folder) / f"{number:06d}{source.suffix}").symlink_to(source.resolve())
        line = [sys.executable, __file__, "--inner", folder, "--threads", str(threads)]
        done = subprocess.run(line, check=True, capture_output=True, text=True)
    return float(done.stdout)


def inner(folder: Path, threads: int) -> None:
    cache = Path(tempfile.mkdtemp())
    try:
        fill(cache, make_cases(sorted(folder.iterdir())), threads)
    finally:
        shutil.rmtree(cache)
    # Not `ru_maxrss`: a process begins with that of the one which started it, and this one holds all pixels.
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--png", type=Path, help="folder of PNG radiographs")
    parser.add_argument("--dicom", type=Path, help="folder of DICOM radiographs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--inner", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        inner(options.inner, options.threads)
        return
    load = round(os.getloadavg()[0], 2)
    results: dict[str, Any] = {}
    for name, folder, pattern in (("png", options.png, "*.png"), ("dicom", options.dicom, "*.dcm")):
        paths = sorted(folder.glob(pattern)) if folder else []
        if not paths:
            continue
        found = compare(paths, options.threads, options.rounds)
        found["peak_mb"] = {str(n): round(peak(paths, n, options.threads)) for n in NAMES}
        results[name] = found
        print(f"{name}: {found['images']} images, {options.threads} threads, {options.rounds} rounds")
        for key, value in found.items():
            if key != "images":
                print(f"  {key:<40}{value}")
    if not results:
        parser.error("no image was found; give --png FOLDER or --dicom FOLDER")
    if options.json:
        facts = {"threads": options.threads, "rounds": options.rounds, "load_average_before": load}
        write_record(options.json, {**facts, **results})


if __name__ == "__main__":
    main()
