"""The one-call GPU check without a GPU: what fails, hangs or is absent becomes a row."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import weakref
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
    monkeypatch.setattr(
        check, "run_part", lambda part, bundles, scratch, seconds: [{"part": part.name, "seconds": seconds}]
    )
    absent, run = check.check(parts, None, 60)
    assert absent["status"] == "not run" and "no_such_package" in absent["note"]
    assert run["part"] == "dali" and 50 < run["seconds"] <= 60  # all that is left goes to the last part
    assert check.check(parts[1:], None, 0)[0]["note"] == "no time was left"


def test_a_part_that_fails_or_hangs_is_a_row(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = check.run_part(check.Part("unheard-of", 1), None, None, 60)
    assert row["status"] == "failed" and "KeyError" in row["note"] and row["part"] == "unheard-of"
    script = tmp_path / "script.py"
    monkeypatch.setattr(check, "__file__", str(script))
    script.write_text('import time\nprint(\'ROW {"name": "a", "status": "ok"}\', flush=True)\ntime.sleep(600)\n')
    for seconds in (3, 30, 300):  # on a busy machine Python alone may take the first three seconds to start
        rows = check.run_part(check.Part("slow", 1), None, None, seconds)
        assert f"not done in {seconds} s" in rows[-1]["note"]
        if len(rows) > 1:
            break
    assert [row.get("name") for row in rows[:-1]] == ["a"]
    script.write_text("import os\nos._exit(7)\n")
    (row,) = check.run_part(check.Part("dead", 1), None, None, 60)
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
        "msgspec",
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
        "from xbench_fast.runtime.benching import ceilings, gpu_state, oracle, parts, plan, record\n"
        "from xbench_fast.engines.backends.gpu import load_cupy\n"
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
    fake.cuda = SimpleNamespace(runtime=SimpleNamespace(runtimeGetVersion=lambda: 13020))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", fake)
    place = sys.modules[real.__module__]
    monkeypatch.setattr(place, "sweep", lambda maps, bits, size: real(maps.array, bits.array, size=size))
    assert gpu_parts.sweep_is_right(1, (33,))["status"] == "ok"
    monkeypatch.setattr(place, "sweep", lambda maps, bits, size: real(np.flip(maps.array, 1), bits.array, size=size))
    found = gpu_parts.sweep_is_right(1, (33,))
    assert found["status"] == "failed" and "33 x 33" in found["note"]


def test_the_file_is_written_after_every_part_and_nothing_ends_the_check(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, out = [], tmp_path / "new" / "gpu.json"
    monkeypatch.setattr(check, "gpu_count", lambda: 1)
    monkeypatch.setattr(check, "use_checkout", lambda: None)
    monkeypatch.setattr(check, "PARTS", tuple(check.Part(name, 10) for name in ("a", "b", "c", "d")))

    def run(part: Any, bundles: Any, scratch: Path, seconds: float) -> list[dict[str, Any]]:
        seen.append(json.loads(out.read_text())["rows"] if out.exists() else [])
        if part.name == "c":
            raise OSError("no more processes")
        assert scratch.is_dir()
        return [{"part": part.name, "name": part.name, "status": "ok"}]

    monkeypatch.setattr(check, "run_part", run)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(out)])
    assert check.main() == 1
    assert [len(rows) for rows in seen] == [0, 1, 2]
    rows = json.loads(out.read_text())["rows"]
    assert [row["name"] for row in rows] == ["a", "b", "gpu_check"] and "no more processes" in rows[-1]["note"]
    assert "1 of 3 rows failed" in capsys.readouterr().out
    # A place that cannot be written costs the file, not the rows.
    monkeypatch.setattr(check, "PARTS", (check.Part("a", 10),))
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(out / "below.json")])
    assert check.main() == 0
    said = capsys.readouterr()
    assert "a | a | ok" in said.out and "cannot be written" in said.err


def test_what_is_not_installed_is_not_run(check: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    import gpu_parts

    assert gpu_parts.missing("no_such_package.inside", "json") == "not installed: no_such_package.inside"

    def lacking(*_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec")

    monkeypatch.setattr(check, "rows_of", lacking)
    monkeypatch.setattr(check, "use_checkout", lambda: None)
    assert check.child("torch", None, None, 1) == 0
    assert json.loads(capsys.readouterr().out.removeprefix("ROW ")) == {
        "name": "torch",
        "status": "not run",
        "note": "not installed: msgspec",
    }


def test_engines_export_once_and_only_where_they_run(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu_parts
    from xbench_fast.engines import select
    from xbench_fast.engines.select import BackendStatus

    exports, given = [], []
    monkeypatch.setattr(
        select,
        "backend_status",
        lambda: [BackendStatus("onnxruntime-cuda", False, "there is no driver"), BackendStatus("tensorrt", True, "")],
    )

    def ran(command: Any, arguments: list[str]) -> tuple[int, str]:
        if arguments[0] == "bench":
            given.append(arguments[arguments.index("--bundles") + 1])
            return 2, "Error: it went wrong"
        exports.append(arguments)
        folder = Path(arguments[-1]) / "kad-224"
        folder.mkdir(parents=True)
        (folder / "bundle.json").touch()
        return 0, ""

    monkeypatch.setattr(gpu_parts, "_leaves", ran)
    (row,) = gpu_parts.engine("onnxruntime-cuda", None, tmp_path, 1)
    assert (row["status"], row["note"]) == ("not run", "there is no driver") and not exports
    for _ in range(2):
        (row,) = gpu_parts.engine("tensorrt", None, tmp_path, 1)
        assert row["status"] == "failed" and "status 2 and without figures: Error: it went wrong" in row["note"]
    assert len(exports) == 1 and given == [str(tmp_path / "bundles")] * 2
    list(gpu_parts.engine("tensorrt", tmp_path / "mine", tmp_path, 1))
    assert given[-1] == str(tmp_path / "mine") and len(exports) == 1


def test_the_ceilings_of_a_gpu_take_little_of_it() -> None:
    """Counted on arrays of the host: two copies, then three matrices, all given back."""
    import numpy as np
    from xbench_fast.runtime.benching import ceilings

    class Array(np.ndarray):
        pass

    held: list[weakref.ref[Any]] = []
    most, freed = [0], [0]

    def kept(array: Any) -> Any:
        made = array.view(Array)
        held.append(weakref.ref(made))
        most[0] = max(most[0], sum(one.nbytes for ref in held if (one := ref()) is not None))
        return made

    def free() -> None:
        freed[0] = sum(ref() is not None for ref in held)

    error = type("Error", (Exception,), {})
    stream = SimpleNamespace(synchronize=lambda: None)
    fake: Any = ModuleType("cupy")
    fake.empty = lambda shape, dtype: kept(np.empty(shape, dtype))
    fake.asarray = lambda values: kept(np.array(values))
    fake.copyto, fake.matmul = np.copyto, np.matmul
    fake.get_default_memory_pool = lambda: SimpleNamespace(free_all_blocks=free)
    fake.cuda = SimpleNamespace(
        Device=lambda number: contextlib.nullcontext(),
        get_current_stream=lambda: stream,
        runtime=SimpleNamespace(CUDARuntimeError=error, runtimeGetVersion=lambda: 13020),
        memory=SimpleNamespace(OutOfMemoryError=error),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", fake)
        found = ceilings.gpu_ceilings(0, ceilings.CeilingSizes(100_000, 90))
    assert most[0] <= 200_000 and freed[0] == 0
    assert found.bandwidth > 0 and set(found.products) == {"fp32", "fp16", "bf16"}
    assert 2 * ceilings.GPU_SIZES.copy <= 2 << 30 and 3 * 4 * ceilings.GPU_SIZES.side**2 <= 2 << 30


def test_the_calls_for_a_lent_machine_can_be_made(check: Any, root: Path) -> None:
    """Each fits a call, is valid shell, and names parts that exist."""
    text = (root / "benchmarks/README.md").read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text.partition("## A machine that is lent")[2], re.S)
    assert len(blocks) == 4
    for block in blocks:
        assert len(block) <= 2000
        assert subprocess.run(["bash", "-n"], input=block, text=True, check=False).returncode == 0, block
        assert set(re.findall(r"--only (\S+)", block)) <= {part.name for part in check.PARTS}
