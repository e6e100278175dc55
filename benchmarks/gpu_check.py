"""One call that checks and measures everything that needs a GPU, within 8 minutes, and says what it could not do.

    python benchmarks/gpu_check.py [--out FILE.json] [--bundles PATH] [--seconds 480] [--only PART]

Parts: the kernel (compiled, compared with a loop over pixels, timed, watched by compute-sanitizer), tests marked gpu,
PyTorch eager and compiled, each engine that is installed, and DALI. Every part runs in its own process with its own
time budget: a part that fails, hangs or lacks a package becomes a row with its reason, and the others still run. The
file is written after every row. The kernel's parts need this repository, NumPy and CuPy; nothing has to be installed
for the repository itself. Engines take prepared bundles (--bundles, a folder or an archive as tile_bundles.py makes
one); without them a part of its own exports one first, if an engine runs here.

Exit status 0 if no row failed (rows that could not run have not failed), else 1.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu_engines
import gpu_parts
from from_checkout import ROOT, use_checkout

DEFAULT_OUT = ROOT / "benchmarks/results/gpu.json"
NO_GPU = "no NVIDIA GPU"
ENGINE = "engine-"


@dataclass(frozen=True)
class Part:
    """`modules` it needs; `share` of the whole time it may take, in seconds of 480."""

    name: str
    share: int
    modules: tuple[str, ...] = ()
    gpu: bool = True


PARTS = (
    Part("compiler", 30, gpu=False),
    Part("kernel", 60, ("numpy", "cupy")),
    Part("sanitizer", 80, ("numpy", "cupy")),
    Part("tests", 80, ("pytest", "hypothesis", "cupy")),
    Part("torch", 70, ("torch",)),
    Part("export", 60, ("torch", "onnx")),
    Part("engine-tensorrt", 70, ("tensorrt", "cupy")),
    Part("engine-tensorrt-rtx", 40, ("tensorrt_rtx", "cupy")),
    Part("engine-torch", 40, ("torch", "onnx", "cupy")),
    Part("engine-onnxruntime-cuda", 40, ("onnxruntime", "cupy")),
    Part("dali", 20, ("nvidia.dali",)),
)


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


def rows_of(name: str, bundles: Path | None, seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of a part, one by one. Engines run the bundles of a folder, which `export` fills."""
    functions: dict[str, Callable[[float], Iterator[dict[str, Any]]]] = {
        "compiler": gpu_parts.compiler,
        "kernel": gpu_parts.kernel,
        "small-sweep": gpu_parts.small_sweep,
        "sanitizer": gpu_parts.sanitizer,
        "tests": gpu_parts.marked_tests,
        "torch": gpu_engines.torch_models,
        "dali": gpu_engines.dali,
    }
    if name.startswith(ENGINE):
        yield from gpu_engines.engine(name.removeprefix(ENGINE), bundles, seconds)
    elif name == "export":
        yield from gpu_engines.export(bundles)
    else:
        yield from functions[name](seconds)


def child(name: str, bundles: Path | None, seconds: float) -> int:
    """Runs one part in this process; writes each row to standard output as a JSON object after a marker."""
    use_checkout()
    from xbench_fast.engines.errors import MissingExtraError

    failed = False
    try:
        for found in rows_of(name, bundles, seconds):
            failed = failed or found["status"] == "failed"
            print("ROW " + json.dumps(found), flush=True)
    except ModuleNotFoundError as error:
        found = gpu_parts.not_installed(name, str(error.name))
        print("ROW " + json.dumps(found), flush=True)
        failed = failed or found["status"] == "failed"
    except MissingExtraError as error:
        print("ROW " + json.dumps(gpu_parts.row(name, "not run", str(error))), flush=True)
    except Exception as error:  # any error of a part is its result
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        print("ROW " + json.dumps({"name": name, "status": "failed", "note": reason}), flush=True)
        return 1
    return int(failed)


def run_part(part: Part, bundles: Path | None, seconds: float) -> Iterator[dict[str, Any]]:
    """The part's rows as they come, from a process that is ended when its time is over."""
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part.name, "--seconds", str(seconds)]
    command += ["--bundles", str(bundles.resolve())] if bundles else []
    deadline = time.monotonic() + seconds
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    lines: Queue[str | None] = Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    said: deque[str] = deque(maxlen=20)
    ended, rows, failed = None, 0, False
    try:
        while True:
            try:
                line = lines.get(timeout=10 if ended else max(0.0, deadline - time.monotonic()))
            except Empty:
                if ended:  # a process that left the session still holds the pipe
                    break
                ended = f"not done in {seconds:.0f} s"
                _kill(process)
                continue  # with the lines that it had written
            if line is None:
                break
            if line.startswith("ROW "):
                found = json.loads(line[4:])
                rows, failed = rows + 1, failed or found["status"] == "failed"
                yield {"part": part.name, **found}
            else:
                said.append(line.strip())
    finally:
        _kill(process)
    if ended is None and process.wait() and not failed:
        ended = f"ended with status {process.returncode}: {' '.join(said)[-300:]}"
    if ended or not rows:
        yield {"part": part.name, "name": part.name, "status": "failed", "note": ended or "it said nothing"}


