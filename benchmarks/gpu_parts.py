"""The parts of the GPU check; `gpu_check.py` runs each in its own process. A part yields its rows one by one.

The kernel's parts need only the repository, NumPy and CuPy; the others need the packages that their rows name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
MODEL, BATCHES = "kad", (8, 256)


def row(name: str, status: str, note: str = "", **values: Any) -> Row:
    """status: "ok", "failed" or "not run", the last two with the reason in `note`."""
    return {"name": name, "status": status, "note": " ".join(note.split())[:400], **values}


def missing(*modules: str) -> str | None:
    """Why a part cannot run, if one of `modules` is not installed."""
    absent = [name for name in modules if not _installed(name)]
    return f"not installed: {', '.join(absent)}" if absent else None


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def compiler(seconds: float) -> Iterator[Row]:
    """What NVRTC makes of the kernels for a run, and the registers and spills of each architecture by nvcc."""
    from xbench_fast.metrics_gpu.nvrtc import OPTIONS
    from xbench_fast.metrics_gpu.sweep.gpu import source

    yield _by_nvrtc(source())
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        yield row("nvcc", "not run", "there is no nvcc")
        return
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder, "sweep.cu")
        code.write_text(source())
        known = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, timeout=30, check=False)
        for architecture in ARCHITECTURES:
            if architecture not in known.stdout.split():
                yield row(f"nvcc {architecture}", "not run", "this nvcc does not know it")
                continue
            command = [nvcc, *OPTIONS, f"-arch={architecture}", "-cubin", "-Xptxas", "-v"]
            command += ["-o", f"{folder}/sweep.cubin", str(code)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
            yield _used(architecture, done)


def _used(architecture: str, done: subprocess.CompletedProcess[str]) -> Row:
    """What the sweep needs, and what all kernels spill."""
    text = done.stdout + done.stderr
    numbers = re.search(r"'sweep' for.*?Used (\d+) registers.*?(\d+) bytes smem", text, re.S)
    if done.returncode or numbers is None:
        return row(f"nvcc {architecture}", "failed", text)
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill", text)))
    status = "failed" if spilled else "ok"
    return row(
        f"nvcc {architecture}", status, registers=int(numbers[1]), shared_bytes=int(numbers[2]), spill_bytes=spilled
    )


def _by_nvrtc(source: str) -> Row:
    """As in a run: by the compiler that CuPy loads."""
    from xbench_fast.engines.backends.gpu import load_cupy
    from xbench_fast.engines.errors import EngineError
    from xbench_fast.metrics_gpu.nvrtc import KernelError, compile_source

    lacking = missing("cupy")
    if lacking:
        return row("NVRTC sm_90", "not run", lacking)
    try:
        cupy = load_cupy()
        made = compile_source(cupy, source, "sweep.cu", "90")
    except (EngineError, KernelError) as error:
        return row("NVRTC sm_90", "failed", str(error))
    flushed, version = made.ptx.count(".ftz"), ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    status, words = "failed" if flushed else "ok", f"{flushed} instructions flush subnormals"
    return row(f"NVRTC {version} sm_90", status, words, bytes=len(made.cubin))


def kernel(seconds: float) -> Iterator[Row]:
    """Compares the sweep with a loop over pixels, then its speed with the card's copy bandwidth."""
    from xbench_fast.runtime.benching.ceilings import gpu_ceilings
    from xbench_fast.runtime.benching.gpu_state import gpu_state, throttling
    from xbench_fast.runtime.benching.parts import gpu_sweep
    from xbench_fast.runtime.benching.plan import Plan

    yield sweep_is_right(1)
    ceilings = gpu_ceilings()
    for name, value in ceilings.to_json()["product_tflop_s"].items():
        if name != "bf16":
            yield row(f"matrix product {name}", "ok", value=value, unit="TFLOP/s")
    yield row("copy", "ok", value=ceilings.to_json()["copy_gb_s"], unit="GB/s")
    for pairs in (1024, 32_768, 524_288):
        before = gpu_state()
        measured = gpu_sweep(Plan(("sweep",), (1,), 1, pairs, repeats=9, seconds=seconds / 6), ceilings)
        held = throttling([before, gpu_state()])
        reasons = [*measured.reasons(), *([held] if held else [])]
        rate = measured.rate()
        yield row(
            f"sweep, {pairs} pairs",
            "failed" if reasons else "ok",
            "; ".join(reasons),
            value=rate.median,
            least=rate.least,
            greatest=rate.greatest,
            unit="pairs/s",
            fraction=measured.fraction,
            limit=measured.limit.name if measured.limit else "",
        )


