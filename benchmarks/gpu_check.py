"""One call that checks and measures everything that needs a GPU, within 8 minutes, and says what it could not do.

    python benchmarks/gpu_check.py [--out FILE.json] [--bundles DIR] [--seconds 480] [--only PART]

Parts: the kernel (compiled, compared with a loop over pixels, timed, watched by compute-sanitizer), tests marked gpu,
PyTorch eager and compiled, each engine that is installed, and DALI. Every part runs in its own process with its own
time budget: a part that fails, hangs or lacks a package becomes a row with its reason, and the others still run. The
file is written after every part. The kernel's parts need this repository, NumPy and CuPy; nothing has to be installed
for the repository itself. Bundles are exported once, and only for an engine that runs here.

Exit status 0 if no row failed (rows that could not run have not failed), else 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUT = ROOT / "benchmarks/results/gpu.json"
NO_GPU = "no NVIDIA GPU"


@dataclass(frozen=True)
class Part:
    """`modules` it needs; `share` of the whole time it may take, in seconds of 480."""

    name: str
    share: int
    modules: tuple[str, ...] = ()
    gpu: bool = True


PARTS = (
    Part("compiler", 20, gpu=False),
    Part("kernel", 60, ("numpy", "cupy")),
    Part("sanitizer", 80, ("numpy", "cupy")),
    Part("tests", 80, ("pytest", "cupy")),
    Part("torch", 70, ("torch",)),
    Part("engine-tensorrt", 70, ("tensorrt", "cupy")),
    Part("engine-tensorrt-rtx", 40, ("tensorrt_rtx", "cupy")),
    Part("engine-onnxruntime-cuda", 40, ("onnxruntime", "cupy")),
    Part("dali", 20, ("nvidia.dali",)),
)


def use_checkout() -> None:
    """Makes `xbench_fast` the folders of this repository, whether or not it is installed."""
    package = types.ModuleType("xbench_fast")
    package.__path__ = [str(ROOT)]
    sys.modules["xbench_fast"] = package


def gpu_count() -> int:
    """Number of GPUs the driver finds; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def rows_of(name: str, bundles: Path | None, scratch: Path | None, seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of a part, one by one. Engines run `bundles`, or what is exported to `scratch` for all of them."""
    import gpu_parts

    functions: dict[str, Callable[[float], Iterator[dict[str, Any]]]] = {
        "compiler": gpu_parts.compiler,
        "kernel": gpu_parts.kernel,
        "small-sweep": gpu_parts.small_sweep,
        "sanitizer": gpu_parts.sanitizer,
        "tests": gpu_parts.marked_tests,
        "torch": gpu_parts.torch_models,
        "dali": gpu_parts.dali,
    }
    if name.startswith("engine-"):
        yield from gpu_parts.engine(name.removeprefix("engine-"), bundles, scratch, seconds)
    else:
        yield from functions[name](seconds)


def child(name: str, bundles: Path | None, scratch: Path | None, seconds: float) -> int:
    """Runs one part in this process; writes each row to standard output as a JSON object after a marker."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    use_checkout()
    failed = False
    try:
        for found in rows_of(name, bundles, scratch, seconds):
            failed = failed or found["status"] == "failed"
            print("ROW " + json.dumps(found), flush=True)
    except ModuleNotFoundError as error:
        note = f"not installed: {error.name}"
        print("ROW " + json.dumps({"name": name, "status": "not run", "note": note}), flush=True)
    except Exception as error:  # any error of a part is its result
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        print("ROW " + json.dumps({"name": name, "status": "failed", "note": reason}), flush=True)
        return 1
    return int(failed)


def run_part(part: Part, bundles: Path | None, scratch: Path | None, seconds: float) -> list[dict[str, Any]]:
    """The part's rows, from a process that is ended when its time is over."""
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part.name, "--seconds", str(seconds)]
    command += ["--bundles", str(bundles.resolve())] if bundles else []
    command += ["--scratch", str(scratch)] if scratch else []
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        said, _ = process.communicate(timeout=seconds)
        ended = None
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: also ends the processes it started
        said, _ = process.communicate()
        ended = f"not done in {seconds:.0f} s"
    rows = [json.loads(line[4:]) for line in said.splitlines() if line.startswith("ROW ")]
    if ended is None and process.returncode and not any(found["status"] == "failed" for found in rows):
        ended = f"ended with status {process.returncode}: {said.strip()[-300:]}"
    if ended or not rows:
        rows.append({"name": part.name, "status": "failed", "note": ended or "it said nothing"})
    return [{"part": part.name, **found} for found in rows]


