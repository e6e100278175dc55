"""End to end: `xbench-fast eval` against the usual research pipeline, the same images, side by side in one run.

    python benchmarks/evaluate.py --images FOLDER --annotations FILE.json [--repeat 5] [--json FILE]

FOLDER holds radiographs and FILE is their ChestX-Det10 list. Both sides run KAD-224 with stand-in weights (speed does
not depend on the weights' values) on the ten findings of ChestX-Det10, with the same number of threads.

The usual pipeline, as in research code: PIL to RGB, bicubic to 224, torch eager in batches of 8, each map resized
to the image grid, then Dice and IoU by a loop over 101 thresholds with logical_and and logical_or. Ours is the command
a user runs: first without prepared images, then again into a new run directory with the images of the first run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def make_dataset(images: Path, annotations: Path, repeat: int, root: Path) -> list[dict[str, Any]]:
    """A ChestX-Det10 folder at `root` with every image `repeat` times under another name."""
    entries = [e for e in json.loads(annotations.read_text()) if (images / e["file_name"]).is_file()]
    (root / "test_data").mkdir(parents=True)
    listed = []
    for copy in range(repeat):
        for entry in entries:
            name = f"{copy:03d}_{entry['file_name']}"
            (root / "test_data" / name).write_bytes((images / entry["file_name"]).read_bytes())
            listed.append({**entry, "file_name": name})
    (root / "test.json").write_text(json.dumps(listed))
    return listed


def usual_pipeline(entries: list[dict[str, Any]], folder: Path, classes: list[str], threads: int) -> dict[str, float]:
    """Seconds of each stage of the usual pipeline."""
    import torch
    from PIL import Image
    from xbench_fast.export.adapter import stand_in_adapter

    torch.set_num_threads(threads)
    adapter = stand_in_adapter("kad", "224")
    mean, std = (np.array(v, np.float32) for v in (adapter.mean, adapter.std))
    text = torch.randn(len(classes), *adapter.text_shape)
    seconds = {"decode and resize": 0.0, "model": 0.0, "masks": 0.0, "maps and thresholds": 0.0}
    thresholds = np.arange(0, 1.01, 0.01)
    with torch.inference_mode():
        adapter.forward(torch.zeros(8, 3, 224, 224), text)  # warm-up
        for start in range(0, len(entries), 8):
            part = entries[start : start + 8]
            clock = time.perf_counter()
            pixels = [
                np.asarray(
                    Image.open(folder / e["file_name"]).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
                )
                for e in part
            ]
            batch = torch.from_numpy(((np.stack(pixels) / np.float32(255) - mean) / std).transpose(0, 3, 1, 2))
            seconds["decode and resize"] += time.perf_counter() - clock
            clock = time.perf_counter()
            _, saliency = adapter.forward(batch.contiguous(), text)
            seconds["model"] += time.perf_counter() - clock
            for entry, maps in zip(part, saliency, strict=True):
                for name in set(entry["syms"]):
                    clock = time.perf_counter()
                    region = np.zeros((1024, 1024), bool)
                    for symbol, (x0, y0, x1, y1) in zip(entry["syms"], entry["boxes"], strict=True):
                        if symbol == name:
                            region[y0:y1, x0:x1] = True
                    region = np.asarray(Image.fromarray(region).resize((224, 224), Image.Resampling.NEAREST))
                    seconds["masks"] += time.perf_counter() - clock
                    clock = time.perf_counter()
                    one = maps[classes.index(name)][None, None]
                    heat = torch.nn.functional.interpolate(one, (224, 224), mode="bilinear")[0, 0].numpy()
                    heat = (heat - heat.min()) / (heat.max() - heat.min())
                    _ = region.reshape(-1)[heat.argmax()]
                    for threshold in thresholds:
                        binary = heat >= threshold
                        overlap = np.logical_and(binary, region).sum()
                        union = np.logical_or(binary, region).sum()
                        _ = (2 * overlap / (binary.sum() + region.sum()), overlap / union)
                    seconds["maps and thresholds"] += time.perf_counter() - clock
    return seconds


def ours(bundles: Path, data: Path, out: Path, cache: Path, threads: int, *extra: str) -> tuple[float, float]:
    """Runs the command; seconds of the cell (loop only) and of the whole process."""
    command = [sys.executable, "-m", "xbench_fast.runtime.cli", "eval", "--all", "--bundles", str(bundles)]
    command += ["--data", f"chestxdet10={data}", "--out", str(out), "--cache", str(cache), "--threads", str(threads)]
    clock = time.perf_counter()
    subprocess.run([*command, "--engine", "onnxruntime-cpu", *extra], check=True, stdout=subprocess.DEVNULL)
    whole = time.perf_counter() - clock
    (cell,) = json.loads((out / "run.json").read_text())["cells"].values()
    return float(cell["seconds"]), whole


def stages(bundle_path: Path, data: Path, threads: int) -> dict[str, float]:
    """Seconds of our stages, each run alone over the whole dataset, so that the sum shows what overlapping saves."""
    from concurrent.futures import ThreadPoolExecutor

    from xbench_fast.engines.bundle import Bundle
    from xbench_fast.engines.select import open_engine
    from xbench_fast.metrics_gpu.sweep.sweep import sweep
    from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
    from xbench_fast.runtime.data.datasets.region_grid import region_grid
    from xbench_fast.runtime.data.images.decode import read_grey
    from xbench_fast.runtime.data.images.resizing import to_model

    bundle = Bundle.load(bundle_path)
    cases = list(ChestXDet10(data).cases())
    found: dict[str, float] = {}
    clock = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        pixels = list(pool.map(lambda c: to_model(read_grey(c.image), bundle.manifest.geometry), cases))
    found["decode and resize"] = time.perf_counter() - clock
    prompts = bundle.prompt_set("chestxdet10")
    with open_engine(bundle, "onnxruntime-cpu", threads=threads) as engine:
        engine.run(np.stack(pixels[:16])[:, None], prompts.features)  # warm-up
        clock = time.perf_counter()
        maps = [
            engine.run(np.stack(pixels[i : i + 16])[:, None], prompts.features).saliency
            for i in range(0, len(pixels), 16)
        ]
        found["model"] = time.perf_counter() - clock
    saliency = np.concatenate(maps)
    clock = time.perf_counter()
    pairs = [
        (index, prompts.findings.index(name), region_grid(region, 1024, 1024)[0])
        for index, case in enumerate(cases)
        for name, region in case.regions.items()
    ]
    found["masks"] = time.perf_counter() - clock
    chosen = np.stack([saliency[i, j] for i, j, _ in pairs])
    masks = np.stack([m for _, _, m in pairs])
    sweep(chosen[:1], masks[:1])  # warm-up
    clock = time.perf_counter()
    sweep(chosen, masks)
    found["maps and thresholds"] = time.perf_counter() - clock
    found["pairs"] = float(len(pairs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True, help="folder of radiographs")
    parser.add_argument("--annotations", type=Path, required=True, help="ChestX-Det10 list of these radiographs")
    parser.add_argument("--repeat", type=int, default=5, help="copies of every image [5]")
    parser.add_argument("--threads", type=int, default=2, help="threads on both sides [2]")
    parser.add_argument("--bundle", type=Path, help="a kad-224 bundle; exported with stand-in weights when not given")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        entries = make_dataset(arguments.images, arguments.annotations, arguments.repeat, folder / "data")
        bundle = arguments.bundle
        if bundle is None:
            command = [sys.executable, "-m", "xbench_fast.export.cli", "--model", "kad", "--weights", "stand-in"]
            subprocess.run([*command, "--out", str(folder / "bundles")], check=True)
            bundle = folder / "bundles" / "kad-224"
        threads = arguments.threads
        classes = sorted({name for entry in entries for name in entry["syms"]})
        ours(bundle, folder / "data", folder / "warm", folder / "warm-cache", threads, "--limit", "16")
        usual = usual_pipeline(entries, folder / "data" / "test_data", classes, threads)
        first, first_whole = ours(bundle, folder / "data", folder / "first", folder / "cache", threads)
        again, again_whole = ours(bundle, folder / "data", folder / "again", folder / "cache", threads)
        alone = stages(bundle, folder / "data", threads)
    from xbench_fast.runtime.benching.benchmark_record import write_record

    total = sum(usual.values())
    result = {
        "what": "eval end to end, KAD-224 (stand-in weights), 10 findings, ChestX-Det10 radiographs",
        "images": len(entries),
        "pairs": int(alone.pop("pairs")),
        "threads": threads,
        "usual_seconds": {**usual, "total": total},
        "ours_stage_alone_seconds": alone,
        "ours_first_run_seconds": {"cell": first, "whole_process": first_whole},
        "ours_prepared_seconds": {"cell": again, "whole_process": again_whole},
        "ratio_first_run": total / first,
        "ratio_prepared": total / again,
        "ratio_first_run_whole_process": total / first_whole,
        "ratio_prepared_whole_process": total / again_whole,
    }
    print(f"{len(entries)} images, {result['pairs']} pairs, {threads} threads on both sides")
    print(f"{'stage':<22}{'usual s':>9}{'ours s, alone':>15}{'ratio':>8}")
    for stage, seconds in usual.items():
        print(f"{stage:<22}{seconds:>9.2f}{alone[stage]:>15.3f}{seconds / alone[stage]:>8.1f}")
    print(f"{'all':<22}{total:>9.2f}{sum(alone.values()):>15.2f}{total / sum(alone.values()):>8.1f}")
    print(f"eval, first run:       {first:8.2f} s  {total / first:5.1f} x (whole process {total / first_whole:.1f} x)")
    print(f"eval, prepared images: {again:8.2f} s  {total / again:5.1f} x (whole process {total / again_whole:.1f} x)")
    if arguments.json:
        write_record(arguments.json, result)


if __name__ == "__main__":
    main()