def sweep_is_right(seed: int, sizes: tuple[int, ...] = (224, 97)) -> Row:
    """Compares random maps, also flat, tied, huge and invalid ones, on two grids; returns a row."""
    import numpy as np
    from xbench_fast.engines.backends.gpu import load_cupy
    from xbench_fast.metrics_gpu.sweep.masks import pack_masks
    from xbench_fast.metrics_gpu.sweep.sweep import sweep
    from xbench_fast.runtime.benching.oracle import check_counts

    cupy, rng = load_cupy(), np.random.default_rng(seed)
    for size in sizes:
        grids = rng.standard_normal((14, 14, 14)).astype(np.float32)
        grids[1], grids[2, 0, 0], grids[3] = 0.25, np.nan, np.round(grids[3])
        grids[4] = np.exp(4 * grids[4])
        grids[5] *= np.float32(1e-40)
        grids[6] += np.float32(1000)
        masks = rng.random((len(grids), size, size)) < rng.random((len(grids), 1, 1))
        for regions in (pack_masks(masks), masks):  # bytes of 8 pixels, and bools that the device packs
            counts = sweep(cupy.asarray(grids), cupy.asarray(regions), size=(size, size)).on_host()
            with np.errstate(all="ignore"):
                reason = check_counts(counts, grids, masks)
            if reason:
                return row("sweep equals a loop", "failed", f"{size} x {size}, {regions.dtype}: {reason}")
    return row("sweep equals a loop", "ok", f"14 maps on {' and '.join(map(str, sizes))}")


def sanitizer(seconds: float) -> Iterator[Row]:
    """compute-sanitizer over a small sweep: bad addresses, races, barriers, reads of uninitialised memory."""
    program = shutil.which("compute-sanitizer")
    for tool in ("memcheck", "racecheck", "synccheck", "initcheck"):
        if program is None:
            yield row(tool, "not run", "there is no compute-sanitizer")
            continue
        command = [program, "--tool", tool, "--error-exitcode", "9"]
        command += [sys.executable, str(ROOT / "benchmarks/gpu_check.py"), "--part", "small-sweep"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds / 4, check=False)
        except subprocess.TimeoutExpired:
            yield row(tool, "failed", f"not done in {seconds / 4:.0f} s")
            continue
        said = [line for line in done.stdout.splitlines() if line.startswith(("=========", "ROW "))]
        if "not supported" in done.stdout.lower():
            yield row(tool, "not run", " ".join(said[-3:]))
        else:
            yield row(tool, "failed" if done.returncode else "ok", " ".join(said[-3:]) or done.stderr[-300:])


def small_sweep(seconds: float) -> Iterator[Row]:
    """The sweep that the sanitizer checks."""
    yield sweep_is_right(2, (64,))  # whole words, so that no kernel but ours runs


def marked_tests(seconds: float) -> Iterator[Row]:
    """Runs the tests marked gpu, each folder of them apart: one may need packages that another does not."""
    import pytest

    class Tally:
        def __init__(self) -> None:
            self.counts = {"passed": 0, "failed": 0, "skipped": 0}
            self.first = self.lacking = ""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                self.counts[report.outcome] += 1
                if report.failed and not self.first:
                    self.first = f"{report.nodeid}: {report.longreprtext[-300:]}"
            if report.skipped and not self.first and isinstance(report.longrepr, tuple):
                self.first = str(report.longrepr[2])

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                self.first = self.first or f"{report.nodeid}: {report.longreprtext[-300:]}"
                absent = re.search(r"ModuleNotFoundError: No module named '([^']+)'", report.longreprtext)
                self.lacking = absent[1] if absent else self.lacking

    for folder in sorted(path for path in (ROOT / "tests/gpu").iterdir() if any(path.glob("test_*.py"))):
        tally = Tally()
        code = pytest.main(["-q", "-m", "gpu", "-p", "no:cacheprovider", str(folder)], plugins=[tally])
        name = f"tests marked gpu, {folder.name}"
        if tally.lacking and not tally.lacking.startswith("xbench_fast"):
            yield row(name, "not run", f"not installed: {tally.lacking}")
            continue
        counts = ", ".join(f"{number} {kind}" for kind, number in tally.counts.items())
        failed = tally.counts["failed"] or code not in (0, 5)
        status = "failed" if failed else "ok" if tally.counts["passed"] else "not run"
        yield row(name, status, f"{counts} {tally.first}")


