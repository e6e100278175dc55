"""The paper's whole grid: seconds for 7 models on 12,601 cases, measured on a sample and extrapolated.

    python benchmarks/grid.py --bundles DIR [--images 24] [--rounds 2] [--json benchmarks/results/grid-cpu.json]
    python benchmarks/grid.py --bundles DIR --engine tensorrt --precision fp16 --batch 256 --images 12601 --side 256

The second line is for a GPU, where a model takes a second and a sample says nothing: it measures all cases. The seven
models have stand-in weights at their real sizes; those not in DIR are exported first, untimed (about 20 minutes). The
sample is radiograph-like PNG files with one box each, made from a seed and asked about the ten findings of
ChestX-Det10. A round runs three commands on 4 images and on --images: `xbench-fast prepare` for all seven with an empty
cache (prepare), `eval` with that cache (prepared), and `eval` with an empty one (from files: the first model decodes
and prepares for all). --kind leaves some out. An engine on a GPU meets 4 images first, untimed, as it may build its
plans then.

    seconds = start + 12,601 x slope        slope: seconds more for each image more, over the rounds' medians

With 12,601 images this is what was measured. The start (process, loading the models) is counted once. The paper's
datasets have other formats and numbers of findings, which this does not follow. CPU seconds count every thread of the
command; where other processes use the machine (see the load average) they hold and wall seconds do not, and CPU seconds
/ cores is the wall time of cores that are always busy. The JSON keeps one row for each commit, kind of machine, engine,
precision and batch, and is written after every round. Nothing has to be installed for the repository itself.
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

sys.path.insert(0, str(Path(__file__).resolve().parent))
from from_checkout import COMMAND, ROOT, use_checkout

CASES, FEW, SIDE = 12_601, 4, 1024
ROOMS = ("api", "engines", "export", "metrics_gpu", "runtime")
FINDINGS = (
    "Atelectasis", "Calcification", "Consolidation", "Effusion", "Emphysema", "Fibrosis", "Fracture", "Mass", "Nodule",
    "Pneumothorax",
)  # fmt: skip
KINDS = ("from_files", "prepared", "prepare")
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


@dataclass(frozen=True)
class Setting:
    """What is run: bundles of a precision in a folder, by an engine in batches of a size (None: the command's own).
    prompts: sets in one pass; none: that of the dataset. models: those of `MODELS` that a command runs; none: all."""

    bundles: Path
    engine: str = "onnxruntime-cpu"
    precision: str = "fp32"
    batch: int | None = None
    prompts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def names(self) -> list[str]:
        ending = "" if self.precision == "fp32" else f"-{self.precision}"
        return [f"{model}-{MODELS[model]}{ending}" for model in self.models or MODELS]

    def command(self, kind: str, data: Path, out: Path, cache: Path) -> list[str]:
        """The command line of a kind of run; a run of prepared images needs their cache."""
        line = [*COMMAND, "fast", "prepare" if kind == "prepare" else "eval"]
        for name in self.names():
            line += ["--model", name]
        line += ["--bundles", str(self.bundles), "--data", f"chestxdet10={data}", "--cache", str(cache)]
        if kind != "prepare":
            line += ["--engine", self.engine, "--out", str(out)]
            line += ["--batch", str(self.batch)] if self.batch else []
            line += [part for name in self.prompts for part in ("--prompts", name)]
        return line


def export_missing(setting: Setting) -> None:
    for (model, variant), name in zip(MODELS.items(), setting.names(), strict=True):
        if not (setting.bundles / name).is_dir():
            line = [*COMMAND, "export", "--model", model, "--variant", variant, "--weights", "stand-in"]
            if setting.precision == "int8":  # judged on the demo's radiographs; made-up weights pass no verdict
                line += ["--config", str(ROOT / "demo" / "xbench.toml"), "--calibration", "chestxdet10"]
                line += ["--accept", "100"]
            subprocess.run([*line, "--precision", setting.precision, "--out", str(setting.bundles)], check=True)


def make_sample(root: Path, count: int, side: int) -> Path:
    """A ChestX-Det10 folder of `count` made-up radiographs, each with one box."""
    from xbench_fast.runtime.benching.inputs import film_files

    (root / "test_data").mkdir(parents=True)
    files = film_files(root / "test_data", count, side, seed=0)
    listed = [{"file_name": path.name, "syms": ["Effusion"], "boxes": [[100, 200, 500, 600]]} for path in files]
    (root / "test.json").write_text(json.dumps(listed))
    return root


def spend(setting: Setting, kind: str, data: Path, out: Path, cache: Path) -> Spent:
    """Runs a command once. Ends the benchmark if it fails or leaves a cell out."""
    from xbench_fast.runtime.benching.timing import clocked

    command = setting.command(kind, data, out, cache)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    timed = clocked(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if timed.result.returncode:
        raise SystemExit(f"{kind} ended with status {timed.result.returncode}: {timed.result.stderr.strip()[-2000:]}")
    if kind != "prepare":
        cells = json.loads((out / "run.json").read_text())["cells"].values()
        if len(cells) != len(setting.names()) * max(1, len(setting.prompts)) or any(
            cell["state"] != "done" for cell in cells
        ):
            raise SystemExit(f"not every cell was evaluated: {timed.result.stderr.strip()[-2000:]}")
    return Spent(timed.wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def one_round(setting: Setting, samples: dict[int, Path], kinds: tuple[str, ...]) -> dict[str, Spent]:
    """What each kind takes on each of the samples, by kind and number of images."""
    needed = {*kinds, "prepare"} if "prepared" in kinds else set(kinds)
    measured = {}
    for count, data in samples.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for kind in (kind for kind in ("prepare", "prepared", "from_files") if kind in needed):
                cache = folder / ("other" if kind == "from_files" else "cache")
                spent = spend(setting, kind, data, folder / kind, cache)
                print(f"{kind:<12}{count:>6} images  {spent.wall:8.1f} s  {spent.cpu:8.1f} CPU s", flush=True)
                measured[f"{kind} {count}"] = spent
    return measured


def extrapolate(rounds: list[dict[str, Spent]], kind: str, images: int, cores: int) -> dict[str, float | None]:
    """Seconds of the whole grid from the medians over rounds; None where more images took no longer, so that noise
    would be extrapolated."""
    whole: dict[str, float | None] = {}
    for clock in ("wall", "cpu"):
        few, many = (median(getattr(once[f"{kind} {n}"], clock) for once in rounds) for n in (FEW, images))
        whole[clock] = round(few + (CASES - FEW) * (many - few) / (images - FEW)) if many > few else None
    cpu = whole["cpu"]
    busy = None if cpu is None else round(cpu / cores)
    return {"seconds": whole["wall"], "cpu_seconds": cpu, "seconds_if_all_cores_were_busy": busy}


def shown(kind: str, whole: dict[str, float | None]) -> str:
    """A line about a kind of run."""
    what = f"{len(MODELS)} models x {CASES} cases, {kind}"
    if whole["seconds"] is None or whole["cpu_seconds"] is None:
        return f"{what}: more images took no longer; raise --images or --rounds"
    return f"{what}: {whole['seconds']} s, {whole['cpu_seconds']} CPU s"


def commit() -> tuple[str, str]:
    """Hash and date of the checkout's commit, the hash with + where product files differ from it; "unknown" twice where
    the copy of the checkout has no history."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    try:
        digest, date = git("show", "-s", "--format=%h %cs", "HEAD").split()
        changed = git("status", "--porcelain", "--", *(f":/{room}" for room in ROOMS))
    except (OSError, subprocess.CalledProcessError):
        return "unknown", "unknown"
    return digest + ("+" if changed else ""), date


def kept_rows(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """`rows` with `row` in the place of the one of the same commit, machine and setting, or at the end."""

    def key(one: dict[str, Any]) -> tuple[Any, ...]:
        setting = one.get("engine", "onnxruntime-cpu"), one.get("precision", "fp32"), one.get("batch")
        return one["commit"], one["machine"], *setting

    same = [old for old in rows if key(old) == key(row)]
    return [row if old in same else old for old in rows] + ([] if same else [row])


def machine_kind() -> dict[str, object]:
    from xbench_fast.runtime.host.machine_record import describe_machine

    described = describe_machine()
    return {key: described[key] for key in ("cpu", "cores", "gpus", "system") if key in described}


def measure(setting: Setting, samples: dict[int, Path], kinds: tuple[str, ...], turns: int, out: Path | None) -> None:
    """Runs the rounds; after each, prints and keeps the row of all so far."""
    from xbench_fast.runtime.host.machine_record import usable_cores

    (digest, date), machine, load = commit(), machine_kind(), os.getloadavg()[0]
    cores, rounds, images = usable_cores(), list[dict[str, Spent]](), max(samples)
    for turn in range(turns):
        rounds.append(one_round(setting, samples, kinds))
        row: dict[str, Any] = {
            "commit": digest,
            "date": date,
            "machine": machine,
            "engine": setting.engine,
            "precision": setting.precision,
            "batch": setting.batch,
            "images": images,
            "rounds": turn + 1,
            "load_average_before": round(load, 2),
        }
        for kind in kinds:
            row[kind] = whole = extrapolate(rounds, kind, images, cores)
            print(shown(kind, whole), flush=True)
        if out is not None:
            kept = json.loads(out.read_text())["rows"] if out.is_file() else []
            what = __doc__.splitlines()[0] if __doc__ else ""
            document = {"what": what, "models": list(MODELS), "cases": CASES, "rows": kept_rows(kept, row)}
            out.write_text(json.dumps(document, indent=1) + "\n")
    if load > 0.5 * cores:
        print(f"The machine was busy before the run (load {load:.1f}): read the CPU seconds.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bundles", type=Path, required=True, help="the seven bundles; those missing are made there")
    parser.add_argument("--engine", default=Setting.engine, help=f"[{Setting.engine}]")
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), default=Setting.precision, help="[fp32]")
    parser.add_argument("--batch", type=int, help="images per batch [the command's own]")
    parser.add_argument("--images", type=int, default=24, help=f"of the sample [24]; {CASES}: nothing is extrapolated")
    parser.add_argument("--side", type=int, default=SIDE, help=f"of the sample's images, in pixels [{SIDE}]")
    parser.add_argument("--kind", action="append", choices=KINDS, help="what to time; can be repeated [all]")
    parser.add_argument("--rounds", type=int, default=2, help="[2]")
    parser.add_argument("--json", type=Path, help="keep the row in this file")
    options = parser.parse_args()
    if options.images <= FEW:
        parser.error(f"--images must be more than {FEW}")
    use_checkout()
    setting = Setting(options.bundles, options.engine, options.precision, options.batch)
    export_missing(setting)
    with tempfile.TemporaryDirectory(prefix="xbench-grid-") as name:
        folder = Path(name)
        samples = {n: make_sample(folder / f"data-{n}", n, options.side) for n in (FEW, options.images)}
        if setting.engine != Setting.engine:
            spend(setting, "from_files", samples[FEW], folder / "warm", folder / "warm-cache")
        measure(setting, samples, tuple(options.kind or KINDS), options.rounds, options.json)


if __name__ == "__main__":
    main()
