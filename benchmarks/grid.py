"""The paper's whole grid: seconds for 7 models on 12,601 cases, measured on a sample and extrapolated.

    python benchmarks/grid.py --bundles DIR [--images 24] [--rounds 2] [--json benchmarks/results/grid-cpu.json]

The seven models have stand-in weights at their real sizes; those not in DIR are exported first, untimed (about 20
minutes). The sample is radiograph-like PNG files of 1024 x 1024 with one box each, made from a seed and asked about the
ten findings of ChestX-Det10. A round runs `xbench-fast eval` of all seven on 4 images and on --images, each with an
empty cache (from files: the first model decodes and prepares for all) and then again into a new run directory with that
cache (prepared).

    seconds = start + 12,601 x slope        slope: seconds more for each image more, over the rounds' medians

The start (process, loading the models) is counted once. The paper's datasets have other formats and numbers of
findings, which this does not follow. CPU seconds count every thread of the command; where other processes use the
machine (see the load average) they hold and wall seconds do not, and CPU seconds / cores is the wall time of cores that
are always busy. The JSON keeps one row for each commit and kind of machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from xbench_fast.runtime.benching.inputs import film_files
from xbench_fast.runtime.benching.spread import clocked
from xbench_fast.runtime.host.machine import describe_machine, usable_cores

CASES, FEW, SIDE = 12_601, 4, 1024
ROOMS = ("api", "engines", "export", "metrics_gpu", "runtime")
KINDS = ("from_files", "prepared")
MODELS = {
    "clip": "vit-b-16",
    "biomedclip": "vit-b-16",
    "medklip": "224",
    "kad": "224",
    "mavl": "224",
    "carzero": "vit-b-16",
    "devide": "assumed-architecture",
}


@dataclass(frozen=True)
class Spent:
    """Wall and CPU seconds of one run of the command."""

    wall: float
    cpu: float


def export_missing(bundles: Path) -> None:
    for model, variant in MODELS.items():
        if not (bundles / f"{model}-{variant}").is_dir():
            line = [sys.executable, "-m", "xbench_fast.export.cli", "--model", model, "--variant", variant]
            subprocess.run([*line, "--weights", "stand-in", "--out", str(bundles)], check=True)


def make_sample(root: Path, count: int) -> None:
    """A ChestX-Det10 folder of `count` made-up radiographs, each with one box."""
    (root / "test_data").mkdir(parents=True)
    files = film_files(root / "test_data", count, SIDE, seed=0)
    listed = [{"file_name": path.name, "syms": ["Effusion"], "boxes": [[100, 200, 500, 600]]} for path in files]
    (root / "test.json").write_text(json.dumps(listed))


def evaluate(bundles: Path, data: Path, out: Path, cache: Path) -> Spent:
    """Runs the command once."""
    command = [sys.executable, "-m", "xbench_fast.runtime.cli", "eval", "--engine", "onnxruntime-cpu"]
    for model, variant in MODELS.items():
        command += ["--model", f"{model}-{variant}"]
    command += ["--bundles", str(bundles), "--data", f"chestxdet10={data}", "--out", str(out), "--cache", str(cache)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = clocked(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)).wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cells = json.loads((out / "run.json").read_text())["cells"].values()
    if len(cells) != len(MODELS) or any(cell["state"] != "done" for cell in cells):
        raise SystemExit("not every cell was evaluated")
    return Spent(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def one_round(bundles: Path, images: int) -> dict[str, Spent]:
    """What the command takes from files and prepared, on FEW images and on `images`."""
    found = {}
    for count in (FEW, images):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make_sample(folder / "data", count)
            for kind in KINDS:
                spent = evaluate(bundles, folder / "data", folder / kind, folder / "cache")
                print(f"{kind:<12}{count:>4} images  {spent.wall:8.1f} s  {spent.cpu:8.1f} CPU s", flush=True)
                found[f"{kind} {count}"] = spent
    return found


def extrapolate(rounds: list[dict[str, Spent]], kind: str, images: int, cores: int) -> dict[str, float]:
    """Seconds of the whole grid from the medians over rounds."""
    whole = {}
    for clock in ("wall", "cpu"):
        few, many = (median(getattr(once[f"{kind} {n}"], clock) for once in rounds) for n in (FEW, images))
        slope = (many - few) / (images - FEW)
        whole[clock] = few + (CASES - FEW) * slope
    return {
        "seconds": round(whole["wall"]),
        "cpu_seconds": round(whole["cpu"]),
        "seconds_if_all_cores_were_busy": round(whole["cpu"] / cores),
    }


def commit() -> tuple[str, str]:
    """Hash and date of the checkout's commit, the hash with + where product files differ from it."""
    folder = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()

    digest, date = git("show", "-s", "--format=%h %cs", "HEAD").split()
    changed = git("status", "--porcelain", "--", *(f":/{room}" for room in ROOMS))
    return digest + ("+" if changed else ""), date


def kept_rows(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """`rows` with `row` in the place of the one of the same commit and kind of machine, or at the end."""
    same = [old for old in rows if (old["commit"], old["machine"]) == (row["commit"], row["machine"])]
    return [row if old in same else old for old in rows] + ([] if same else [row])


def machine_kind() -> dict[str, object]:
    described = describe_machine()
    return {key: described[key] for key in ("cpu", "cores", "gpus", "system") if key in described}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bundles", type=Path, required=True, help="the seven bundles; those missing are made there")
    parser.add_argument("--images", type=int, default=24, help="of the sample [24]")
    parser.add_argument("--rounds", type=int, default=2, help="[2]")
    parser.add_argument("--json", type=Path, help="keep the row in this file")
    options = parser.parse_args()
    export_missing(options.bundles)
    load = os.getloadavg()[0]
    rounds = [one_round(options.bundles, options.images) for _ in range(options.rounds)]
    digest, date = commit()
    row = {
        "commit": digest,
        "date": date,
        "machine": machine_kind(),
        "images": options.images,
        "rounds": options.rounds,
        "load_average_before": round(load, 2),
    }
    for kind in KINDS:
        row[kind] = whole = extrapolate(rounds, kind, options.images, usable_cores())
        print(f"{len(MODELS)} models x {CASES} cases, {kind}: {whole['seconds']} s, {whole['cpu_seconds']} CPU s")
    if load > 0.5 * usable_cores():
        print(f"The machine was busy before the run (load {load:.1f}): read the CPU seconds.")
    if options.json:
        kept = json.loads(options.json.read_text())["rows"] if options.json.is_file() else []
        what = __doc__.splitlines()[0] if __doc__ else ""
        document = {"what": what, "models": list(MODELS), "cases": CASES, "rows": kept_rows(kept, row)}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