def torch_models(seconds: float) -> Iterator[Row]:
    """Measures the model in PyTorch, the baseline of the engines."""
    import numpy as np
    from xbench_fast.export.torch_runner import compiled_runner, eager_runner
    from xbench_fast.runtime.benching.spread import RepeatSpread, timed

    rng = np.random.default_rng(3)
    text = rng.standard_normal((10, 768)).astype(np.float32)
    for kind, make in (("eager", eager_runner), ("compile", compiled_runner)):
        for batch in BATCHES:
            runner = make(MODEL, "224", "fp16", "cuda:0")
            runner.prepare(rng.integers(0, 256, (batch, 1, 224, 224)).astype(np.uint8), text)
            calls = max(1, 2048 // batch)
            taken = timed(lambda repeat, runner=runner, calls=calls: runner.run(calls), 7, seconds / 8)
            rate = RepeatSpread.of([calls * batch / one for one in taken])
            yield row(f"torch {kind} fp16, {MODEL}-224, batch {batch}", "ok", runner.detail, value=rate.median,
                      least=rate.least, greatest=rate.greatest, unit="images/s")  # fmt: skip


def engine(name: str, bundles: Path | None, scratch: Path | None, seconds: float) -> Iterator[Row]:
    """`xbench-fast bench` of the bundles, or of a model with stand-in weights, which the first engine exports."""
    from xbench_fast.engines.select import backend_status
    from xbench_fast.runtime.cli import main

    reason = next(found.reason for found in backend_status() if found.name == name)
    if reason:
        yield row(name, "not run", reason)
        return
    with tempfile.TemporaryDirectory() as folder:
        if bundles is None:
            bundles = _exported((scratch or Path(folder)) / "bundles")
        out = Path(folder) / "bench.json"
        command = ["bench", "offline", "single-stream", "prepared", "--engine", name, "--bundles", str(bundles)]
        command += ["--seconds", str(seconds / 12), "--images", "2048", "--side", "512", "--json", str(out)]
        for batch in BATCHES:
            command += ["--batch", str(batch)]
        status, words = _leaves(main, command)
        if not out.is_file():
            yield row(name, "failed", f"bench ended with status {status} and without figures: {words[-300:]}")
            return
        record = json.loads(out.read_text(encoding="utf-8"))
    for one in record["measurements"]:
        unit, rate = next(iter(one["per_second"].items()))
        what = f"{one['subject']} {one['scenario']}, {one['runner']}, batch {one['batch']}"
        yield row(what, "failed" if one["reasons"] else "ok", "; ".join(one["reasons"]), value=rate["median"],
                  least=rate["min"], greatest=rate["max"], unit=f"{unit}/s", fraction=one["fraction_of_limit"],
                  latency_ms=one.get("latency_ms"))  # fmt: skip
    for one in record["not_run"]:
        yield row(f"{one['subject']} {one['scenario']}", "not run", one["reason"])


def dali(seconds: float) -> Iterator[Row]:
    """Compares DALI's decoder on the GPU with the exact one."""
    from xbench_fast.runtime.images.decoders import dali_difference

    yield row("DALI decoder", "ok", str(dali_difference()))


def _exported(bundles: Path) -> Path:
    """The folder, with a bundle of stand-in weights in it."""
    if not any(bundles.glob("*/bundle.json")):
        from xbench_fast.export.cli import main

        status, words = _leaves(
            main, ["--model", MODEL, "--weights", "stand-in", "--precision", "fp16", "--out", str(bundles)]
        )
        if status:
            raise RuntimeError(f"the export ended with status {status}: {words[-300:]}")
    return bundles


def _leaves(command: Any, arguments: list[str]) -> tuple[int, str]:
    """The status of a command line that exits the process, and what it said on standard error."""
    sys.argv = ["xbench", *arguments]
    said = io.StringIO()
    status: object = 0
    try:
        with contextlib.redirect_stderr(said):
            command()
    except SystemExit as stop:
        status = stop.code
    return status if isinstance(status, int) else int(status is not None), " ".join(said.getvalue().split())
