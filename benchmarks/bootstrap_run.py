"""Bootstrap of a whole run: 12,601 cases of one model, 1,000 replicates, every cell of every table, on one core.

    python benchmarks/bootstrap_run.py [--cases 12601] [--json FILE]

Simulated: one patient per 1.2 images, 14 classes, 0.8 regions per image, scores with ties of 1 %. It prints seconds
of process CPU time, after one small warm-up run that loads the compiled walk. A loop that resamples and recomputes is
timed on a few replicates and scaled up, and must give the same numbers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from xbench_fast.metrics_gpu.grounding.best_thresholds import pair_folds, patient_folds
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.recognition.delong import auc_estimate
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.intervals import percentile_interval
from xbench_fast.metrics_gpu.sweep.counts import Counts
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import clocked

CLASSES, PIXELS, LOOPS = 14, 224 * 224, 3


def simulated(cases, rng):
    """Counts of pairs, class and patient of each; logits, labels and patient of each image."""
    patients = int(cases / 1.2)
    patient_of = rng.integers(0, patients, cases)
    labels = (rng.random((cases, CLASSES)) < 0.1).astype(np.int8)
    logits = (rng.standard_normal((cases, CLASSES)) + 1.2 * labels).astype(np.float32).round(2)
    pairs = int(0.8 * cases)
    image = np.sort(rng.integers(0, cases, pairs))
    region = rng.integers(100, 9000, pairs)
    area = (PIXELS * np.exp(-np.arange(101) / 100 * rng.uniform(2, 8, (pairs, 1)))).astype(np.int32)
    overlap = np.minimum((region[:, None] * (area / PIXELS) ** 0.5).astype(np.int32), area)
    flags = rng.random(pairs) < 0.4
    counts = Counts(area, overlap, region.astype(np.int32), np.zeros(pairs, np.int32), flags, np.zeros(pairs, bool))
    return counts, rng.integers(0, CLASSES, pairs), patient_of[image], logits, labels, patient_of, patients


def timed(function):
    once = clocked(function)
    return once.cpu, once.result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=12601)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    names = [f"class {c}" for c in range(CLASSES)]
    rng = np.random.default_rng(0)
    small = simulated(50, rng)
    recognition(small[3], small[4], names, draw_patients(small[6], 2), small[5])
    counts, class_of, pair_patient, logits, labels, patient_of, patients = simulated(options.cases, rng)

    steps = {}
    steps["draw patients"], draws = timed(lambda: draw_patients(patients, options.replicates))
    steps["grounding, thresholds rechosen"], ground = timed(
        lambda: grounding(Pairs(counts, class_of, names, draws=draws, patient_of=pair_patient))
    )
    has = np.zeros((patients, CLASSES), bool)
    has[pair_patient, class_of] = True
    np.logical_or.at(has, patient_of, labels == 1)
    fold_s, fold_of = timed(lambda: pair_folds(patient_folds(has), class_of, pair_patient))
    asked = Pairs(counts, class_of, names, fold_of=fold_of, draws=draws, patient_of=pair_patient)
    fitted_s, fitted = timed(lambda: grounding(asked, GroundingOptions(unit="cross_fit")))
    steps["cross-fitted, thresholds refitted"] = fold_s + fitted_s
    steps["recognition"], seen = timed(lambda: recognition(logits, labels, names, draws, patient_of))
    steps["intervals"], _ = timed(
        lambda: (
            [percentile_interval(row[1:]) for rows in ground.rows.values() for row in rows if len(row) > 1]
            + [percentile_interval(row[1:]) for rows in seen.rows.values() for row in rows[:-1] if len(row) > 1]
        )
    )
    total = sum(steps.values())
    delong, _ = timed(lambda: [auc_estimate(logits[:, c], labels[:, c]) for c in range(CLASSES)])

    def loop(b):
        chosen = np.repeat(np.arange(len(counts)), draws.counts[b][pair_patient])
        images = np.repeat(np.arange(len(logits)), draws.counts[b][patient_of])
        resampled = Pairs(counts.take(chosen), class_of[chosen], names, fold_of=fold_of[:, chosen])
        return (
            grounding(resampled),
            grounding(resampled, GroundingOptions(unit="cross_fit")),
            recognition(logits[images], labels[images], names),
        )

    loop_s, looped = timed(lambda: [loop(b) for b in range(LOOPS)])
    for b, (expected, crossed, recognised) in enumerate(looped):
        for drawn, once, key in (
            (fitted, crossed, "dice_best"),
            (ground, expected, "dice_best"),
            (seen, recognised, "auc"),
        ):
            assert abs(drawn.number(key, "macro").drawn[b] - once.value(key)) < 1e-9
    loop_s *= options.replicates / LOOPS

    print(f"{options.cases} cases, {len(counts)} pairs, {patients} patients, {CLASSES} classes, CPU seconds")
    for name, seconds in steps.items():
        print(f"  {name:<36}{seconds:8.2f}")
    print(f"  {'together':<36}{total:8.2f}")
    print(f"  {'loop over replicates (scaled up)':<36}{loop_s:8.0f}   {loop_s / total:.0f} x")
    print(f"  {'DeLong, 14 classes':<36}{delong:8.3f}")
    if options.json:
        document = {"cases": options.cases, "pairs": len(counts), "patients": patients, "classes": CLASSES}
        document |= {"replicates": options.replicates, "cpu_s": {k: round(v, 3) for k, v in steps.items()}}
        document |= {"together_s": round(total, 2), "loop_s": round(loop_s), "delong_s": round(delong, 4)}
        write_record(options.json, document)


if __name__ == "__main__":
    main()
