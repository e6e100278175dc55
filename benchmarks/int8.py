"""INT8 against float32 on a CPU: speed, structure and verdict of each model, and KAD-224 end to end, in one run.

    python benchmarks/int8.py [--models kad clip ...] [--repeat 10] [--pair FP32 INT8] [--keep DIR] [--json FILE]
    python benchmarks/int8.py --models --speed FP32 INT8 [--repeat 0] [--json FILE]

Every model is exported with stand-in weights in INT8, calibrated on ten of the demo's radiographs and judged on the
other thirty: `ratio` is the speed of the image graph against float32, both in turns, and the changes say how many
maxima and maps of made-up weights move, which is no statement on the trained model. `structure` counts the products in
bytes and those that stay in float32, and which operators take rounded values. Then `xbench-fast eval` runs KAD-224 in
both precisions in turns, from prepared radiographs; the demo's 40 stand there `--repeat` times. The file of `--json`
keeps the models of earlier runs that this one leaves out; `--keep` keeps the bundles. `--speed` exports nothing: it
measures the image graphs of the bundles in both folders again, in wall time and in CPU time of one thread, which other
work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from evaluate import make_dataset, ours
from grid import MODELS as PAPER

MODELS = {**PAPER, "biovil": "480", "biovil_t": "448", "chexzero": "vit-b-32", "afloc": "resnet-50", "xrv": "all"}
DEMO = Path(__file__).resolve().parent.parent / "demo"
PRODUCTS = ("Conv", "MatMul", "Gemm", "Einsum", "ConvTranspose")
ROUNDS, RUNS = 3, 4


def exported(model: str, precision: str, out: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a bundle with stand-in weights, and what its export took."""
    command = [sys.executable, "-m", "xbench_fast.export.cli", "--model", model, "--variant", MODELS[model]]
    command += ["--weights", "stand-in", "--precision", precision, "--out", str(out), "--force"]
    if precision == "int8":  # the configuration says that the boxes are drawn on 512 pixels
        command += ["--config", str(DEMO / "xbench.toml"), "--calibration", "chestxdet10", "--accept", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{model} was not exported in {precision}.")
    took = {"cpu_s": round(usage.ru_utime + usage.ru_stime, 1), "peak_memory_mib": round(usage.ru_maxrss / 2**10)}
    return Path(lines[0]), took


def structure(graph: Path) -> dict[str, Any]:
    """Products in bytes and in float32 by operator, and the operators that read bytes that were made numbers again."""
    import onnx

    nodes = onnx.load(str(graph)).graph.node
    made = {name: node.op_type for node in nodes for name in node.output}
    low, full, readers = Counter[str](), Counter[str](), Counter[str]()
    for node in nodes:
        sources = [made.get(name) == "DequantizeLinear" for name in node.input[:2]]
        if node.op_type in PRODUCTS:
            (low if all(sources) else full)[node.op_type] += 1
        elif any(sources) and node.op_type != "DequantizeLinear":
            readers[node.op_type] += 1
    return {"in_bytes": low, "in_float32": full, "other_readers_of_rounded_values": readers}


def verdict(folder: Path) -> dict[str, Any]:
    """What bundle.json says of an INT8 graph."""
    manifest = json.loads((folder / "bundle.json").read_text())
    metrics, how = manifest["parity"]["metrics"], manifest["quantisation"]
    return {
        "form": how["form"],
        "layers": how["layers"],
        "structure": structure(folder / "image.onnx"),
        "ratio": metrics["speed"]["ratio"],
        "ms_per_image": metrics["speed"]["ms_per_image"],
        "image_graph_mb": round(manifest["files"]["image.onnx"]["bytes"] / 1e6, 1),
        "calibration_images": len(how["images"]),
        "images": metrics["images"],
        "pairs": metrics["pairs"],
        "hits_flipped": metrics["hits_flipped"],
        "changes": metrics["changes"],
        "largest_error_of_full_scale": manifest["parity"]["needed"],
    }


def speeds(full: Path, low: Path, threads: int) -> dict[str, Any]:
    """Milliseconds an image of two image graphs, [float32, INT8], pairs of images in turns, and their ratios."""
    import onnxruntime

    def clock(session: Any, inputs: dict[str, Any], now: Callable[[], float]) -> float:
        start = now()
        for _ in range(RUNS):
            session.run(None, inputs)
        return 1e3 * (now() - start) / (2 * RUNS)

    found: dict[str, Any] = {}
    for key, count, now in (("", threads, time.perf_counter), ("cpu_", 1, time.process_time)):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = count
        sessions = [onnxruntime.InferenceSession(str(graph), options) for graph in (full, low)]
        shapes = {
            entry.name: [n if isinstance(n, int) else None for n in entry.shape] for entry in sessions[0].get_inputs()
        }
        random = np.random.default_rng(0)
        pixels = random.integers(0, 256, [2, *(n or 1 for n in shapes["pixels"][1:])]).astype(np.uint8)
        text = random.normal(size=[n or 10 for n in shapes["text"]]).astype(np.float32)
        inputs = {"pixels": pixels, "text": text}
        rounds = [[clock(session, inputs, now) for session in sessions] for _ in range(ROUNDS + 1)][1:]
        found[f"{key}ratio"] = round(median(one / other for one, other in rounds), 2)
        found[f"{key}ms_per_image"] = [round(median(values), 2) for values in zip(*rounds, strict=True)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS, help="all by default")
    parser.add_argument("--repeat", type=int, default=10, help="copies of every radiograph, end to end; 0: none [10]")
    parser.add_argument("--pair", nargs=2, type=Path, help="bundles of KAD-224 in fp32 and int8; exported if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the INT8 bundles here")
    parser.add_argument("--speed", nargs=2, type=Path, help="folders of fp32 and of int8 bundles: measure these again")
    parser.add_argument("--threads", type=int, default=2, help="threads of eval and of --speed [2]")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    from xbench_fast.runtime.benching.benchmark_record import write_record

    known = arguments.json is not None and arguments.json.is_file()
    result: dict[str, Any] = json.loads(arguments.json.read_text()) if known else {"models": {}}
    result["what"] = "INT8 against float32: stand-in weights; eval of KAD-224 from prepared radiographs, 10 findings"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in arguments.models:
            bundle, took = exported(model, "int8", arguments.keep or folder / "bundles")
            result["models"][bundle.name] = entry = {**verdict(bundle), "export": took, "load_average": os.getloadavg()}
            if arguments.keep is None:
                shutil.rmtree(bundle)
            print(
                f"{bundle.name:<30}{entry['ratio']:>6.2f} x  {entry['hits_flipped']} of {entry['pairs']} hits flipped"
            )
            if arguments.json:
                write_record(arguments.json, result)
        for low in sorted(arguments.speed[1].glob("*-int8")) if arguments.speed else ():
            full = arguments.speed[0] / low.name.removesuffix("-int8")
            if low.name in result["models"] and (full / "image.onnx").is_file():
                again = speeds(full / "image.onnx", low / "image.onnx", arguments.threads)
                result["models"][low.name] |= {**again, "load_average": os.getloadavg()}
                print(f"{low.name:<30}{again['ratio']:>6.2f} x  {again['cpu_ratio']:.2f} x less CPU time")
        if arguments.repeat:
            pair = arguments.pair or [exported("kad", how, folder / how)[0] for how in ("fp32", "int8")]
            result["end_to_end"] = end_to_end(pair, folder, arguments.repeat, arguments.threads)
            print(f"end to end {result['end_to_end']['ratio']:.2f} x")
    if arguments.json:
        write_record(arguments.json, result)


def end_to_end(pair: Sequence[Path], folder: Path, repeat: int, threads: int) -> dict[str, Any]:
    """Seconds of `eval` in both precisions, in turns."""
    images, more = DEMO / "chestxdet10", ("--data-option", "chestxdet10.frame=512")
    entries = make_dataset(images / "test_data", images / "test.json", repeat, folder / "data")
    rounds: list[list[float]] = []
    for number in range(ROUNDS + 1):  # the first one prepares the radiographs
        each = [
            ours(bundle, folder / "data", folder / f"run-{number}-{place}", folder / "cache", threads, *more)[0]
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
