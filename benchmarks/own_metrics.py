"""What a metric of one's own adds to a whole report: of counts, with levels, and of maps.

    python benchmarks/own_metrics.py [--rounds 3] [--models ...] [--datasets ...] [--keep DIR] [--json FILE]

The run is that of report_run.py. `xbench-fast report` runs on it as users run it, page included, without a metric and
with each, in turns; once before on a small run, which loads the compiled code. CPU seconds, since other processes
change them little; the ratio is of the medians.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report_run import DATASETS, MODELS, run_options, write_run
from xbench_fast.runtime.benching.benchmark_record import write_record

CODE = """
def recall(overlap, region):
    return overlap[50] / region

def dice(area, overlap, region):
    return 2 * overlap / (area + region)

def inside(map, mask):
    return map[mask].mean()
"""
METRICS = {
    "none": "",
    "counts": "[metrics.own]\nfunction = 'own.py:recall'\n",
    "levels": "[metrics.own]\nfunction = 'own.py:dice'\nlevels = true\n",
    "maps": "[metrics.own]\nfunction = 'own.py:inside'\nmaps = true\n",
}


def spent(run: Path, config: Path) -> float:
    """CPU seconds of the command."""
    line = [sys.executable, "-m", "xbench_fast.runtime.cli", "report", str(run), "--config", str(config), "--quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(line, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = run_options(__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of all kinds, in turns [3]")
    options = parser.parse_args()
    load = round(os.getloadavg()[0], 2)
    datasets = {name: DATASETS[name] for name in options.datasets}
    seconds: dict[str, list[float]] = {kind: [] for kind in METRICS}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "own.py").write_text(CODE)
        for kind, table in METRICS.items():
            (folder / f"{kind}.toml").write_text(table)
        write_run(folder / "small", MODELS[:2], {"covid_rural": DATASETS["covid_rural"]})
        spent(folder / "small", folder / "none.toml")
        run = options.keep or folder / "run"
        if not (run / "run.json").is_file():
            write_run(run, options.models, datasets)
        for _ in range(options.rounds):
            for kind, found in seconds.items():
                found.append(round(spent(run, folder / f"{kind}.toml"), 2))
    medians = {kind: statistics.median(found) for kind, found in seconds.items()}
    ratios = {kind: round(median / medians["none"], 3) for kind, median in medians.items()}
    for kind, found in seconds.items():
        print(f"{kind:<8}{ratios[kind]:6.2f} x  {found} s")
    if options.json:
        pairs = sum(sum(positives.values()) for _, _, positives in datasets.values())
        document: dict[str, object] = {"models": len(options.models), "pairs_per_model": pairs}
        document |= {"cpu_s": seconds, "ratio": ratios, "load_average_before": load}
        write_record(options.json, document)


if __name__ == "__main__":
    main()
