"""`study trust` of one model on 12,601 cases x 14 findings, from stored maps to written tables.

    python benchmarks/trust.py [--pairs 18900] [--keep DIR] [--json FILE]

The script first writes, untimed, a run of simulated rows: 14 x 14 maps that show their region a little, one to two
pairs a case, 1.2 cases a patient, as benchmarks/report_run.py does. It then times the study, after a small one that
loads the compiled code: wall and CPU seconds of reading the run, scoring the maps, and statistics and files.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from report_run import write_run
from xbench_fast.runtime.benching.benchmark_record import write_record
from xbench_fast.runtime.benching.timing import clocked
from xbench_fast.runtime.host.machine_record import usable_cores
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.reporting.studies.study_outcome import write_outcome
from xbench_fast.runtime.trust.questions.pair_scores import pair_scores
from xbench_fast.runtime.trust.questions.trust_study import study_trust

CASES, FINDINGS, LIMIT_S = 12601, 14, 60


def dataset(cases, pairs):
    """Findings of unequal number: the largest has about 13 times the pairs of the smallest."""
    shares = [1 / (1 + place) for place in range(FINDINGS)]
    return {f"finding {place}": min(cases, round(pairs * share / sum(shares))) for place, share in enumerate(shares)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--pairs", type=int, default=18900, help="pairs with a region, 1.5 a case")
    parser.add_argument("--keep", type=Path, help="leave the run here (reused if it exists)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as scratch:
        small = Path(scratch) / "small"
        write_run(small, ("kad",), {"small": ("Small", 60, dataset(60, 90))})
        study_trust(load_material(small))
        path = options.keep or Path(scratch) / "run"
        if not (path / "run.json").is_file():
            write_run(path, ("kad",), {"large": ("Large", options.cases, dataset(options.cases, options.pairs))})
        read = clocked(lambda: load_material(path))
        study = clocked(lambda: write_outcome(study_trust(read.result), path / "studies" / "trust"))
        (cell,) = read.result.paired
        scored = clocked(lambda: pair_scores(cell, read.result.run))  # again, to see its part
    wall, cpu = read.wall + study.wall, read.cpu + study.cpu
    print(f"{options.cases} cases x {FINDINGS} findings, {cell.n} pairs, {usable_cores()} cores: seconds (CPU)")
    for name, each in (("read the run", read), ("study", study), ("  of it maps", scored)):
        print(f"  {name:<20}{each.wall:8.2f} ({each.cpu:.2f})")
    print(f"  {'together':<20}{wall:8.2f} ({cpu:.2f}); limit {LIMIT_S}")
    if options.json:
        document = {"cases": options.cases, "findings": FINDINGS, "pairs": cell.n, "cores": usable_cores()}
        document |= {
            f"{name}_s": round(each.wall, 2) for name, each in (("read", read), ("study", study), ("maps", scored))
        }
        document |= {
            f"{name}_cpu_s": round(each.cpu, 2) for name, each in (("read", read), ("study", study), ("maps", scored))
        }
        document |= {"together_s": round(wall, 2), "together_cpu_s": round(cpu, 2), "limit_s": LIMIT_S}
        document |= {"load_average_before": load}  # of other processes: above 0 the wall seconds are too high
        write_record(options.json, document)


if __name__ == "__main__":
    main()
