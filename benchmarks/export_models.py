"""Measures exports: every model with stand-in weights, each in its own process, with its parity report.

    python benchmarks/export_models.py [--models kad,clip] [--prompts FOLDER] [--keep DIR] [--json FILE]

Stand-in weights have the true shapes, so time, memory and size are those of the published weights; only reading a
checkpoint differs. `--prompts` is a folder with the published sentences of MedKLIP and MAVL, whose sets then contain
the whole book. Models that are not named keep their figures in FILE; `--keep` keeps the bundles. CPU seconds are those
of all threads; on a machine with other work (see the load average) they are more reliable than wall time.

Reported: parameters, multiply-accumulates (`xbench_fast.export.cost`), size, seconds by step, the peak resident memory
of the process, and the worst comparison of graph and model, as a fraction of the largest value.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from xbench_fast.engines.manifest import MODEL_ORDER

BOOKS = ("medklip", "mavl")


def export_one(model: str, prompts: Path | None, out: Path) -> dict[str, Any]:
    """One export in this process, and its measurements."""
    start = time.perf_counter()
    from xbench_fast.export.pipeline import BundleOptions, ModelSource, export_bundle
    from xbench_fast.export.prompts.from_files import read_prompts

    own = [prompts] if prompts is not None and model in BOOKS else []
    result = export_bundle(ModelSource(model), out, BundleOptions(prompts=read_prompts(model, own)))
    wall, usage = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    load = os.getloadavg()[2]
    manifest = result.bundle.manifest
    worst: dict[str, float] = {}
    for check in result.report.checks:
        worst[check.output] = max(check.needed, worst.get(check.output, 0.0))
    return {
        "bundle": f"{manifest.model}-{manifest.variant}",
        "book": bool(own),
        "queries_per_set": {name: len(record.texts) for name, record in manifest.prompt_sets.items()},
        "cost": result.cost.to_json(),
        "onnx_mb": {name: round(manifest.files[spec.file].bytes / 1e6, 1) for name, spec in manifest.graphs.items()},
        "wall_s": round(wall, 1),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
        "load_average_15_min": round(load, 1),
        "steps_wall_s": {name: round(seconds, 1) for name, seconds in result.seconds.items()},
        "peak_memory_mib": round(result.peak_memory_mib),
        "parity": {
            "compared": len(result.report.checks),
            "tolerance": 1e-4,
            "worst": {name: float(f"{needed:.2g}") for name, needed in sorted(worst.items())},
        },
    }


def run(models: list[str], prompts: Path | None, keep: Path | None) -> dict[str, Any]:
    """Every model in its own process, one after another; `keep` is a folder for the bundles."""
    found = {}
    for model in models:
        with tempfile.TemporaryDirectory(prefix="xbench-export-") as folder:
            answer = Path(folder) / "answer.json"
            command = [sys.executable, __file__, "--one", model, "--json", str(answer)]
            command += ["--prompts", str(prompts)] if prompts is not None else []
            command += ["--keep", str(keep or folder)]
            subprocess.run(command, check=True)
            found[model] = json.loads(answer.read_text())
        print(f"{model}: {describe(found[model])}", flush=True)
    return found


def describe(entry: dict[str, Any]) -> str:
    """One line of text for a model."""
    worst = max(entry["parity"]["worst"].values())
    return (
        f"{entry['cpu_s']:.0f} CPU s, {entry['wall_s']:.0f} s, {entry['peak_memory_mib']} MiB, "
        f"ONNX {sum(entry['onnx_mb'].values()):.0f} MB, worst {worst:.1e} of {entry['parity']['compared']} comparisons"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What an export takes.")
    parser.add_argument("--models", default=",".join(MODEL_ORDER))
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the bundles here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        arguments.json.write_text(json.dumps(export_one(arguments.one, arguments.prompts, arguments.keep)))
    else:
        from xbench_fast.export.libraries import versions
        from xbench_fast.runtime.benching.benchmark_record import write_record

        kept = json.loads(arguments.json.read_text())["models"] if arguments.json and arguments.json.is_file() else {}
        models = {**kept, **run(arguments.models.split(","), arguments.prompts, arguments.keep)}
        total = {key: round(sum(entry[key] for entry in models.values()), 1) for key in ("wall_s", "cpu_s")}
        what = "export with parity report, stand-in weights, each model in a process of its own"
        result = {"what": what, "exporter": versions(), "models": dict(sorted(models.items())), "total": total}
        print(f"all: {total['cpu_s']:.0f} CPU s, {total['wall_s']:.0f} s")
        if arguments.json is not None:
            write_record(arguments.json, result)


if __name__ == "__main__":
    main()
