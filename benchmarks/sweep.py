"""Counts at 101 thresholds: the usual loop, what a careful user writes, and the fused sweep, in turns on one core.

    python benchmarks/sweep.py [--size 224|1024] [--json FILE]

The other ways (benchmarks/sweep_ways.py) start from a finished, normalised full-size map; the sweep starts from the
14 x 14 grid and does the upsampling, the normalisation and the arg max too. All must give the same integers. They take
turns, round by round, and a ratio is the median over rounds of the ratio within a round, in CPU time of the one thread.
The floor is the arithmetic and histogram work per pixel on one core, about 25 us for 224 x 224.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

import numpy as np
from sweep_ways import WAYS
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import clocked, median_ratio

CELLS, FLOOR_US, SWEEP = 14, 25.0, "fused sweep"


def finished_map(grid, size):
    """Bilinear upsampling and min-max in the canonical order, outside the measured time."""
    one = np.float32(1)
    source = np.clip((np.arange(size) + 0.5) / size * CELLS - 0.5, 0, CELLS - 1)
    lo = np.floor(source).astype(int)
    hi, w = np.minimum(lo + 1, CELLS - 1), (source - lo).astype(np.float32)
    rows = grid[:, lo] * (one - w) + grid[:, hi] * w
    full = rows[lo] * (one - w)[:, None] + rows[hi] * w[:, None]
    return (full - full.min()) / (full.max() - full.min())


def workload(pairs, size):
    """Smooth maps with one or two peaks on noise, and box regions of 1 to 15 % of the image."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:CELLS, :CELLS]
    grids, masks = np.empty((pairs, CELLS, CELLS), np.float32), np.zeros((pairs, size, size), bool)
    for grid, mask in zip(grids, masks, strict=True):
        grid[:] = 0.1 * rng.random((CELLS, CELLS))
        for cy, cx in rng.uniform(0, CELLS, (rng.integers(1, 3), 2)):
            grid += np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / rng.uniform(3, 20)).astype(np.float32)
        h, w = rng.uniform(0.1, 0.39, 2)
        top, left = rng.uniform(0, 1 - h), rng.uniform(0, 1 - w)
        mask[int(top * size) : int((top + h) * size), int(left * size) : int((left + w) * size)] = True
    return grids, masks


def measure(function):
    once = clocked(function)
    return once.thread * 1e6, once.result


def single_threaded():
    """Every way has one core, torch's too."""
    import torch

    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=224, choices=(224, 1024), help="side of the evaluation grid")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    size = options.size
    pairs, rounds = (64, 40) if size == 224 else (8, 8)
    grids, masks = workload(pairs, size)
    packed = pack_masks(masks)
    maps = [finished_map(grid, size) for grid in grids]
    single_threaded()
    sweep(grids, packed, size=(size, size))  # compiles or loads the kernel
    for way in WAYS.values():
        way(maps[0], masks[0])

    times: dict[str, list[float]] = {name: [] for name in (*WAYS, SWEEP)}
    for i in range(rounds):
        p = i % pairs
        ours_us, counts = measure(lambda: sweep(grids, packed, size=(size, size)))
        times[SWEEP].append(ours_us / pairs)
        for name, way in WAYS.items():
            way_us, (overlap, area) = measure(lambda p=p, way=way: way(maps[p], masks[p]))
            times[name].append(way_us)
            if not (np.array_equal(counts.overlap[p], overlap) and np.array_equal(counts.area[p], area)):
                raise SystemExit(f"{name} and the sweep count differently")

    floor = FLOOR_US * size * size / (224 * 224)
    print(
        f"{CELLS} x {CELLS} -> {size} x {size}, 101 thresholds, one core, {rounds} rounds, us per (image, class) pair"
    )
    print(f"  {'':<20}{'us':>10}{'sweep is faster':>18}")
    ways = {}
    for name, values in times.items():
        ratio = median_ratio(values, times[SWEEP])
        ways[name] = {"median_us": round(median(values), 1), "sweep_times_faster": round(ratio, 1)}
        print(f"  {name:<20}{median(values):10.1f}{ratio:16.1f} x")
    fraction = floor / median(times[SWEEP])
    print(f"  {'floor':<20}{floor:10.1f}{'':10}  the fused sweep reaches {100 * fraction:.0f} % of it")
    if options.json:
        document = {"size": size, "cells": CELLS, "pairs_per_call": pairs, "rounds": rounds, "us_per_pair": ways}
        document |= {"floor_us": round(floor, 1), "fraction_of_floor": round(fraction, 3)}
        write_record(options.json, document)


if __name__ == "__main__":
    main()
