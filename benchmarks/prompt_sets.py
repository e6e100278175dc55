"""Measures what further prompt sets cost: one set against many of the same images, in one pass each. With --tiles, what
images in tiles cost, against plain ones.

    python benchmarks/prompt_sets.py [--models kad:224,clip:vit-b-16] [--sets 20] [--tiles 2x2] [--images 24]
                                     [--json FILE]

Full sizes with stand-in weights; each set has one made-up feature for each of the ten findings of ChestX-Det10. A round
runs `xbench-fast eval` with prepared images for one set and for all, on 4 images and on --images, in turns. Two ratios
follow from the medians of CPU seconds: of one more image of the dataset, and of the whole command, whose start also
opens the engine and takes its graph apart. Separate evaluations of the sets cost
their number times one set.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from from_checkout import COMMAND, use_checkout
from grid import FEW, FINDINGS, SIDE, make_sample


def make_bundle(model: str, variant: str, sets: int, folder: Path) -> Path:
    """A bundle of the model's image graph, with sets 0 to `sets` - 1."""
    from xbench_fast.engines.bundle import write_bundle
    from xbench_fast.engines.manifest import Manifest
    from xbench_fast.engines.prompts.prompt_set import PromptSet
    from xbench_fast.export import stand_in_adapter
    from xbench_fast.export.onnx_graph import OPSET, export_image, not_learnt

    adapter, count = stand_in_adapter(model, variant), len(FINDINGS)
    source = folder / "source"
    source.mkdir(parents=True)
    spec = export_image(adapter, source)
    rng, files, made = np.random.default_rng(0), {spec.file: source / spec.file}, {}
    for number in range(sets):
        made[f"set{number}"] = item = PromptSet(
            name=f"set{number}",
            findings=FINDINGS,
            texts=FINDINGS,
            finding_of=np.arange(count, dtype=np.int32),
            polarity=np.ones(count, np.int8),
            features=rng.standard_normal((count, *adapter.text_shape), dtype=np.float32),
            status=("own",) * count,
        )
        item.save(source / item.file)
        files[item.file] = source / item.file
    manifest = Manifest(
        model=adapter.name,
        variant=adapter.variant,
        weights="stand-in",
        checkpoint=None,
        geometry=adapter.geometry,
        grid=adapter.grid,
        saliency={"kind": adapter.saliency.kind, "description": adapter.saliency.description},
        logit_scale=adapter.logit_scale,
        not_learnt=not_learnt(adapter, source / spec.file),
        text={"context": adapter.context},
        graphs={"image": spec},
        prompt_sets={name: item.record() for name, item in made.items()},
        opset=OPSET,
        exporter={},
        parity={},
    )
    return write_bundle(folder / "bundles" / f"{model}-{variant}", manifest, files).path


def spend(program: str, bundle: Path, data: Path, cache: Path, *more: str) -> dict[str, float]:
    """Wall and CPU seconds of one command. Ends the benchmark if it fails."""
    from xbench_fast.runtime.benching.timing import clocked

    line = [*COMMAND, "fast", program, "--bundles", str(bundle.parent), "--model", bundle.name, "--cache", str(cache)]
    line += ["--data", f"chestxdet10={data}", "--dataset", "chestxdet10", *more]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def wait() -> Any:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{program} ended with status {process.returncode}: {said.strip()[-2000:]}")
        return usage

    timed = clocked(wait)
    usage = timed.result
    return {"wall_s": timed.wall, "cpu_s": usage.ru_utime + usage.ru_stime}


