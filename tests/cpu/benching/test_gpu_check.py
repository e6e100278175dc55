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
from xbench_fast.engines.errors import MissingExtraError


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
        rows = list(check.run_part(check.Part("slow", 1), None, seconds))
        assert f"not done in {seconds} s" in rows[-1]["note"]
        if len(rows) > 1:
            break
    assert [row.get("name") for row in rows[:-1]] == ["a"]
    script.write_text("import os\nos._exit(7)\n")
    (row,) = check.run_part(check.Part("dead", 1), None, 60)
    assert "ended with status 7" in row["note"]


def test_a_row_is_there_before_its_part_ends(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part goes on only once its first row has been seen; then it dies, and the row stays."""
    script, seen = tmp_path / "script.py", tmp_path / "seen"
    monkeypatch.setattr(check, "__file__", str(script))
    script.write_text(
        'import os, pathlib, time\nprint(\'ROW {"name": "a", "status": "ok"}\', flush=True)\n'
        f"while not pathlib.Path({str(seen)!r}).exists(): time.sleep(0.05)\nos._exit(9)\n"
    )
    monkeypatch.setattr(check, "gpu_count", lambda: 1)
    kept: list[list[str]] = []

    def keep(rows: list[dict[str, Any]]) -> None:
        kept.append([row["name"] for row in rows])
        seen.touch()

    rows = check.check((check.Part("p", 1),), None, 60, keep)
    assert kept[0] == ["a"] and "ended with status 9" in rows[-1]["note"]


def test_the_table_has_a_line_per_row(check: Any) -> None:
    rows = [
        {"part": "kernel", "name": "sweep", "status": "ok", "value": 2.5e7, "unit": "pairs/s", "fraction": 0.0458},
        {"part": "kernel", "name": "copy", "status": "failed", "value": 4.3, "unit": "TB/s", "note": "spread"},
        {"part": "dali", "name": "dali", "status": "not run", "note": "no NVIDIA GPU"},
    ]
    import gpu_parts

    assert gpu_parts.table(rows).splitlines() == [
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
        "from xbench_fast.runtime.benching import ceilings, gpu_state, oracle, parts, plan, benchmark_record\n"
        "from xbench_fast.engines.backends.gpu import load_cupy\n"
        "from xbench_fast.metrics_gpu.sweep import gpu as sweep_cupy\n"
        "assert '__syncthreads' in sweep_cupy.source() and parts.gpu_sweep\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_bare_checkout_is_the_whole_package(root: Path) -> None:
    """Where nothing is installed: the public interface and the commands, from the folders of this repository."""
    code = (
        f"import sys\nsys.path.insert(0, {str(root / 'benchmarks')!r})\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if '__editable__' not in getattr(f, '__module__', str(f))]\n"
        "import gpu_check\ngpu_check.use_checkout()\nfirst = sys.modules['xbench_fast']\ngpu_check.use_checkout()\n"
        "import xbench_fast\nassert xbench_fast is first\n"
        "from xbench_fast import PairedDifference\n"
        "assert all(getattr(xbench_fast, name) for name in xbench_fast.__all__)\n"
        "import xbench_fast.export.cli, xbench_fast.runtime.cli\n"
        "print(xbench_fast.__file__, xbench_fast.export.cli.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(root / "api/__init__.py"), str(root / "export/cli/__init__.py")]
    shown = subprocess.run(
        [sys.executable, str(root / "benchmarks/from_checkout.py"), "fast", "bench", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
    )
    assert shown.returncode == 0 and shown.stdout.startswith("Usage: "), shown.stderr


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


def test_the_sanitizer_sees_every_kernel_and_every_array(check: Any, sweep_library: Any) -> None:
    """Each array in an allocation of its own, bools and bytes, rows that end within a word, means of maps."""
    import cupy_on_cpu
    import gpu_parts

    fake = cupy_on_cpu.fake_cupy(sweep_library)
    with cupy_on_cpu.installed(fake):
        rows = list(gpu_parts.small_sweep(1))
    assert [row["status"] for row in rows] == ["ok", "ok"], rows
    assert fake.allocators == [None]
    assert {name for name, _, _ in fake.launches} == {"sweep", "pack_rows", "mean_maps"}
    assert fake.cuda.runtime.rows == 14 * 33, "the rows of bytes that end within a word were padded"


def test_the_file_is_written_after_every_part_and_nothing_ends_the_check(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen, out = [], tmp_path / "new" / "gpu.json"
    monkeypatch.setattr(check, "gpu_count", lambda: 1)
    monkeypatch.setattr(check, "use_checkout", lambda: None)
    monkeypatch.setattr(check, "PARTS", tuple(check.Part(name, 10) for name in ("a", "b", "c", "d")))

    def run(part: Any, bundles: Path, seconds: float) -> list[dict[str, Any]]:
        seen.append(json.loads(out.read_text())["rows"] if out.exists() else [])
        if part.name == "c":
            raise OSError("no more processes")
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
    assert check.child("torch", None, 1) == 0
    assert json.loads(capsys.readouterr().out.removeprefix("ROW ")) == {
        "name": "torch",
        "status": "not run",
        "note": "not installed: msgspec",
    }
    monkeypatch.setattr(gpu_parts, "_distributed", lambda package: package not in ("msgspec", "pydicom", "imagecodecs"))
    note = gpu_parts.not_installed("torch", "msgspec")["note"]
    assert note == "not installed: msgspec; of what the project needs also imagecodecs, pydicom"
    assert gpu_parts.not_installed("torch", "xbench_fast.gone")["status"] == "failed"

    def extra(*_: Any) -> Any:
        raise MissingExtraError("timm is not installed; install xbench-fast[export].")

    monkeypatch.setattr(check, "rows_of", extra)
    assert check.child("torch", None, 1) == 0
    row = json.loads(capsys.readouterr().out.removeprefix("ROW "))
    assert (row["status"], row["note"]) == ("not run", "timm is not installed; install xbench-fast[export].")


def test_each_reason_why_tests_did_not_run_is_a_row(root: Path, tmp_path: Path) -> None:
    """Beside others that passed, too; and a folder that lacks a package says how much is in it."""
    for name in ("a", "b", "c"):
        (tmp_path / "tests/gpu" / name).mkdir(parents=True)
    (tmp_path / "tests/gpu/a/test_a.py").write_text(
        "import pytest\npytestmark = pytest.mark.gpu\ndef test_passes(): pass\n"
        "def test_skips(): pytest.skip('no engine runs')\n"
        "@pytest.mark.parametrize('n', range(3))\ndef test_lacks(n): pytest.importorskip('no_such_package')\n"
    )
    (tmp_path / "tests/gpu/b/test_b.py").write_text(
        "import no_such_package\ndef test_one(): pass\ndef test_two(): pass\n"
    )
    (tmp_path / "tests/gpu/c/test_c.py").write_text(
        "import pytest\npytestmark = pytest.mark.gpu\ndef test_fails(): assert 1 == 2\n"
    )
    (tmp_path / "pyproject.toml").write_text("[project]\ndependencies = []\n[tool.pytest.ini_options]\nmarkers=['gpu']")
    code = (
        f"import json, pathlib, sys\nsys.path.insert(0, {str(root / 'benchmarks')!r})\nimport gpu_parts\n"
        f"gpu_parts.ROOT = pathlib.Path({str(tmp_path)!r})\n"
        "for row in gpu_parts.marked_tests(60): print('ROW', json.dumps(row))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    assert [(row["name"], row["status"], row["note"].partition("test_c.py")[0]) for row in rows] == [
        ("tests marked gpu, a", "ok", "1 passed, 0 failed"),
        ("tests marked gpu, a: 1 tests", "not run", "no engine runs"),
        ("tests marked gpu, a: 3 tests", "not run", "not installed: no_such_package"),
        ("tests marked gpu, b: all 2 functions", "not run", "not installed: no_such_package"),
        ("tests marked gpu, c", "failed", "0 passed, 1 failed tests/gpu/c/"),
    ], done.stdout + done.stderr


def usable(*names: str) -> Any:
    """`backend_status` where these engines run, and others lack a driver."""
    from xbench_fast.engines.select import PREFERENCE, BackendStatus

    return lambda: [BackendStatus(n, n in names, "" if n in names else "there is no driver") for n in PREFERENCE]


def test_a_bundle_is_exported_only_for_an_engine_that_runs(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu_engines
    from xbench_fast.engines import select
    from xbench_fast.export import cli

    exports: list[list[str]] = []
    monkeypatch.setattr(cli, "main", lambda arguments: exports.append(arguments) or 0)
    monkeypatch.setattr(select, "backend_status", usable("onnxruntime-cpu"))
    (row,) = gpu_engines.export(tmp_path)
    assert (row["status"], row["note"]) == ("not run", "no engine for a GPU runs here") and not exports
    (row,) = gpu_engines.engine("tensorrt", tmp_path, 1)
    assert (row["status"], row["note"]) == ("not run", "there is no driver")
    monkeypatch.setattr(select, "backend_status", usable("tensorrt"))
    (row,) = gpu_engines.export(tmp_path)
    assert row["status"] == "ok" and exports[0][-2:] == ["--out", str(tmp_path)]
    (row,) = gpu_engines.engine("tensorrt", tmp_path, 1)
    assert row["status"] == "not run" and "there is no bundle" in row["note"]

    def failing(arguments: list[str]) -> int:
        print("xbench-export: the disk is full", file=sys.stderr)
        return 1

    monkeypatch.setattr(cli, "main", failing)
    (row,) = gpu_engines.export(tmp_path)
    assert row["status"] == "failed" and "status 1: xbench-export: the disk is full" in row["note"]


def test_which_parts_are_asked_for(check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def names(only: list[str] | None, bundles: Path | None) -> list[str]:
        return [part.name for part in check.PARTS if check.wanted(part, only, bundles)]

    assert names(["kernel", "engine-tensorrt"], None) == ["kernel", "export", "engine-tensorrt"]
    assert names(["engine-tensorrt"], tmp_path) == ["engine-tensorrt"] and names(["kernel"], None) == ["kernel"]
    export, engine = (check.Part(name, 1, modules) for name, modules in (("export", ()), ("engine-x", ("no_such",))))
    assert check._reason(export, (export, engine), True) == "bundles are given"
    assert check._reason(export, (export, engine), False) == "no engine is installed that would run it"
    assert check._reason(export, (export, check.Part("engine-y", 1)), False) is None


def test_an_archive_of_bundles_is_unpacked_and_a_bad_one_costs_only_its_engines(
    check: Any, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tile_bundles.py packs it: small, and it loads as any other."""
    pytest.importorskip("onnx")
    import tile_bundles
    from synthetic import make_bundle, save_graph
    from xbench_fast.engines.bundle import Bundle

    monkeypatch.setattr(tile_bundles, "KEPT", 3)
    made = make_bundle(tmp_path / "blocks-32", graph=save_graph(tmp_path / "graph.onnx"))
    tile_bundles.pack(tmp_path / "b.tar.xz", [made.path])
    monkeypatch.setattr(check, "gpu_count", lambda: 1)
    loaded: list[Bundle | None] = []

    def run(part: Any, bundles: Path, seconds: float) -> Any:
        loaded.append(Bundle.load(bundles / "blocks-32") if (bundles / "blocks-32").exists() else None)
        yield {"part": part.name, "name": part.name, "status": "ok"}

    monkeypatch.setattr(check, "run_part", run)
    parts = (check.Part("export", 1), check.Part("engine-x", 1))
    rows = check.check(parts, tmp_path / "b.tar.xz", 60)
    assert [row["status"] for row in rows] == ["not run", "ok"] and rows[0]["note"] == "bundles are given"
    assert loaded[0] is not None and loaded[0].manifest.grid == made.manifest.grid
    (tmp_path / "b.tar.xz").write_bytes(b"no archive")
    rows = check.check((check.Part("kernel", 1), *parts), tmp_path / "b.tar.xz", 60)
    assert [(row["name"], row["status"]) for row in rows] == [
        ("b.tar.xz", "failed"), ("kernel", "ok"), ("export", "not run"), ("engine-x", "ok"),
    ]  # fmt: skip
    assert loaded[1:] == [None, None]


def test_an_engine_gives_each_row_when_it_is_measured(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command's own benchmark, on the CPU; the images are drawn after the first rows are out."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    import gpu_engines
    from synthetic import make_bundle, save_graph
    from xbench_fast.runtime.benching import benchmark as bench
    from xbench_fast.runtime.benching.ceilings import CeilingSizes, cpu_ceilings

    make_bundle(tmp_path / "bundles/blocks-32", graph=save_graph(tmp_path / "graph.onnx"))
    drawn: list[int] = []
    real = bench.film_files
    monkeypatch.setattr(bench, "cpu_ceilings", lambda sizes: cpu_ceilings(CeilingSizes(1 << 12, 16)))
    monkeypatch.setattr(bench, "film_files", lambda *given: drawn.append(given[1]) or real(*given))
    monkeypatch.setattr(gpu_engines, "BATCHES", (2, 4))
    monkeypatch.setattr(gpu_engines, "IMAGES", 8)
    names = []
    for row in gpu_engines.engine("onnxruntime-cpu", tmp_path / "bundles", 6):
        names.append(row["name"].partition(",")[0])
        assert ("blocks-32 prepared" in names) == bool(drawn)
        assert row["status"] == "not run" or (row["value"] > 0 and row["unit"] == "images/s")
    assert names == ["GPU limits", *["blocks-32 offline"] * 2, "blocks-32 single-stream", "blocks-32 prepared"]


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
