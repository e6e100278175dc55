"""Compares the engine torch with ONNX Runtime on the CPU, on bundles of full size with stand-in weights.

    python benchmarks/torch_parity.py [--models biovil,kad] [--bundles FOLDER] [--images 2] [--json FILE]

Each model is exported, compared in a process of its own and deleted, one after another; `--bundles` compares the
bundles of a folder instead. Stand-in weights have the true shapes and one seed, and images are invented with one.
Reported for each bundle: the greatest difference of logits and of maps, as a fraction of the largest value of ONNX
Runtime's, over all images and the queries of one prompt set. Models that are not named keep their figures in FILE.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.manifest import MODEL_ORDER
from xbench_fast.engines.select import open_engine

REFERENCE, ENGINE, SET = "onnxruntime-cpu", "torch", "chestxdet10"
SCORES = "logits", "saliency"


def compare(path: Path, images: int) -> dict[str, Any]:
    """The differences between the engines for one bundle."""
    bundle = Bundle.load(path)
    side, sets = bundle.manifest.geometry.size, bundle.manifest.prompt_sets
    text = bundle.prompt_set(SET if SET in sets else next(iter(sets))).features
    pixels = np.random.default_rng(0).integers(0, 256, (images, 1, side, side), np.uint8)
    found = []
    for name in (REFERENCE, ENGINE):  # one at a time, because each holds the weights
        with open_engine(bundle, name) as engine:
            found.append(engine.run(pixels, text))
    want, have = ({name: getattr(scores, name).astype(np.float64) for name in SCORES} for scores in found)
    differences = {name: float(np.abs(have[name] - want[name]).max() / np.abs(want[name]).max()) for name in SCORES}
    return {
        "precision": bundle.manifest.precision,
        "images": images,
        "queries": len(text),
        **{name: float(f"{value:.2g}") for name, value in differences.items()},
    }


def compare_apart(path: Path, images: int) -> dict[str, Any]:
    """`compare` in another process, so that the memory of one model is free for the next."""
    command = [sys.executable, __file__, "--one", str(path), "--images", str(images)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    print(f"{path.name}: logits {found['logits']:.1e}, saliency {found['saliency']:.1e}", flush=True)
    return found


def exported(model: str, folder: Path) -> None:
    """A bundle of `model` with stand-in weights in `folder`, made in another process."""
    code = (
        "import sys; from pathlib import Path; from xbench_fast.export.pipeline import ModelSource, export_bundle;"
        "export_bundle(ModelSource(sys.argv[1]), Path(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, model, str(folder)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODEL_ORDER))
    parser.add_argument("--bundles", type=Path, metavar="FOLDER", help="compare the bundles in it, export nothing")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(compare(options.one, options.images)))
        return
    from xbench_fast.runtime.benching.benchmark_record import write_record

    file = options.json
    found = json.loads(file.read_text())["bundles"] if file and file.is_file() else {}
    for model in options.models.split(",") if options.bundles is None else [""]:
        with tempfile.TemporaryDirectory(prefix="xbench-parity-") as name:
            folder = options.bundles or Path(name)
            if model:
                exported(model, folder)
            for manifest in sorted(folder.glob("*/bundle.json")):
                found[manifest.parent.name] = compare_apart(manifest.parent, options.images)
        if file is not None:
            what = f"{ENGINE} against {REFERENCE}, greatest difference as a fraction of the largest value"
            write_record(file, {"what": what, "bundles": dict(sorted(found.items()))})


if __name__ == "__main__":
    main()