def _read(process: subprocess.Popen[str], lines: Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    process.wait()
    lines.put(None)


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: also ends the processes it started


def check(
    parts: tuple[Part, ...],
    bundles: Path | None,
    seconds: float,
    keep: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
) -> list[dict[str, Any]]:
    """The rows of all parts; `keep` gets those so far after every row."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch:
        for found in _rows(parts, bundles, Path(scratch) / "bundles", seconds):
            rows.append(found)
            keep(rows)
    return rows


def _rows(parts: tuple[Part, ...], bundles: Path | None, exported: Path, seconds: float) -> Iterator[dict[str, Any]]:
    begun, gpus = time.monotonic(), gpu_count()
    given = bundles is not None
    if bundles is not None and bundles.is_file():
        try:
            with tarfile.open(bundles) as archive:
                archive.extractall(exported, filter="data")
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
            note = f"{bundles} cannot be unpacked: {error}"
            yield {"part": "bundles", "name": bundles.name, "status": "failed", "note": note}
        bundles = exported
    for number, part in enumerate(parts):
        reason = NO_GPU if part.gpu and not gpus else _reason(part, parts, given)
        left = seconds - (time.monotonic() - begun)
        # The time that earlier parts did not use is divided among the remaining parts.
        share = left * part.share / sum(other.share for other in parts[number:])
        if reason is None and share < 1:
            reason = "no time was left"
        if reason is not None:
            yield {"part": part.name, "name": part.name, "status": "not run", "note": reason}
            continue
        print(f"{part.name} ..", file=sys.stderr, flush=True)
        yield from run_part(part, bundles or exported, share)


def _reason(part: Part, parts: Sequence[Part], given: bool) -> str | None:
    """Why a part is not run, apart from the GPU and the time."""
    engines = [other for other in parts if other.name.startswith(ENGINE)]
    if part.name == "export" and given:
        return "bundles are given"
    if part.name == "export" and engines and all(gpu_parts.missing(*other.modules) for other in engines):
        return "no engine is installed that would run it"
    return gpu_parts.missing(*part.modules)


def record(out: Path, rows: list[dict[str, Any]], begun: float) -> None:
    """Writes what is known so far; a file that cannot be written is said and does not end the check."""
    use_checkout()
    try:
        from xbench_fast.runtime.benching.benchmark_record import write_record
        from xbench_fast.runtime.benching.gpu_state import gpu_state

        write_record(out, {"rows": rows, "seconds": round(time.monotonic() - begun, 1), "gpu_state": gpu_state()})
    except (OSError, ImportError) as error:
        print(f"{out} cannot be written: {error}", file=sys.stderr, flush=True)


def wanted(part: Part, only: Sequence[str] | None, bundles: Path | None) -> bool:
    """Whether a part is asked for. Engines without bundles bring the export."""
    if not only or part.name in only:
        return True
    return part.name == "export" and bundles is None and any(name.startswith(ENGINE) for name in only)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where the JSON goes [with a GPU benchmarks/results/gpu.json]")
    parser.add_argument("--bundles", type=Path, help="folder or .tar.xz of bundles; else one is exported with PyTorch")
    parser.add_argument("--seconds", type=float, default=480.0, help="time for everything [480]")
    parser.add_argument("--only", action="append", choices=[part.name for part in PARTS], help="only this part")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return child(options.part, options.bundles, options.seconds)
    if options.bundles is not None and not options.bundles.exists():
        parser.error(f"there is no {options.bundles}")
    begun = time.monotonic()
    chosen = tuple(part for part in PARTS if wanted(part, options.only, options.bundles))
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
    print(gpu_parts.table(rows))
    failed, not_run = (sum(found["status"] == status for found in rows) for status in ("failed", "not run"))
    print(f"{failed} of {len(rows)} rows failed, {not_run} were not run")
    return int(any(found["status"] == "failed" for found in rows))


if __name__ == "__main__":
    sys.exit(main())
