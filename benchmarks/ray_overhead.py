"""What Ray costs: the same chunks of the same cases by the plain loop and by one worker of a Ray cluster, in turns.

    python benchmarks/ray_overhead.py [--cases 8192] [--chunk 256] [--rounds 3] [--json benchmarks/results/ray-cpu.json]

The model is tiny and the images are small, so that most of the time is the cost of distributing the work. Both sides
have one thread, and their rows must be equal. For Ray, the seconds until the first chunk is back (a worker starts and
opens its engine) and those of starting the cluster are reported separately; the rest is the cost of the other cases.
All values are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.evaluation.scaling.jobs import Part
from xbench_fast.runtime.evaluation.scaling.ray_pool import RayWorkers
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.host.machine_record import library_versions

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from evaluation_world import same
from scaling_world import ClusterWorld, Watched
from synthetic import make_bundle, make_dataset, save_graph

ENGINE = "onnxruntime-cpu"


class Evaluation(ClusterWorld):  # type: ignore[misc]
    """A run directory for one turn of one side."""

    def open(self, bundle: Bundle, name: str, *, threads: int | None = None, **_: Any) -> Any:
        return open_engine(bundle, name, threads=threads)


def plain_turn(folder: Path, bundle: Path, data: DatasetConfig, chunk: int) -> tuple[Evaluation, float]:
    """The evaluation and the seconds of its cell."""
    world = Evaluation(folder)
    how = {"engine": ENGINE, "chunk": chunk, "batch": 16, "threads": 1}
    if world.run([bundle], [data], sweep=sweep, **how).computed != 1:
        raise SystemExit("\n".join(world.lines))
    return world, float(world.entry()["seconds"])


def ray_turn(
    folder: Path, bundle: Path, data: DatasetConfig, chunk: int, workers: RayWorkers
) -> tuple[Evaluation, float, float]:
    """The evaluation, seconds until its first part was back, and seconds from then until the last part."""
    world, times = Evaluation(folder), [time.monotonic()]

    def look(number: int, part: Part) -> None:
        if part.error:
            raise SystemExit(part.error)
        times.append(time.monotonic())

    world.on_workers(Watched(workers, look), [bundle], [data], baselines=(), engine=ENGINE, chunk=chunk, batch=16)
    return world, times[1] - times[0], times[-1] - times[1]


def measure(folder: Path, workers: RayWorkers, cases: int, chunk: int, rounds: int) -> dict[str, Any]:
    bundle = make_bundle(folder / "models" / "blocks-32", graph=save_graph(folder / "blocks.onnx")).path
    data = DatasetConfig("coco", make_dataset(folder / "data", cases), "coco")
    plain_turn(folder / "warm", bundle, data, chunk)  # compiles the sweep, and reads the files once
    seconds: dict[str, list[float]] = {"plain": [], "ray_first": [], "ray_rest": []}
    for turn in range(rounds):
        ours, whole = plain_turn(folder / f"plain-{turn}", bundle, data, chunk)
        theirs, first, rest = ray_turn(folder / f"ray-{turn}", bundle, data, chunk, workers)
        if not same(ours.table(), theirs.table()) or ours.entry()["key"] != theirs.entry()["key"]:
            raise SystemExit("the two sides differ in their rows")
        for name, value in zip(seconds, (whole, first, rest), strict=True):
            seconds[name].append(round(value, 3))
    plain = 1000 * statistics.median(seconds["plain"]) / cases
    ray = 1000 * statistics.median(seconds["ray_rest"]) / (cases - chunk)
    return {
        "rows_equal": True,
        "seconds": seconds,
        "plain_seconds_per_1000_cases": round(plain, 3),
        "ray_seconds_per_1000_cases": round(ray, 3),
        "overhead_seconds_per_1000_cases": round(ray - plain, 3),
        "overhead_milliseconds_per_chunk": round((ray - plain) * chunk, 1),
        "seconds_to_the_first_chunk": statistics.median(seconds["ray_first"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.cases <= options.chunk or options.rounds < 1:
        raise SystemExit("more cases than a chunk, and one round, are needed")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    start = time.perf_counter()
    import ray

    imported = time.perf_counter()
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ready = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as name, RayWorkers("local", workers=1, threads=1) as workers:
            found = measure(Path(name), workers, options.cases, options.chunk, options.rounds)
    finally:
        ray.shutdown()
    result = {
        "what": "eval by the plain loop and by one Ray worker: a tiny model, images of 40 x 56, one thread",
        "cases": options.cases,
        "chunk": options.chunk,
        "rounds": options.rounds,
        "import_ray_seconds": round(imported - start, 3),
        "start_cluster_seconds": round(ready - imported, 3),
        **found,
        "libraries": library_versions(("ray", "pyarrow")),
    }
    print(json.dumps(result, indent=1))
    if options.json is not None:
        write_record(options.json, result)


if __name__ == "__main__":
    main()
