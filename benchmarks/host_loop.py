"""What an evaluation costs around the engine: 20,000 prepared images, 14 findings, about 2 regions an image.

    python benchmarks/host_loop.py [--before e968916] [--cases 20000] [--rounds 5] [--batch 16] [--json FILE]

The engine does nothing; it returns the same scores for every batch. Reading prepared pixels and masks, the sweep on the
CPU, rows, part files and their merging are those of `eval`. Every measurement is a process of its own, after a short
warm-up; images and cache are made before it, untimed.

1. Whole loop: this version and an earlier one (extracted from git), in turns, with two threads each. The ratio is the
   median over rounds, of wall-clock and of processor time. The rows of both must be equal in every common column.
2. Under the lock, both versions in turns (not b0ab629, which has other calls): processor time of all threads, less
   what calls take that release the interpreter lock: the compiled sweep, the compiled copies of pixels and masks with
   their checksums, SHA-256 of result files, flushing to the disk, Arrow's `take` and writing Parquet. Each is timed by
   the clock of its thread. The clock itself is not subtracted, nor is switching between threads: the figure is an upper
   bound. Its inverse limits the images per second. Rows: the part of those calls that makes rows and files.
3. Memory: the peak of the private memory of the process above its start, for a quarter of the cases and for all.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "e968916"
FINDINGS = tuple(f"finding {number}" for number in range(14))
SIDE, CHUNK, THREADS, WARM = 1024, 512, 2, 1024
RENAMED = {"rescued": "sub_pixel"}
PLACES = {
    "Scores": ("engines.base:Scores",),
    "Geometry": ("engines.geometry:Geometry",),
    "sweep": ("metrics_gpu.sweep.sweep:sweep", "metrics_gpu:sweep"),
    "protocol": ("metrics_gpu.grounding.protocols:protocol", "metrics_gpu.protocols:protocol"),
    "Case": ("runtime.data.datasets.case:Case", "runtime.datasets.base:Case"),
    "Boxes": (
        "runtime.data.datasets.region_boxes:Boxes",
        "runtime.datasets.region_boxes:Boxes",
        "runtime.datasets.regions:Boxes",
    ),
    "Measure": ("runtime.evaluation.measure:Measure",),
    "Cell": ("runtime.evaluation.cell:CellWork", "runtime.evaluation.cell:Cell"),
    "compute_cell": ("runtime.evaluation.cell:compute_cell",),
    "CellFiles": ("runtime.results.storage:CellFiles", "runtime.evaluation.storage:CellFiles"),
    "prepare": (
        "runtime.data.cache.preparing:prepare",
        "runtime.cache.preparing:prepare",
        "runtime.evaluation.preparing:prepare",
    ),
    "PreparedSet": (
        "runtime.data.cache.preparing:PreparedSet",
        "runtime.cache.preparing:PreparedSet",
        "runtime.prepared_set:PreparedSet",
    ),
}
"""Name -> where it is, in this version and in earlier ones."""
SINCE = {
    "MaskStore": ("runtime.data.cache.mask_store:MaskStore", "runtime.cache.masks:MaskStore"),
    "Contents": ("runtime.data.images.contents:Contents", "runtime.images.contents:Contents"),
}
"""Alike, of what b0ab629 lacks."""
CHECKSUMS = "runtime.data.cache.checksums", "runtime.cache.checksums"
STATES = "runtime.data.images.file_states", "runtime.images.file_states"
OF_ROWS = "Arrow take", "SHA-256", "reading parts", "writing Parquet"


def make_images(folder, count):
    from PIL import Image

    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (32, 32), np.uint8)).save(folder / f"{number:06d}.png")


def at_one_of(places):
    """What is at the first of some places that this version has; None if it has none of them."""
    for place in places:
        room, _, name = place.partition(":")
        try:
            module = importlib.import_module(f"xbench_fast.{room}")
        except ModuleNotFoundError:
            continue
        if not name or hasattr(module, name):
            return getattr(module, name) if name else module
    return None


def modules():
    """What this benchmark uses of the version in the path, by name."""
    # An installation that can be edited would give an earlier version the modules that it lacks.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
    code = SimpleNamespace(**{name: at_one_of(places) for name, places in {**PLACES, **SINCE}.items()})
    code.geometry = code.Geometry("squash", 224, 224, "bicubic")
    return code


def make_cases(code, folder, count):
    rng, cases = np.random.default_rng(1), []
    for number in range(count):
        held = rng.random(len(FINDINGS)) < 2 / len(FINDINGS)
        corners = np.concatenate([rng.uniform(0, 800, (len(FINDINGS), 2)), rng.uniform(30, 220, (len(FINDINGS), 2))], 1)
        regions = {
            name: code.Boxes(((x, y, x + width, y + height),))
            for name, here, (x, y, width, height) in zip(FINDINGS, held, corners.tolist(), strict=True)
            if here
        }
        labels = dict(zip(FINDINGS, held.astype(int).tolist(), strict=True))
        image, patient = folder / f"{number:06d}.png", f"patient {number // 2}"
        cases.append(code.Case(f"case {number}", image, labels, regions, "all", patient, size=(SIDE, SIDE)))
    return cases


class Nothing:
    """An engine that returns the first scores of a pool for every batch."""

    def __init__(self, code):
        rng = np.random.default_rng(2)
        self.scores = code.Scores
        self.logits = rng.standard_normal((512, len(FINDINGS))).astype(np.float32)
        self.saliency = rng.random((512, len(FINDINGS), 14, 14), np.float32)
        self.bundle = SimpleNamespace(name="nothing", manifest=SimpleNamespace(geometry=code.geometry))

    def run(self, pixels, features):
        return self.scores(self.logits[: len(pixels)], self.saliency[: len(pixels)])


def compute(code, cases, cache, out, batch):
    """Runs one cell; wall-clock seconds, processor seconds, and the result file."""
    from contextlib import ExitStack

    count = len(FINDINGS)
    prompts = SimpleNamespace(
        findings=FINDINGS, finding_of=np.arange(count), polarity=np.ones(count, np.int8), features=np.zeros((count, 1))
    )
    with ExitStack() as stack:
        images = stack.enter_context(code.PreparedSet.open(cache, "bench", cases, [code.geometry]))
        source, more = images.source(code.geometry), dict[str, Any]()
        if code.MaskStore is not None:
            more["contents"] = code.Contents()
            images.use(more["contents"])
            store = code.MaskStore.open(cache, "bench", cases, "the cases of this benchmark")
            more["draw"] = stack.enter_context(store)
        files = code.CellFiles(out, "cell", "0" * 64)
        names = {name: name for name in FINDINGS}
        cell = code.Cell("model", "data", prompts, names, cases, files, source, batch, CHUNK, THREADS, **more)
        measure = code.Measure(code.protocol("default"), code.sweep)
        wall, cpu = time.perf_counter(), time.process_time()
        code.compute_cell(cell, Nothing(code), measure, lambda done: None)
        return time.perf_counter() - wall, time.process_time() - cpu, files.final


def time_released(spent):
    """Lets the calls that release the lock add their thread's seconds to `spent`, by name."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from pyarrow import _parquet
    from xbench_fast.metrics_gpu.sweep import cpu
    from xbench_fast.runtime.results import integrity

    checksums, file_states = at_one_of(CHECKSUMS), at_one_of(STATES)

    def timed(owner, name, what):
        real = getattr(owner, name)

        def call(*args, **kwargs):
            start = time.thread_time()
            try:
                return real(*args, **kwargs)
            finally:
                spent[what] += time.thread_time() - start

        setattr(owner, name, call)

    timed(cpu, "sweep_batch", "sweep")
    pixels = "read_pixels" if hasattr(checksums, "read_pixels") else "copy_pixels"  # earlier versions copy from a map
    timed(checksums, pixels, "reading and checking pixels")
    timed(checksums, "copy_masks", "copying and checking masks")
    timed(file_states, "_states_c", "states of files")
    timed(integrity, "_digest", "SHA-256")
    timed(os, "fsync", "flushing")
    timed(pc, "take", "Arrow take")
    timed(Path, "read_bytes", "reading parts")
    timed(_parquet, "ParquetWriter", "writing Parquet")  # its footer's schema
    timed(pq.ParquetWriter, "write_table", "writing Parquet")
    timed(pq.ParquetWriter, "close", "writing Parquet")


