"""The code of the tutorials and recipes runs as it stands after `make demo`, and prints what the pages show.

About 110 s of CPU time, a third of it for the steps of `make demo`.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest
from doc_blocks import blocks, pages, runs_as_it_stands
from doc_runner import AFTER_TRAINING, TOLERANCE, run_page, same
from goldens import command
from made_once import made_once

for package in ("torch", "onnx", "onnxscript", "onnxruntime", "tokenizers", "starlette", "jinja2"):
    pytest.importorskip(package)

ROOT = Path(__file__).parents[3]
PAGES = [page for page in pages(ROOT) if any(map(runs_as_it_stands, blocks(ROOT, page)))]


def steps(root: Path) -> Iterator[list[str]]:
    """The commands of the Makefile's target `demo`, as words."""
    (recipe,) = re.findall(r"^demo: .*\n((?:\t.*\n)+)", (root / "Makefile").read_text(), re.MULTILINE)
    for line in recipe.replace("\\\n", " ").splitlines():
        yield shlex.split(line.replace("$(BIN)/", ""))


@pytest.fixture(scope="module")
def demo(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with demo/ as `make demo` leaves it; the report has no page here, because no recipe opens it."""
    with made_once(tmp_path_factory, "after-make-demo") as folder:
        if not folder.is_dir():
            draft = tmp_path_factory.mktemp("demo")
            shutil.copytree(root / "demo", draft / "demo", ignore=shutil.ignore_patterns("out", "__pycache__"))
            with chdir(draft):
                for program, *words in steps(root):
                    if program == "python":
                        run_script(*words)
                    else:
                        command(program, *words, *(["--no-page"] if words[0] == "report" else []))
            draft.rename(folder)
    return folder


def run_script(path: str, *words: str) -> None:
    """A script of demo/, in a process of its own."""
    subprocess.run([sys.executable, path, *words], check=True, capture_output=True, timeout=300)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_and_shows_its_output(
    root: Path, demo: Path, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    if any("curl " in block.text for block in blocks(root, page)) and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    shutil.copytree(demo, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    tolerance = AFTER_TRAINING if page.endswith("/train.md") else TOLERANCE
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two processes of tests share two cores
    try:
        for block, printed, shown in run_page(root, page):
            assert shown is None or same(shown.text, printed, tolerance), f"{page}:{block.line} printed\n{printed}"
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("Mass 0.51\n", "Mass 0.55\n", True),
        ("Mass 0.51\n", "Mass 0.71\n", False),
        ("Mass 0.51\n", "Nodule 0.51\n", False),
        ("n 52\n", "n 53\n", False),
        ("a  -0.50\n", "a -0.45\n", True),
        ("...\nb 1\n...\n", "a\nb 1\nc\n", True),
        ("...\nb 1\n...\n", "a\nb 2\nc\n", False),
        ("b 1\n", "a\nb 1\n", False),
    ],
)
def test_the_comparison_of_outputs(shown: str, printed: str, equal: bool) -> None:
    assert same(shown, printed) is equal
