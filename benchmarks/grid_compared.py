"""The paper's whole grid in INT8, and with ten prompt sets in one pass, against float32 with one set, by model.

    python benchmarks/grid_compared.py --bundles DIR [--sets 10] [--images 24] [--rounds 2] [--json FILE]

Bundles, sample and extrapolation are those of grid.py. A round runs `xbench-fast eval` with prepared images of each
model alone, in turns: in float32, in INT8, and in float32 with --sets prompt sets of other words for the ten findings.
What is compared is CPU time, which other work on the machine disturbs less. The verdict of an INT8 bundle is what its
export compared on 30 radiographs of the demo; weights are stand-ins, so it says nothing about a trained model. The JSON
keeps one row for each commit and kind of machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from from_checkout import COMMAND, use_checkout
from grid import (
    CASES,
    FEW,
    FINDINGS,
    MODELS,
    SIDE,
    Setting,
    Spent,
    commit,
    export_missing,
    extrapolate,
    kept_rows,
    machine_kind,
    make_sample,
    spend,
)


def encode_missing(setting: Setting, folder: Path) -> None:
    """Adds the prompt sets to the bundles that lack them: other words for each finding in each set."""
    from xbench_fast.engines.bundle import Bundle

    sets = {name: {finding: [f"{name} of {finding}"] for finding in FINDINGS} for name in setting.prompts}
    (folder / "prompts.json").write_text(json.dumps(sets))
    for name in setting.names():
        if sets.keys() - Bundle.load(setting.bundles / name).manifest.prompt_sets.keys():
            line = [*COMMAND, "fast", "prompts", "encode", "--bundles", str(setting.bundles), "--model", name]
            subprocess.run([*line, "--prompts", str(folder / "prompts.json"), "--replace"], check=True)


def verdict_of(bundle: Path) -> dict[str, Any]:
    """What the export of an INT8 bundle compared with float32."""
    found = json.loads((bundle / "bundle.json").read_text())["parity"]["metrics"]
    return {key: found[key] for key in ("images", "pairs", "hits_flipped", "dice_change", "auc_change")}


def one_round(settings: dict[str, Setting], samples: dict[int, Path]) -> dict[str, dict[str, Spent]]:
    """What `eval` takes on each of the samples, by setting; the images are prepared before."""
    told: dict[str, dict[str, Spent]] = {label: {} for label in settings}
    for count, data in samples.items():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            spend(next(iter(settings.values())), "prepare", data, folder / "out", folder / "cache")
            for at, (label, setting) in enumerate(settings.items()):
                spent = spend(setting, "prepared", data, folder / f"run{at}", folder / "cache")
                told[label][f"prepared {count}"] = spent
                print(f"{setting.names()[0]:<40}{label:<10}{count:>4} images {spent.cpu:8.1f} CPU s", flush=True)
    return told


def figures(cpu: dict[str, float | None]) -> dict[str, Any]:
    """CPU seconds and both ratios; None where more images took no longer."""
    one, int8, several = cpu.values()
    return {
        "cpu_seconds": cpu,
        "int8_times_less_cpu": round(one / int8, 2) if one and int8 else None,
        "sets_times_the_cpu": round(several / one, 2) if one and several else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bundles", type=Path, required=True, help="the bundles; those missing are made there")
    parser.add_argument("--sets", type=int, default=10, help="prompt sets in one pass, at least 2 [10]")
    parser.add_argument("--images", type=int, default=24, help="of the sample [24]")
    parser.add_argument("--side", type=int, default=SIDE, help=f"of the sample's images, in pixels [{SIDE}]")
    parser.add_argument("--rounds", type=int, default=2, help="[2]")
    parser.add_argument("--json", type=Path, help="keep the row in this file")
    options = parser.parse_args()
    if options.images <= FEW or options.sets < 2:
        parser.error(f"--images must be more than {FEW}, and --sets at least 2")
    use_checkout()
    plain, sets = Setting(options.bundles), tuple(f"wording-{number}" for number in range(options.sets))
    settings = {
        "fp32": plain,
        "int8": replace(plain, precision="int8"),
        f"{options.sets} sets": replace(plain, prompts=sets),
    }
    for setting in settings.values():
        export_missing(setting)
    (digest, date), load = commit(), os.getloadavg()[0]
    rounds: dict[str, list[dict[str, dict[str, Spent]]]] = {}
    with tempfile.TemporaryDirectory(prefix="xbench-grid-") as name:
        folder = Path(name)
        encode_missing(settings[f"{options.sets} sets"], folder)
        samples = {n: make_sample(folder / f"data-{n}", n, options.side) for n in (FEW, options.images)}
        for _ in range(options.rounds):
            for model in MODELS:
                of_model = {label: replace(setting, models=(model,)) for label, setting in settings.items()}
                rounds.setdefault(model, []).append(one_round(of_model, samples))
    models = {
        model: figures(
            {
                label: extrapolate([once[label] for once in told], "prepared", options.images, 1)["cpu_seconds"]
                for label in settings
            }
        )
        for model, told in rounds.items()
    }
    whole = figures({label: sum(found["cpu_seconds"][label] or 0 for found in models.values()) for label in settings})
    for model, found in models.items():
        found["verdict"] = verdict_of(options.bundles / replace(settings["int8"], models=(model,)).names()[0])
        print(
            f"{model}: INT8 {found['int8_times_less_cpu']} x less, {options.sets} sets {found['sets_times_the_cpu']} x"
        )
    print(
        f"all: INT8 {whole['int8_times_less_cpu']} x less CPU time, {options.sets} sets {whole['sets_times_the_cpu']} x"
    )
    if options.json is not None:
        row = {"commit": digest, "date": date, "machine": machine_kind(), "images": options.images}
        row |= {"rounds": options.rounds, "sets": options.sets, "load_average_before": round(load, 2)}
        kept = json.loads(options.json.read_text())["rows"] if options.json.is_file() else []
        document = {
            "what": __doc__.splitlines()[0] if __doc__ else "",
            "cases": CASES,
            "rows": kept_rows(kept, {**row, **whole, "models": models}),
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
