"""The shape of the house: which room may import which, and what must work without heavy packages."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import xbench_fast

ARROWS = {
    "api": {"api", "engines", "metrics_gpu", "runtime"},
    "demo": {"demo", "engines"},
    "export": {"export", "engines"},
    "engines": {"engines"},
    "metrics_gpu": {"metrics_gpu"},
    "runtime": {"runtime", "demo", "engines", "metrics_gpu"},
}
COMPOSED = ("xbench_fast", "export", "cli")
"""Where an export is joined with the rest of the project: by the names of the public interface, and no other."""
HEAVY = ["torch", "torchvision", "transformers", "open_clip", "timm", "onnx", "onnxscript", "onnxruntime", "cupy"]
HEAVY += ["tensorrt", "tensorrt_rtx", "nvidia", "ray", "safetensors", "tokenizers"]


def package(root: Path, folder: Path) -> tuple[str, ...]:
    """The package a folder is installed as; `api/` is `xbench_fast` itself."""
    parts = folder.relative_to(root).parts
    return ("xbench_fast", *(parts[1:] if parts[0] == "api" else parts))


SCRIPTS = Path("demo", "training")
"""Not a package on purpose: it needs torch, runs in a checkout and is not installed."""


def modules(root: Path, room: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((root / room).rglob("*.py")):
        if path.stem != "__main__" and path.parent != root / SCRIPTS:
            yield ".".join((*package(root, path.parent), *([] if path.stem == "__init__" else [path.stem]))), path


class Parsed(NamedTuple):
    """What the tests of the house ask of a file: its imports from modules, its functions, and its own classes."""

    imports: list[ast.ImportFrom]
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef]
    classes: list[str]


@cache
def parsed(path: Path) -> Parsed:
    """A file, parsed once for all tests of a process."""
    tree, found = ast.parse(path.read_text(encoding="utf-8")), Parsed([], [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found.imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append(node)
    found.classes.extend(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    for function in found.functions:
        function.body, function.decorator_list = [], []  # only names and parameters are asked for
    return found


@pytest.mark.parametrize("room", ARROWS)
def test_imports_follow_the_arrows(root: Path, room: str) -> None:
    checked = 0
    for _, path in modules(root, room):
        here = package(root, path.parent)
        for node in parsed(path).imports:
            if node.level:
                target = (*here[: len(here) - node.level + 1], *(node.module or "").split("."))
                assert len(here) >= node.level, f"{path} imports from above the package"
            else:
                target = tuple((node.module or "").split("."))
                assert target[0] != "xbench_fast", f"{path}:{node.lineno}: write imports within the project relatively"
                continue
            checked += 1
            reached = [target[1]] if target[1:2] != ("",) else [alias.name for alias in node.names]
            for other in reached:
                if room == "api" and (root / "api" / f"{other}.py").is_file():
                    continue
                if here == COMPOSED and other in xbench_fast.__all__:
                    continue
                assert other in ARROWS[room], f"{path}:{node.lineno}: {room} must not import {other}"
    assert checked or room == "metrics_gpu"


def test_an_export_in_float32_loads_nothing_of_the_other_rooms(root: Path) -> None:
    """Only the file that joins both takes the public interface, and only for an export in a lower precision."""
    joins = [path for _, path in modules(root, "export") if re.search(r"^from \.\.\. import", path.read_text(), re.M)]
    assert joins == [root / "export" / "cli" / "radiographs.py"]
    code = (
        "import sys\nfrom xbench_fast.export.cli.export_command import main\n"
        "main(['--model', 'kad', '--checkpoint', 'none.pt', '--out', 'out'])\n"
        "print(*(name for name in sys.modules if name.startswith(('xbench_fast.runtime', 'xbench_fast.metrics_gpu'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "none.pt" in done.stderr and not done.stdout.split(), done.stdout


LIGHT = ["demo", "engines", "metrics_gpu", "runtime", "api"]
OF_TORCH = "xbench_fast.engines.backends.torch_graph."
"""The modules of the engine torch that import it; others import them inside functions."""


@pytest.fixture(scope="module")
def failed_imports(root: Path) -> dict[str, str]:
    """Room -> what its modules raise when the heavy packages are hidden; one fresh interpreter for all rooms."""
    names = {room: [n for n, _ in modules(root, room) if not n.startswith(OF_TORCH)] for room in LIGHT}
    code = (
        "import sys, importlib, json, traceback\n"
        f"for name in {HEAVY!r}: sys.modules[name] = None\n"
        "failed = {}\n"
        f"for room, names in {names!r}.items():\n"
        "    for name in names:\n"
        "        try: importlib.import_module(name)\n"
        "        except BaseException: failed[room] = failed.get(room, '') + traceback.format_exc()\n"
        "print(json.dumps(failed))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("room", LIGHT)
def test_everything_but_export_imports_without_heavy_packages(failed_imports: dict[str, str], room: str) -> None:
    assert not failed_imports.get(room), failed_imports[room]


@pytest.mark.parametrize("command", ["xbench_fast.runtime.cli", "xbench_fast.export.cli"])
def test_help_needs_no_heavy_package(command: str) -> None:
    heavy = [*HEAVY, "numba", "sklearn", "pandas", "pydicom"]
    code = (
        "import sys\n"
        f"for name in {heavy!r}: sys.modules[name] = None\n"
        f"sys.argv = ['command', '--help']\nfrom {command} import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "Usage" in done.stdout, done.stderr


def test_no_file_names_a_machine(root: Path) -> None:
    """Paths of somebody's machine and package hosts have no place in a repository."""
    words = re.compile(r"(?<![\w./-])/(work|root|home|Users)/|pypi\.|file:/{3}")
    listed = subprocess.run(["git", "-C", str(root), "ls-files"], capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines()
    if not names:
        pytest.skip("not a git checkout")
    for name in names:
        path = root / name
        if path.suffix in {".png", ".pt", ".npz", ".onnx"} or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        found = words.search(text)
        assert found is None, f"{name} contains {found}"


def test_every_folder_of_modules_is_a_package_and_typed(root: Path) -> None:
    """setup.py finds packages by their __init__.py: a folder without one works in a checkout and is absent from what
    users install."""
    folders = {path.parent for room in ARROWS for path in (root / room).rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == [root / SCRIPTS]
    assert all((root / room / "py.typed").is_file() for room in ARROWS)


def test_everything_printed_passes_the_function_that_shows_hidden_signs(root: Path) -> None:
    """`engines.commands.echo` and the console of `runtime.reporting.tables` alone write to a terminal."""
    raw = re.compile(r"click\.(?:s?echo|style)\b|\bConsole\(|(?<![\w.])print\((?!visible_text\()|std(?:out|err)\.write")
    allowed = {"engines/commands.py": 1, "runtime/serving/ray_serve.py": 1}
    found = {
        path.relative_to(root).as_posix(): count
        for room in ARROWS
        for _, path in modules(root, room)
        if (count := len(raw.findall(re.sub(r'""".*?"""|`[^`]*`', "", path.read_text(encoding="utf-8"), flags=re.S))))
    }
    assert found == allowed
