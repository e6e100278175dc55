"""The one-call GPU check without a GPU: what fails, hangs or is absent becomes a row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def check(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import gpu_check

    return gpu_check


def test_parts_without_gpu_or_package_are_not_run(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (check.Part("kernel", 10, ("no_such_package",)), check.Part("dali", 10, ("numpy",)))
    monkeypatch.setattr(check, "gpu_count", lambda: 0)
    assert [row["note"] for row in check.check(parts, None, 60)] == ["no NVIDIA GPU"] * 2
    monkeypatch.setattr(check, "gpu_count", lambda: 1)
    monkeypatch.setattr(check, "run_part", lambda part, bundles, seconds: [{"part": part.name, "seconds": seconds}])
    absent, run = check.check(parts, None, 60)
    assert absent["status"] == "not run" and "no_such_package" in absent["note"]
    assert run["part"] == "dali" and 50 < run["seconds"] <= 60  # all that is left goes to the last part
    assert check.check(parts[1:], None, 0)[0]["note"] == "no time was left"


def test_a_part_that_fails_or_hangs_is_a_row(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = check.run_part(check.Part("unheard-of", 1), None, 60)
    assert row["status"] == "failed" and "KeyError" in row["note"] and row["part"] == "unheard-of"
    script = tmp_path / "script.py"
    monkeypatch.setattr(check, "__file__", str(script))
    script.write_text('import time\nprint(\'ROW {"name": "a", "status": "ok"}\', flush=True)\ntime.sleep(600)\n')
    for seconds in (3, 30, 300):  # on a busy machine Python alone may take the first three seconds to start
        rows = check.run_part(check.Part("slow", 1), None, seconds)
        assert f"not done in {seconds} s" in rows[-1]["note"]
        if len(rows) > 1:
            break
    assert [row.get("name") for row in rows[:-1]] == ["a"]
    script.write_text("import os\nos._exit(7)\n")
    (row,) = check.run_part(check.Part("dead", 1), None, 60)
    assert "ended with status 7" in row["note"]


def test_the_table_has_a_line_per_row(check: Any) -> None:
    rows = [
        {"part": "kernel", "name": "sweep", "status": "ok", "value": 2.5e7, "unit": "pairs/s", "fraction": 0.0458},
        {"part": "kernel", "name": "copy", "status": "failed", "value": 4.3, "unit": "TB/s", "note": "spread"},
        {"part": "dali", "name": "dali", "status": "not run", "note": "no NVIDIA GPU"},
    ]
    assert check.table(rows).splitlines() == [
        "kernel | sweep | 25,000,000 pairs/s | 0.0458 of the limit",
        "kernel | copy | 4.3 TB/s (failed) | spread",
        "dali | dali | not run: no NVIDIA GPU",
    ]


def test_the_kernels_part_needs_numpy_and_cupy_only(root: Path) -> None:
    """From the checkout, with everything else that the project depends on hidden."""
    hidden = [
        "numba",
        "pandas",
        "sklearn",
        "scipy",
        "pyarrow",
        "pydicom",
        "PIL",
        "click",
        "rich",
        "onnxruntime",
        "torch",
    ]
    code = (
        "import sys\n"
        f"for name in {hidden!r}: sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(root / 'benchmarks')!r})\n"
        "import gpu_check\ngpu_check.use_checkout()\n"
        "from xbench_fast.runtime.benching import ceilings, gpu_state, oracle, parts, plan\n"
        "from xbench_fast.metrics_gpu.sweep import gpu as sweep_cupy\n"
        "assert '__syncthreads' in sweep_cupy.source() and parts.gpu_sweep\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_wrong_counts_of_a_gpu_are_a_failed_row(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_parts
    import numpy as np
    from xbench_fast.metrics_gpu.sweep.sweep import sweep as real

    class Host:
        def __init__(self, array: Any) -> None:
            self.array = array

    fake = ModuleType("cupy")
    fake.asarray = Host  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", fake)
    place = sys.modules[real.__module__]
    monkeypatch.setattr(place, "sweep", lambda maps, bits, size: real(maps.array, bits.array, size=size))
    assert gpu_parts.sweep_is_right(1, (33,))["status"] == "ok"
    monkeypatch.setattr(place, "sweep", lambda maps, bits, size: real(np.flip(maps.array, 1), bits.array, size=size))
    found = gpu_parts.sweep_is_right(1, (33,))
    assert found["status"] == "failed" and "33 x 33" in found["note"]