def measure(
    model: str, variant: str, sets: int, images: int, rounds: int, side: int, tiles: str | None = None
) -> dict[str, Any]:
    """The figures of one model: of `sets` prompt sets, or of one in tiles, against one."""
    plain, more = ("1 sets", f"{sets} sets") if tiles is None else ("plain", tiles)
    with tempfile.TemporaryDirectory(prefix="xbench-sets-") as name:
        folder = Path(name)
        bundle = make_bundle(model, variant, sets, folder)
        samples = {count: make_sample(folder / f"data{count}", count, side) for count in (FEW, images)}
        several = [part for n in range(sets) for part in ("--prompts", f"set{n}")]
        one = ["--data-option", "chestxdet10.prompts=set0"] if tiles else ["--prompts", "set0"]
        ask = {plain: one, more: several if tiles is None else [*one, "--tiles", tiles]}
        for count, data in samples.items():
            spend("prepare", bundle, data, folder / f"cache{count}", "--data-option", "chestxdet10.prompts=set0")
            if tiles is not None:  # prepares the larger size too
                how = ["--engine", "onnxruntime-cpu", "--out", str(folder / f"first{count}"), *ask[more]]
                spend("eval", bundle, data, folder / f"cache{count}", *how)
        spent: dict[tuple[int, str], list[dict[str, float]]] = {}
        for turn in range(rounds):
            for count, data in samples.items():
                for label, prompts in ask.items():
                    out = folder / f"run{turn}-{count}-{label.replace(' ', '-')}"
                    how = ["--engine", "onnxruntime-cpu", "--out", str(out), *prompts]
                    once = spend("eval", bundle, data, folder / f"cache{count}", *how)
                    spent.setdefault((count, label), []).append(once)
                    print(f"{bundle.name}: {count} images, {label}: {once['cpu_s']:.2f} CPU s", flush=True)
    middle = {key: {what: median(one[what] for one in told) for what in told[0]} for key, told in spent.items()}
    slopes = {label: (middle[images, label]["cpu_s"] - middle[FEW, label]["cpu_s"]) / (images - FEW) for label in ask}
    return {
        "cpu_s_of_one_more_image": {label.split()[0]: round(slope, 4) for label, slope in slopes.items()},
        "ratio_of_one_more_image": round(slopes[more] / slopes[plain], 3),
        "ratio_of_the_command": round(middle[images, more]["cpu_s"] / middle[images, plain]["cpu_s"], 3),
        "ratio_of_wall_time": round(middle[images, more]["wall_s"] / middle[images, plain]["wall_s"], 3),
        "spent": {f"{count} images, {label}": told for (count, label), told in spent.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What further prompt sets cost.")
    parser.add_argument("--models", default="kad:224,clip:vit-b-16", metavar="MODEL:VARIANT,...")
    parser.add_argument("--sets", type=int, default=20, help="[20]")
    parser.add_argument("--tiles", metavar="GRID", help="measure tiles in place of further sets")
    parser.add_argument("--images", type=int, default=24, help="[24]")
    parser.add_argument("--rounds", type=int, default=1, help="[1]")
    parser.add_argument("--side", type=int, default=SIDE, help=f"of the sample's images, in pixels [{SIDE}]")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    use_checkout()
    from xbench_fast.runtime.benching.benchmark_record import write_record

    load = os.getloadavg()[0]
    models = {}
    for name in options.models.split(","):
        model, variant = name.split(":")
        models[f"{model}-{variant}"] = found = measure(
            model, variant, options.sets, options.images, options.rounds, options.side, options.tiles
        )
        more = options.tiles or f"{options.sets} sets"
        print(f"{name}: {more} cost {found['ratio_of_one_more_image']} of one, for one more image; "
              f"{found['ratio_of_the_command']} for the command with {options.images} images", flush=True)  # fmt: skip
    if options.json is not None:
        what = f"eval with {options.sets} prompt sets of {len(FINDINGS)} findings against one, prepared images"
        if options.tiles is not None:
            what = f"eval in tiles {options.tiles} against plain images, prepared, {len(FINDINGS)} findings"
        record = {
            "what": what,
            "sets": 1 if options.tiles else options.sets,
            "images": options.images,
            "rounds": options.rounds,
        }
        write_record(options.json, {**record, "load_average_before": round(load, 2), "models": models})


if __name__ == "__main__":
    main()
