"""Preparing images: `xbench-fast prepare` against the usual loop, and reading what is prepared, in one run.

    python benchmarks/prepare.py --png FOLDER [--dicom FOLDER] [--threads 2] [--rounds 5] [--json FILE]

The usual loop is that of research code, image by image in one thread: Pillow (for DICOM: pydicom's `pixel_array`),
convert to RGB, bicubic to 224. Ours is the code of the command, which also writes its files, in `--threads` threads.
Rounds alternate, so that a busy machine slows both; the wall-clock ratio needs idle cores, the ratio of processor time
does not. Memory is the peak of a process that prepares the same images under N and 8 N names.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.benching.record import write_record
from xbench_fast.runtime.benching.spread import Clocked, clocked, median_ratio
from xbench_fast.runtime.cache.preparing import PreparedSet, prepare
from xbench_fast.runtime.datasets.base import Case

GEOMETRY = Geometry("squash", 224, 224, "bicubic")
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
    cases = make_cases(paths)
    rounds_of: dict[str, list[Clocked[Any]]] = {"usual": [], "prepare": [], "read": []}
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            usual = clocked(lambda: list(usual_loop(paths)))
            ours = clocked(lambda place=Path(folder): fill(place, cases, threads))
            again = clocked(lambda place=Path(folder): read(place, cases))
        for pixels, kept in zip(usual.result, again.result, strict=True):
            # One side rounds a colour image's luminance before the resize, the other after it, hence the tolerance.
            if np.abs(pixels[..., 1].astype(int) - kept).max() > 3:
                raise SystemExit("the prepared pixels are not those of the usual loop")
        if number:  # the first round is a warm-up for files and imports
            for name, once in zip(rounds_of, (usual, ours, again), strict=True):
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
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


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
    results: dict[str, Any] = {}
    for name, folder, pattern in (("png", options.png, "*.png"), ("dicom", options.dicom, "*.dcm")):
        paths = sorted(folder.glob(pattern)) if folder else []
        if not paths:
            continue
        found = compare(paths, options.threads, options.rounds)
        found["peak_mb"] = {str(n): round(peak(paths, n, options.threads)) for n in (50, 400)}
        results[name] = found
        print(f"{name}: {found['images']} images, {options.threads} threads, {options.rounds} rounds")
        for key, value in found.items():
            if key != "images":
                print(f"  {key:<40}{value}")
    if not results:
        parser.error("no image was found; give --png FOLDER or --dicom FOLDER")
    if options.json:
        write_record(options.json, {"threads": options.threads, "rounds": options.rounds, **results})


if __name__ == "__main__":
    main()
