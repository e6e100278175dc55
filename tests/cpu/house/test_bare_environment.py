"""A fresh virtual environment with the core dependencies only: no torch, no ONNX Runtime, no GPU packages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic import make_bundle, make_dataset

CHECK = """
import importlib, importlib.util, pkgutil, sys
for name in ("torch", "onnx", "onnxruntime", "cupy", "tensorrt", "transformers", "nvidia"):
    assert importlib.util.find_spec(name) is None, f"{name} is installed"
count = 0
for room in ("demo", "engines", "metrics_gpu", "runtime"):
    package = importlib.import_module(f"xbench_fast.{room}")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if ".torch_graph." not in module.name and not module.name.endswith(("__main__", "_pb2")):  # the engine torch
            importlib.import_module(module.name)
            count += 1
print(count, "modules")
"""


PUBLIC = """
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
import xbench_fast as xb
assert not {"numpy", "pandas", "pyarrow"} & set(sys.modules)
assert Path(xb.__file__).is_relative_to(sys.prefix) and (Path(xb.__file__).parent / "py.typed").is_file()
for name in xb.__all__:
    getattr(xb, name)
run = xb.evaluate("baseline:ones", "coco", sys.argv[1], out="run", progress=False)
print(xb.__version__, len(run.rows()), run.table("grounding", replicates=10).value.notna().sum())
"""


@pytest.fixture(scope="module")
def bare(root: Path, copy_product: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of the bare environment; the project is installed from a copy, as a user would get it."""
    folder = tmp_path_factory.mktemp("bare")
    source = folder / "source"
    copy_product(source)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    binaries = folder / "venv" / "bin"
    constraint = ["--constraint", str(root / "constraints.txt")]
    done = subprocess.run(
        [str(binaries / "python"), "-m", "pip", "install", "--quiet", *constraint, str(source)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0 and any(w in done.stderr for w in ("NewConnectionError", "ConnectTimeout", "ProxyError")):
        pytest.skip("the package index cannot be reached, so no bare environment can be made")
    assert done.returncode == 0, done.stderr
    return binaries


def run(*command: str) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "400"}  # so that no sentence is broken by the edge of a table
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=wide)


def test_every_room_but_export_imports(bare: Path) -> None:
    """Without compiling what is imported, which `doctor` and the evaluation below do where they need it."""
    done = run("env", "NUMBA_DISABLE_JIT=1", str(bare / "python"), "-c", CHECK)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 20


def test_the_public_interface_is_installed_as_the_package_itself(bare: Path, tmp_path: Path) -> None:
    data = make_dataset(tmp_path / "data", 6)
    done = run(str(bare / "python"), "-c", f"import os; os.chdir({str(tmp_path)!r})\n{PUBLIC}", str(data))
    assert done.returncode == 0 and done.stdout.split()[1] == "12", done.stderr


@pytest.mark.parametrize("command", ["xbench-fast", "xbench-export"])
def test_help_works(bare: Path, command: str) -> None:
    done = run(str(bare / command), "--help")
    assert done.returncode == 0 and "Usage" in done.stdout, done.stderr


def test_doctor_names_what_is_missing(bare: Path) -> None:
    done = run(str(bare / "xbench-fast"), "doctor")
    assert "onnxruntime is not installed" in " ".join(done.stdout.split()), done.stdout + done.stderr


def test_what_needs_an_extra_says_which(bare: Path, tmp_path: Path) -> None:
    done = run(str(bare / "xbench-export"), "--model", "kad", "--weights", "stand-in", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert "xbench-fast[export]" in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "out").exists()


def test_every_command_names_the_extra_that_it_needs(bare: Path, tmp_path: Path) -> None:
    bundle, data = tmp_path / "bundles" / "block", make_dataset(tmp_path / "data", 4)
    make_bundle(bundle)
    found = ["--bundles", str(bundle.parent), "--data", f"coco={data}", "--out", str(tmp_path / "run")]
    needs = {
        ("xbench-fast", "demo", "--out", str(tmp_path / "demo")): "cpu",
        ("xbench-fast", "eval", "--model", "block", *found): "cpu",
        ("xbench-fast", "eval", "--model", "block", *found, "--cluster", "local"): "scale",
        ("xbench-fast", "bench", "offline", "--bundles", str(bundle.parent)): "cpu",
        ("xbench-fast", "serve", "--bundles", str(bundle.parent)): "cpu",
        (
            "xbench-export",
            "triton",
            "--model",
            "all",
            "--bundles",
            str(bundle.parent),
            "--out",
            str(tmp_path / "t"),
        ): "export",
    }
    for command, extra in needs.items():
        done = run(str(bare / command[0]), *command[1:])
        said = " ".join(done.stderr.split())
        assert done.returncode == 1 and f"install xbench-fast[{extra}]" in said, (
            f"{command}\n{done.stdout}{done.stderr}"
        )
        assert "Traceback" not in said, said


def test_a_report_without_its_extra_is_tables_and_a_sentence(bare: Path, tmp_path: Path) -> None:
    data = make_dataset(tmp_path / "data", 6)
    out = tmp_path / "run"
    run(str(bare / "xbench-fast"), "eval", "--model", "baseline:ones", "--data", f"coco={data}", "--out", str(out))
    done = run(str(bare / "xbench-fast"), "report", str(out))
    assert done.returncode == 0 and "install xbench-fast[report]" in " ".join(done.stderr.split()), done.stderr
    assert (out / "report" / "tables.tex").is_file() and not (out / "report" / "index.html").exists()
