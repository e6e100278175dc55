"""docs/first-steps.md as a new user follows it: its install line, its commands and its Python, in an environment that
holds only what that line installs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from PIL import Image
from synthetic import make_rsna

MODEL = """
import numpy as np
def model(pixels, findings):
    shape = len(pixels), len(findings)
    return np.zeros(shape), np.ones((*shape, 7, 7))
"""

# The installer itself is in every environment, and here it also builds the project.
INSTALLER = ("pip", "setuptools")


def first_steps(root: Path) -> str:
    return (root / "docs" / "first-steps.md").read_text(encoding="utf-8")


def install_line(root: Path) -> str:
    """The requirement in the page's install line, as 'xbench-fast[cpu,export]'."""
    found = re.search(r"^ *pip install -c constraints\.txt '\.(\[[a-z,]+\])'", first_steps(root), re.M)
    assert found, "the page has no install line"
    return "xbench-fast" + found[1]


def commands(root: Path) -> list[list[str]]:
    """the page's commands under the install line, each as words."""
    after = first_steps(root).split("pip install -c constraints.txt", 1)[1]
    block = after.split("\n\n", 2)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.startswith("    xbench-")]


def installed_by(requirement: str) -> dict[str, Distribution]:
    """Every distribution that `requirement` brings, from the metadata of those installed here."""
    waiting, met, found = [Requirement(requirement)], set[tuple[str, str]](), dict[str, Distribution]()
    while waiting:
        wanted = waiting.pop()
        for extra in {"", *wanted.extras} - {extra for name, extra in met if name == wanted.name}:
            met.add((wanted.name, extra))
            found[wanted.name] = distribution(wanted.name)
            needed = map(Requirement, found[wanted.name].requires or ())
            waiting += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return found


def link(packages: dict[str, Distribution], folder: Path) -> None:
    """Links the files of `packages` into the site-packages `folder`; folders that several share are made anew."""
    for package in packages.values():
        for file in package.files or ():
            depth = 2 if file.parts[0] in ("nvidia", "google") else 1
            name = Path(*file.parts[:depth])
            target, source = folder / name, Path(str(package.locate_file(name)))
            if ".." not in name.parts and source.exists() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(source)


@pytest.fixture(scope="module")
def binaries(root: Path, copy_product: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that the page's line would make; the packages are linked, not fetched again."""
    folder = tmp_path_factory.mktemp("way")
    copy_product(folder / "source")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = installed_by(install_line(root))
    del packages["xbench-fast"]
    link(
        packages | {name: distribution(name) for name in INSTALLER}, folder / "venv" / "lib" / version / "site-packages"
    )
    line = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", str(folder / "source")]
    subprocess.run(line, check=True, capture_output=True)
    return python.parent


@pytest.fixture(scope="module")
def place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the page's commands name: a checkpoint, its tokenizer, two datasets."""
    folder = tmp_path_factory.mktemp("user")
    shutil.copy(root / "demo" / "kad-demo.pt", folder / "best_valid.pt")
    shutil.copytree(root / "demo" / "tokenizer", folder / "Med-KEBERT")
    official_size(root / "demo" / "chestxdet10", folder / "data" / "ChestX-Det10")
    make_rsna(folder / "data" / "rsna")
    words = (root / "demo" / "prompts.yaml").read_text(encoding="utf-8")
    (folder / "prompts.yaml").write_text(words + "rsna:\n  Pneumonia: [consolidation]\n", encoding="utf-8")
    return folder


def official_size(reduced: Path, folder: Path, count: int = 8) -> None:
    """Some of the demo's radiographs and boxes, enlarged to the size of the official ones."""
    (folder / "test_data").mkdir(parents=True)
    entries = json.loads((reduced / "test.json").read_text())[:count]
    for entry in entries:
        entry["boxes"] = [[2 * edge for edge in box] for box in entry["boxes"]]
        with Image.open(reduced / "test_data" / entry["file_name"]) as image:
            image.resize((1024, 1024)).save(folder / "test_data" / entry["file_name"])
    (folder / "test.json").write_text(json.dumps(entries))


def as_here(words: list[str], binaries: Path, place: Path) -> list[str]:
    """A command of the page on this machine: the files of `place`, and the demo's prompts, which its weights need."""
    words = [word.replace("/data/", f"{place}/data/") for word in words]
    if "--checkpoint" in words:
        words += ["--prompts", "prompts.yaml"]
    return [str(binaries / words[0]), *words[1:]]


def run(command: list[str], place: Path) -> str:
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "Traceback" not in done.stderr, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def followed(root: Path, binaries: Path, place: Path) -> list[str]:
    """What the page's commands printed, all but `serve`, which does not end."""
    return [run(as_here(words, binaries, place), place) for words in commands(root) if "serve" not in words]


def test_the_makefile_installs_what_the_page_says(root: Path) -> None:
    line = install_line(root).removeprefix("xbench-fast")
    assert f"--editable '.{line}'" in (root / "Makefile").read_text()


def test_the_commands_of_the_page_run(root: Path, followed: list[str], place: Path) -> None:
    assert [words[0] for words in commands(root)].count("xbench-fast") == 3 and len(followed) == 4
    assert "not installed" not in followed[-1]  # the report is whole
    for made in ("bundles/kad-demo/bundle.json", "run/run.json", "run/report/index.html", "run/report/tables.tex"):
        assert (place / made).is_file(), made
    assert list((place / "run" / "report").glob("**/*.svg"))


def test_the_page_of_serve_answers(root: Path, binaries: Path, place: Path, followed: list[str]) -> None:
    (words,) = [words for words in commands(root) if "serve" in words]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*as_here(words, binaries, place), "--port", str(port)]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert "<title>" in first_answer(f"http://127.0.0.1:{port}/", server)
        finally:
            server.terminate()
            said = server.communicate(timeout=60)[0]
    assert "Traceback" not in said, said


def first_answer(url: str, server: subprocess.Popen[str]) -> str:
    while server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(server.communicate()[0])


def test_the_python_of_the_page_runs(root: Path, binaries: Path, place: Path, followed: list[str]) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", first_steps(root), re.M | re.S)
    code = code.replace("/data/", f"{place}/data/").replace("kad-224", "kad-demo")
    film = next((place / "data" / "ChestX-Det10" / "test_data").iterdir())
    code = code.replace('"radiograph.dcm"', repr(str(film))).replace('out="run"', 'out="from-python"')
    run([str(binaries / "python"), "-c", f"{MODEL}\n{code}"], place)
    assert (place / "from-python" / "run.json").is_file()
