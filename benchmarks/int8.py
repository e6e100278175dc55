"""INT8 against float32 on a CPU: speed and verdict of each model, and KAD-224 end to end, in one run.

    python benchmarks/int8.py [--models kad clip ...] [--repeat 10] [--pair FP32 INT8] [--json FILE]

Every model is exported with stand-in weights in INT8, calibrated on some of the demo's radiographs and judged on the
others: `ratio` is the speed of the image graph against float32, both in turns, and the changes say how many maxima and
maps of made-up weights move, which is no statement on the trained model. Then `xbench-fast eval` runs KAD-224 in both
precisions in turns, from prepared radiographs; the demo's 40 stand there `--repeat` times. The file of `--json` keeps
the models of earlier runs that this one leaves out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from evaluate import make_dataset, ours

DEMO = Path(__file__).resolve().parent.parent / "demo" / "chestxdet10"
MODELS = ("kad", "clip", "medklip", "mavl", "carzero", "biomedclip", "devide")
ROUNDS = 3


def exported(model: str, precision: str, out: Path) -> Path:
    """The folder of a bundle with stand-in weights of the model's first variant."""
    command = [sys.executable, "-m", "xbench_fast.export.cli", "--model", model, "--weights", "stand-in"]
    command += ["--precision", precision, "--out", str(out)]
    if precision == "int8":
        command += ["--calibration", f"chestxdet10={DEMO}", "--accept", "100"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.splitlines()[0])


def verdict(folder: Path) -> dict[str, Any]:
    """What bundle.json says of an INT8 graph."""
    manifest = json.loads((folder / "bundle.json").read_text())
    metrics, how = manifest["parity"]["metrics"], manifest["quantisation"]
    return {
        "form": how["form"],
        "layers": how["layers"],
        "ratio": metrics["speed"]["ratio"],
        "ms_per_image": metrics["speed"]["ms_per_image"],
        "image_graph_mb": round(manifest["files"]["image.onnx"]["bytes"] / 1e6, 1),
        "images": metrics["images"],
        "pairs": metrics["pairs"],
        "hits_flipped": metrics["hits_flipped"],
        "changes": metrics["changes"],
        "largest_error_of_full_scale": manifest["parity"]["needed"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS, help="all by default")
    parser.add_argument("--repeat", type=int, default=10, help="copies of every radiograph, end to end; 0: none [10]")
    parser.add_argument("--pair", nargs=2, type=Path, help="bundles of KAD-224 in fp32 and int8; exported if not given")
    parser.add_argument("--threads", type=int, default=2, help="threads of eval [2]")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    from xbench_fast.runtime.benching.record import write_record

    known = arguments.json is not None and arguments.json.is_file()
    result: dict[str, Any] = json.loads(arguments.json.read_text()) if known else {"models": {}}
    result["what"] = "INT8 against float32: stand-in weights; eval of KAD-224 from prepared radiographs, 10 findings"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in arguments.models:
            bundle = exported(model, "int8", folder / "bundles")
            result["models"][bundle.name] = entry = verdict(bundle)
            shutil.rmtree(bundle)
            print(
                f"{bundle.name:<30}{entry['ratio']:>6.2f} x  {entry['hits_flipped']} of {entry['pairs']} hits flipped"
            )
            if arguments.json:
                write_record(arguments.json, result)
        if arguments.repeat:
            pair = arguments.pair or [exported("kad", how, folder / how) for how in ("fp32", "int8")]
            result["end_to_end"] = end_to_end(pair, folder, arguments.repeat, arguments.threads)
            print(f"end to end {result['end_to_end']['ratio']:.2f} x")
    if arguments.json:
        write_record(arguments.json, result)


def end_to_end(pair: Sequence[Path], folder: Path, repeat: int, threads: int) -> dict[str, Any]:
    """Seconds of `eval` in both precisions, in turns."""
    entries = make_dataset(DEMO / "test_data", DEMO / "test.json", repeat, folder / "data")
    rounds: list[list[float]] = []
    for number in range(ROUNDS + 1):  # the first one prepares the radiographs
        each = [
            ours(bundle, folder / "data", folder / f"run-{number}-{place}", folder / "cache", threads)[0]
            for place, bundle in enumerate(pair)
        ]
        if number:
            rounds.append(each)
            print(f"eval of {len(entries)} prepared radiographs: {each[0]:.1f} s in fp32, {each[1]:.1f} s in int8")
    return {
        "images": len(entries),
        "threads": threads,
        "seconds_fp32": [full for full, _ in rounds],
        "seconds_int8": [low for _, low in rounds],
        "ratio": median(full / low for full, low in rounds),
    }


if __name__ == "__main__":
    main()