def side(options):
    """One measurement in this process; prints it as JSON."""
    folder, what = options.folder, options.side
    code = modules()
    cases = make_cases(code, folder / "images", options.cases)
    cache = folder / f"cache-{options.tree.name}"
    said = {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        if what == "prepare":
            with code.PreparedSet.open(cache, "bench", cases, [code.geometry]) as images:
                code.prepare(images, range(len(cases)), THREADS, lambda done: None)
            compute(code, cases, cache, Path(scratch) / "once", options.batch)
            return
        warm = make_cases(code, folder / "images", min(WARM, options.cases))
        with code.PreparedSet.open(Path(scratch) / "warm", "bench", warm, [code.geometry]) as images:
            code.prepare(images, range(len(warm)), THREADS, lambda done: None)
        compute(code, warm, Path(scratch) / "warm", Path(scratch) / "first", options.batch)
        spent, peak, done = Counter[str](), list[int](), threading.Event()
        if what == "lock":
            time_released(spent)

        def watch():
            while not done.wait(0.01):
                text = Path("/proc/self/status").read_text()
                peak.append(1024 * int(text.split("RssAnon:")[1].split()[0]))

        if what == "memory":
            threading.Thread(target=watch, daemon=True).start()
            time.sleep(0.1)
        wall, cpu, final = compute(code, cases, cache, Path(scratch) / "run", options.batch)
        done.set()
        final.replace(folder / f"rows-{options.tree.name}.parquet")
        each = 1e6 / len(cases)
        said = {
            "wall_us": wall * each,
            "cpu_us": cpu * each,
            "peak_mb": (max(peak, default=0) - min(peak, default=0)) / 1e6,
        }
        said["released_us"] = {name: seconds * each for name, seconds in sorted(spent.items())}
        said["lock_us"] = said["cpu_us"] - sum(said["released_us"].values())
        said["rows_us"] = sum(said["released_us"].get(name, 0.0) for name in OF_ROWS)
    print(json.dumps(said))


def ask(what, tree_, folder, cases, batch):
    command = [sys.executable, str(Path(__file__).resolve()), "--side", what, "--tree", str(tree_)]
    command += ["--folder", str(folder), "--cases", str(cases), "--batch", str(batch)]
    environment = {**os.environ, "PYTHONPATH": str(tree_ / "path")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout) if done.stdout else {}


def make_tree(folder: Path, source: Path) -> Path:
    """A folder from which the rooms of `source` are imported as xbench_fast."""
    package = folder / "path" / "xbench_fast"
    package.mkdir(parents=True)
    for room in ("export", "engines", "metrics_gpu", "runtime"):
        (package / room).symlink_to(source / room)
    for file in (source / "api").glob("*.py"):
        (package / file.name).symlink_to(file)
    return folder


def same_rows(one, other):
    """The columns that both files have, if their values are equal; raises SystemExit where they are not."""
    import pyarrow.parquet as pq

    old, new = pq.read_table(one), pq.read_table(other)
    old = old.rename_columns([RENAMED.get(name, name) for name in old.column_names])
    shared = [name for name in old.column_names if name in new.column_names]
    for name in shared:
        if not old[name].combine_chunks().equals(new[name].combine_chunks()):
            raise SystemExit(f"the two versions have other values in '{name}'")
    return shared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--before", default=BEFORE, help=f"earlier version, a commit [{BEFORE}]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16, help="images of a batch [16]")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    for name in ("--tree", "--folder"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side(options)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").mkdir()
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", options.before], check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=archive.stdout, check=True)
        before, now = make_tree(folder / "before", folder / "source"), make_tree(folder / "now", ROOT)
        make_images(folder / "images", options.cases)
        for each in (before, now):
            ask("prepare", each, folder, options.cases, options.batch)
        rounds = []
        for number in range(options.rounds):
            rounds.append([ask("whole", each, folder, options.cases, options.batch) for each in (before, now)])
            print(f"round {number + 1}: " + ", ".join(f"{one['wall_us']:.0f} us" for one in rounds[-1]), flush=True)
        comparable = int(options.before == "b0ab629")
        shared = same_rows(folder / "rows-before.parquet", folder / "rows-now.parquet")
        locks = {
            batch: [
                [ask("lock", each, folder, options.cases, batch) for each in (before, now)[comparable:]]
                for _ in range(options.rounds)
            ]
            for batch in (options.batch, 256)
        }
        counts = options.cases // 4, options.cases
        ask("prepare", now, folder, counts[0], options.batch)
        memory = {count: ask("memory", now, folder, count, options.batch) for count in counts}
    report(options, rounds, shared, locks, memory)


def report(options, rounds, shared, locks, memory):
    from xbench_fast.runtime.benching.benchmark_record import write_record
    from xbench_fast.runtime.benching.timing import median_ratio

    figures = {"cases": options.cases, "findings": len(FINDINGS), "threads": THREADS, "batch": options.batch}
    figures["before"] = options.before
    for clock in ("wall_us", "cpu_us"):
        old, new = ([one[clock] for one in each] for each in zip(*rounds, strict=True))
        figures[clock] = {"before": old, "now": new, "times_faster": median_ratio(old, new)}
        print(f"whole loop, {clock}: {median(old):.0f} before, {median(new):.0f} now, {median_ratio(old, new):.2f} x")
    figures["equal_columns"] = shared
    figures["under_the_lock_us"] = {}
    for batch, turns in locks.items():
        of_versions = dict(zip(("now", "before"), zip(*(turn[::-1] for turn in turns), strict=True), strict=False))
        said = {version: summary(f"batches of {batch}, {version}", found) for version, found in of_versions.items()}
        figures["under_the_lock_us"][str(batch)] = {**said.pop("now"), **said}
    figures["peak_mb"] = {str(count): found["peak_mb"] for count, found in memory.items()}
    print("memory: " + ", ".join(f"{found['peak_mb']:.0f} MB for {count}" for count, found in memory.items()))
    if options.json:
        write_record(options.json, figures)


def summary(title, found):
    """The figures of one version, printed."""
    least = min(found, key=lambda one: one["lock_us"])
    figures = {name: median(one[f"{name}_us"] for one in found) for name in ("lock", "rows")}
    freed = ", ".join(f"{name} {value:.1f}" for name, value in least["released_us"].items())
    print(
        f"{title}: under the lock {figures['lock']:.1f} us an image (least {least['lock_us']:.1f}), rows "
        f"{figures['rows']:.1f}; released: {freed}"
    )
    return {
        "median": figures["lock"],
        "least": least["lock_us"],
        "rows": figures["rows"],
        "released": least["released_us"],
    }


if __name__ == "__main__":
    main()
