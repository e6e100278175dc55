"""What scoring predicted boxes costs: 100,000 answers with 1,000 replicates and every published scorer.

    python benchmarks/boxes.py [--answers N] [--replicates B] [--json FILE]

Two findings an image, each with one or two true boxes on 1,024 x 1,024 pixels; nine in ten are answered nearby, with a
stray box in one of five answers. Every box has a score. Arrays are in memory: files and tables are not in it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from xbench_fast.metrics_gpu.detection.average_precision import average_precision
from xbench_fast.metrics_gpu.detection.boxes import Answers, BoxLists, centres, pointed
from xbench_fast.metrics_gpu.detection.error_kinds import anatomy
from xbench_fast.metrics_gpu.detection.overlaps import overlaps
from xbench_fast.metrics_gpu.detection.scores import matched_scores
from xbench_fast.metrics_gpu.detection.unions import on_grid, pixel_rectangles, union_counts
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.class_means import class_means
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import clocked
from xbench_fast.runtime.host.protocols import SCORERS

SIDE, CLASSES = 1024, 10


def workload(pairs: int) -> Answers:
    rng = np.random.default_rng(0)
    counts = 1 + (rng.random(pairs) < 0.4)
    ends = np.concatenate([[0], np.cumsum(counts)])
    low = rng.integers(0, 800, (ends[-1], 2)).astype(np.float64)
    truth = np.hstack([low, low + rng.integers(10, 220, low.shape)])
    owner = np.repeat(np.arange(pairs), counts)
    near = np.clip(truth + rng.normal(0, 4, truth.shape), 0, SIDE)
    near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
    seen, stray = rng.random(len(near)) < 0.9, np.flatnonzero(rng.random(pairs) < 0.2)
    given = np.vstack([near[seen], np.tile([1.0, 2.0, 300.0, 400.0], (len(stray), 1))])
    whose = np.concatenate([owner[seen], stray])
    order = np.argsort(whose, kind="stable")
    offsets = np.searchsorted(whose[order], np.arange(pairs + 1))
    first = rng.integers(0, CLASSES, (pairs + 1) // 2)
    return Answers(
        given=BoxLists(given[order], offsets.astype(np.int64), rng.random(len(given))),
        truth=BoxLists(truth, ends.astype(np.int64)),
        class_of=np.where(
            np.arange(pairs) % 2, (first[np.arange(pairs) // 2] + 1) % CLASSES, first[np.arange(pairs) // 2]
        ),
        case_of=np.arange(pairs) // 2,
        sizes=np.full((pairs, 2), SIDE),
        names=tuple(f"class {c}" for c in range(CLASSES)),
        cases=(pairs + 1) // 2,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", type=int, default=100_000)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    answers = workload(options.answers)
    steps = {}

    def timed(name, work):
        found = clocked(work)
        steps[name] = {"wall_s": round(found.wall, 2), "cpu_s": round(found.cpu, 2)}
        return found.result

    draws = timed("draws", lambda: draw_patients(answers.cases, options.replicates))

    def unions():
        mine, true = (pixel_rectangles(lists, answers.sizes) for lists in (answers.given, answers.truth))
        small = union_counts(on_grid(mine, answers.sizes), on_grid(true, answers.sizes))
        native = union_counts(mine, true)
        hits = pointed(centres(answers.given, answers.sizes), true)
        return np.column_stack([small.dice, small.iou, native.dice, native.iou, native.inside, hits])

    values = timed("unions, pointing, inside", unions)
    timed("their intervals", lambda: class_means(values, answers.class_of, CLASSES, draws, answers.case_of))
    table = timed("IoU of all boxes", lambda: overlaps(answers.given, answers.truth))
    nobody = np.zeros(0, np.intp)
    timed("matched boxes, with intervals", lambda: matched_scores(answers, table, draws, (answers.case_of, nobody)))
    timed("average precision", lambda: average_precision(answers))
    timed("kinds of errors", lambda: anatomy(answers))
    for name, scorer in SCORERS.items():
        timed(name, lambda scorer=scorer: scorer.compute(answers, table))
    total = {key: round(sum(step[key] for step in steps.values()), 1) for key in ("wall_s", "cpu_s")}
    for name, step in steps.items():
        print(f"{name:<32}{step['wall_s']:8.2f} s{step['cpu_s']:8.2f} CPU s")
    print(f"{'together':<32}{total['wall_s']:8.1f} s{total['cpu_s']:8.1f} CPU s")
    if options.json:
        told = {"answers": options.answers, "boxes": len(answers.given.boxes), "replicates": options.replicates}
        write_record(options.json, {**told, "steps": steps, "together": total})


if __name__ == "__main__":
    main()
