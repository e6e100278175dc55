"""`study calibration` of a run of the paper's size: what it says that it will cost, and what it costs.

    python benchmarks/calibration_run.py [--models 7] [--keep DIR] [--json FILE]

Two runs of simulated rows are written first, untimed, as in report_run.py: one dataset of 12,601 cases with 14 findings
and 0.8 regions per case, and the seven datasets of the paper. The command then runs on each as users run it, with its
start and its files; once before on a small run, which loads the compiled code.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report_run import DATASETS, MODELS, write_run
from xbench_fast.runtime.benching.benchmark_record import write_record

CASES, FINDINGS = 12_601, 14
RUNS = {
    "14 findings": {
        "chest": ("Chest", CASES, {f"finding {n}": int(0.8 * CASES / FINDINGS) for n in range(FINDINGS)}),
    },
    "7 datasets": DATASETS,
}


def spend(run: Path) -> dict[str, object]:
    """Wall and CPU seconds of the command, and its sentence about its cost."""
    line = [sys.executable, "-m", "xbench_fast.runtime.cli", "study", "calibration", str(run), "--quiet"]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = [text for text in done.stderr.splitlines() if text.startswith("calibration: ")]
    return {"said": said[0], "wall_s": round(wall, 1), "cpu_s": round(cpu, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=int, default=len(MODELS), help="number of models [7]")
    parser.add_argument("--keep", type=Path, help="leave the runs here (reused if they exist)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    models, load = MODELS[: options.models], round(os.getloadavg()[0], 2)
    document: dict[str, object] = {"models": len(models), "cases_per_model": CASES, "load_average_before": load}
    with tempfile.TemporaryDirectory() as scratch:
        small = Path(scratch) / "small"
        write_run(small, MODELS[:1], {"covid_rural": DATASETS["covid_rural"]})
        spend(small)
        for name, datasets in RUNS.items():
            run = (options.keep or Path(scratch)) / name.replace(" ", "-")
            if not (run / "run.json").is_file():
                write_run(run, models, datasets)
            pairs = sum(sum(positives.values()) for _, _, positives in datasets.values())
            found = {"datasets": len(datasets), "pairs_per_model": pairs, **spend(run)}
            print(f"{name}: {found}", flush=True)
            document[name] = found
    if options.json:
        write_record(options.json, document)


if __name__ == "__main__":
    main()
