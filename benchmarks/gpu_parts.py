"""The parts of the GPU check; `gpu_check.py` runs each in its own process. A part yields its rows one by one.

The kernel's parts need only the repository, NumPy and CuPy; the others need the packages that their rows name.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]

ARCHITECTURES = ("sm_90", "sm_80", "sm_86", "sm_89", "sm_100", "sm_120")


def row(name: str, status: str, note: str = "", **values: Any) -> Row:
    """status: "ok", "failed" or "not run", the last two with the reason in `note`."""
    return {"name": name, "status": status, "note": " ".join(note.split())[:400], **values}


def missing(*modules: str) -> str | None:
    """Why a part cannot run, if one of `modules` is not installed."""
    absent = [name for name in modules if not _installed(name)]
    return f"not installed: {', '.join(absent)}" if absent else None


def not_installed(name: str, module: str) -> Row:
    """The row of a part that met a module that is not there: a package, or, which is a failure, one of this project.

    Of the project's own packages it also names the others that are absent, so that one look is enough.
    """
    if module.partition(".")[0] == "xbench_fast":
        return row(name, "failed", f"the checkout has no {module}")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [match[0] for entry in project["dependencies"] if (match := re.match(r"[\w.-]+", entry))]
    absent = [package for package in needed if package != module and not _distributed(package)]
    more = f"; of what the project needs also {', '.join(absent)}" if absent else ""
    return row(name, "not run", f"not installed: {module}{more}")


def _distributed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package around it
        return False


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
        listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, timeout=30, check=False)
        with ThreadPoolExecutor() as pool:
            yield from pool.map(lambda name: _used(nvcc, name, listed.stdout, (*OPTIONS, str(code))), ARCHITECTURES)


def _used(nvcc: str, architecture: str, codes: str, arguments: tuple[str, ...]) -> Row:
    """What the sweep needs, and what all kernels spill."""
    if architecture not in codes.split():
        return row(f"nvcc {architecture}", "not run", "this nvcc does not know it")
    command = [nvcc, *arguments, f"-arch={architecture}", "-cubin", "-Xptxas", "-v", "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
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
    from xbench_fast.engines.errors import EngineError
    from xbench_fast.runtime.benching.ceilings import gpu_ceilings
    from xbench_fast.runtime.benching.gpu_state import gpu_state, throttling
    from xbench_fast.runtime.benching.parts import gpu_sweep
    from xbench_fast.runtime.benching.plan import Plan

    yield sweep_is_right(1)
    yield means_are_right(1)
    ceilings = None
    try:
        ceilings = gpu_ceilings()
        for name, value in ceilings.to_json()["product_tflop_s"].items():
            if name != "bf16":
                yield row(f"matrix product {name}", "ok", value=value, unit="TFLOP/s")
        yield row("copy", "ok", value=ceilings.to_json()["copy_gb_s"], unit="GB/s")
    except EngineError as error:  # the sweep's speed counts without them
        yield row("limits", "failed", str(error))
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
    """What the sanitizer checks: every kernel, whole words of masks and a last one that is padded."""
    from xbench_fast.engines.backends.gpu import load_cupy

    # An allocation for each array: in a block of CuPy's pool an address beyond an array is valid memory.
    load_cupy().cuda.set_allocator(None)
    yield sweep_is_right(2, (64, 33))
    yield means_are_right(2)


def means_are_right(seed: int) -> Row:
    """Compares the means over several prompts' maps with NumPy's, bit for bit."""
    import numpy as np
    from xbench_fast.engines.backends.gpu import load_cupy
    from xbench_fast.metrics_gpu.sweep.gpu import mean_maps

    maps = np.random.default_rng(seed).standard_normal((7, 5, 3)).astype(np.float32)
    maps[3] *= np.float32(1e-40)
    lists = [[2], [0, 1], [6, 3, 3, 5], [4, 0, 2]]
    starts = np.cumsum([0, *map(len, lists)])
    found = mean_maps(load_cupy().asarray(maps), starts, np.concatenate(lists)).get()
    wanted = [sum(maps[i].astype(np.float64) for i in one) / len(one) for one in lists]
    same = found.tobytes() == np.array(wanted).astype(np.float32).tobytes()
    return row("means equal NumPy's", "ok" if same else "failed", "" if same else "other bits")


class Tally:
    """A plugin of pytest that counts the outcomes, and the tests left out by their reason."""

    def __init__(self) -> None:
        self.passed = self.failed = 0
        self.skipped: Counter[str] = Counter()
        self.first = self.lacking = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            words = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
            absent = re.search(r"could not import '([^']+)'", words)
            self.skipped[f"not installed: {absent[1]}" if absent else words.removeprefix("Skipped: ")] += 1
        elif report.failed:
            self.failed += 1
            self.first = self.first or f"{report.nodeid}: {report.longreprtext[-300:]}"
        elif report.when == "call":
            self.passed += 1

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.first = self.first or f"{report.nodeid}: {report.longreprtext[-300:]}"
            absent = re.search(r"ModuleNotFoundError: No module named '([^']+)'", report.longreprtext)
            self.lacking = absent[1] if absent else self.lacking


def marked_tests(seconds: float) -> Iterator[Row]:
    """Runs the tests marked gpu, each folder of them apart: one may need packages that another does not."""
    import pytest

    for folder in sorted(path for path in (ROOT / "tests/gpu").iterdir() if any(path.glob("test_*.py"))):
        tally = Tally()
        code = pytest.main(["-q", "-m", "gpu", "-p", "no:cacheprovider", str(folder)], plugins=[tally])
        yield from test_rows(folder, tally, int(code))


def test_rows(folder: Path, tally: Tally, code: int) -> Iterator[Row]:
    """What ran, and a row for each reason why tests did not."""
    name = f"tests marked gpu, {folder.name}"
    if tally.lacking and not tally.lacking.startswith("xbench_fast"):
        functions = sum(len(re.findall(r"^def test_", path.read_text(), re.M)) for path in folder.glob("test_*.py"))
        yield not_installed(f"{name}: all {functions} functions", tally.lacking)
        return
    broken = code not in (0, 5)
    if tally.passed or tally.failed or broken or not tally.skipped:
        status = "failed" if tally.failed or broken else "ok" if tally.passed else "not run"
        yield row(name, status, f"{tally.passed} passed, {tally.failed} failed {tally.first}")
    for reason, count in tally.skipped.items():
        yield row(f"{name}: {count} tests", "not run", reason)