def check(
    parts: tuple[Part, ...],
    bundles: Path | None,
    seconds: float,
    keep: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
) -> list[dict[str, Any]]:
    """The rows of all parts; `keep` gets those so far after every part."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        for found in _parts(parts, bundles, Path(scratch), seconds):
            rows += found
            keep(rows)
    return rows


def _parts(
    parts: tuple[Part, ...], bundles: Path | None, scratch: Path, seconds: float
) -> Iterator[list[dict[str, Any]]]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import gpu_parts

    begun, gpus = time.monotonic(), gpu_count()
    for number, part in enumerate(parts):
        lacking = gpu_parts.missing(*part.modules)
        if part.gpu and not gpus:
            reason: str | None = NO_GPU
        else:
            reason = lacking
        left = seconds - (time.monotonic() - begun)
        # The time that earlier parts did not use is divided among the remaining parts.
        share = left * part.share / sum(other.share for other in parts[number:])
        if reason is None and share < 1:
            reason = "no time was left"
        if reason is not None:
            yield [{"part": part.name, "name": part.name, "status": "not run", "note": reason}]
            continue
        print(f"{part.name} ..", file=sys.stderr, flush=True)
        yield run_part(part, bundles, scratch, share)


def table(rows: list[dict[str, Any]]) -> str:
    """A line per row: part, name, value or status, part of the limit, note."""
    lines = []
    for found in rows:
        value = found["status"] if found["status"] != "not run" else f"not run: {found['note']}"
        if found.get("value") is not None:
            value = f"{found['value']:,.0f} {found['unit']}" if found["value"] >= 100 else (
                f"{found['value']:.3g} {found['unit']}"
            )  # fmt: skip
            if found["status"] != "ok":
                value += f" ({found['status']})"
        fraction = f"{found['fraction']:.3g} of the limit" if found.get("fraction") is not None else ""
        extra = {name: found[name] for name in ("registers", "shared_bytes", "spill_bytes") if name in found}
        note = "" if found["status"] == "not run" else found.get("note", "")[:110]
        parts = [found["part"], found["name"][:64], value, fraction, *(f"{k} {v}" for k, v in extra.items()), note]
        lines.append(" | ".join(part for part in parts if part))
    return "\n".join(lines)


def record(out: Path, rows: list[dict[str, Any]], begun: float) -> None:
    """Writes what is known so far; a file that cannot be written is said and does not end the check."""
    use_checkout()
    try:
        from xbench_fast.runtime.benching.gpu_state import gpu_state
        from xbench_fast.runtime.benching.record import write_record

        write_record(out, {"rows": rows, "seconds": round(time.monotonic() - begun, 1), "gpu_state": gpu_state()})
    except (OSError, ImportError) as error:
        print(f"{out} cannot be written: {error}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where the JSON goes [with a GPU benchmarks/results/gpu.json]")
    parser.add_argument("--bundles", type=Path, help="bundles for the engines; else one is exported with PyTorch")
    parser.add_argument("--seconds", type=float, default=480.0, help="time for everything [480]")
    parser.add_argument("--only", action="append", choices=[part.name for part in PARTS], help="only this part")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return child(options.part, options.bundles, options.scratch, options.seconds)
    begun = time.monotonic()
    chosen = tuple(part for part in PARTS if not options.only or part.name in options.only)
    out = options.out or (DEFAULT_OUT if gpu_count() else None)  # without a GPU nothing was measured
    rows: list[dict[str, Any]] = []

    def keep(so_far: list[dict[str, Any]]) -> None:
        rows[:] = so_far
        if out is not None:
            record(out, rows, begun)

    try:
        check(chosen, options.bundles, options.seconds, keep)
    except KeyboardInterrupt:
        keep([*rows, {"part": "all", "name": "interrupted", "status": "failed", "note": "ended by the user"}])
    except Exception as error:  # an error of this file must not cost the rows that there are
        note = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        keep([*rows, {"part": "all", "name": "gpu_check", "status": "failed", "note": note}])
    print(table(rows))
    print(f"{sum(found['status'] == 'failed' for found in rows)} of {len(rows)} rows failed")
    return int(any(found["status"] == "failed" for found in rows))


if __name__ == "__main__":
    sys.exit(main())
