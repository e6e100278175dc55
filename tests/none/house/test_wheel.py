"""What a wheel holds: every file of the rooms that git tracks, the demo's data and their terms, and nothing else."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOMS = ("api", "demo", "engines", "export", "metrics_gpu", "runtime")
ONLY_IN_A_CHECKOUT = ("demo/kad-demo.pt", "demo/prompts.yaml", "demo/tokenizer/*", "demo/training/*")
"""What the demo's bundle was made from and with."""


@pytest.fixture(scope="module")
def tracked(root: Path) -> set[str]:
    listed = subprocess.run(["git", "-C", str(root), "ls-files", *ROOMS], capture_output=True, text=True, check=False)
    names = {name for name in listed.stdout.splitlines() if (root / name).is_file()}
    return names or pytest.skip("not a git checkout")


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as setuptools collects them for a wheel; pip and `build` ask it for the same."""
    pytest.importorskip("setuptools", minversion="77")
    out = tmp_path_factory.mktemp("built")
    line = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(out), "--no-compile"]
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_a_wheel_holds_what_git_tracks_of_the_rooms(built: Path, tracked: set[str]) -> None:
    def left_out(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in ONLY_IN_A_CHECKOUT)

    assert all(fnmatch.filter(tracked, pattern) for pattern in ONLY_IN_A_CHECKOUT)
    expected = {f"xbench_fast/{name.removeprefix('api/')}" for name in tracked if not left_out(name)}
    found = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    assert found == expected, sorted(found ^ expected)
    assert not [name for name in found if fnmatch.fnmatch(name, "*test_*.py") or name.endswith((".pt", ".pyc"))]


def test_the_data_of_the_demo_are_copied_byte_by_byte(built: Path, root: Path) -> None:
    copied = [path for path in (built / "xbench_fast" / "demo").rglob("*") if path.suffix in {".png", ".onnx", ".npz"}]
    assert len(copied) == 40 + 2 + 2
    for path in copied:
        assert path.read_bytes() == (root / path.relative_to(built / "xbench_fast")).read_bytes(), path


def test_the_terms_of_the_radiographs_are_among_the_licences(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license-files"] == ["LICENSE", "demo/DATA_CARD.md"]
    card = (root / "demo" / "DATA_CARD.md").read_text(encoding="utf-8")
    assert "NIH Clinical Center" in card and "https://nihcc.app.box.com/v/ChestXray-NIHCC" in card
    assert "The source states no licence" in card
    assert all(title in card for title in ("ChestX-ray8: Hospital-scale", "ChestX-Det10: Chest X-ray Dataset"))


def description(root: Path, base: str) -> str:
    """The text for the package index, as setup.py hands it to setuptools."""
    pytest.importorskip("setuptools", minversion="77")
    line = [sys.executable, "setup.py", "--long-description"]
    done = subprocess.run(
        line, cwd=root, env={**os.environ, "README_BASE": base}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def targets(text: str) -> list[str]:
    """Where the links and pictures of a Markdown text lead, as a reader of CommonMark finds them."""
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    inner = [child for token in parser.parse(text) for child in (token, *(token.children or ()))]
    attributes = [token.attrs.get(name) for token in inner for name in ("href", "src")]
    raw = [token.content for token in inner if token.type.startswith("html")]
    return [*map(str, filter(None, attributes)), *re.findall(r'(?:src|href)="([^"]*)"', "".join(raw))]


def test_the_description_on_a_package_index_has_no_relative_link(root: Path) -> None:
    """A package index shows README without the repository's files."""
    readme = (root / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"^```.*?^```$", readme, flags=re.M | re.S)
    relative = [target for target in targets(readme) if "://" not in target]
    assert len(relative) > 15 and "docs/pictures/page.png" in relative and "docs/pictures/overlay.png" in relative

    plain = description(root, "")
    assert "://" not in "".join(set(targets(plain)) - set(targets(readme))) and not set(targets(plain)) & set(relative)
    assert all(f"`{target}`" in plain for target in relative if not target.endswith(".png")) and ".png" not in "".join(
        re.sub(r"^```.*?^```$", "", plain, flags=re.M | re.S)
    )

    base = "https://forge.example/owner/repository/blob/v1"
    linked = description(root, f"{base}/")
    expected = [f"{base}/{target}" + "?raw=true" * target.endswith(".png") for target in relative]
    assert sorted(targets(linked)) == sorted([*expected, *(t for t in targets(readme) if "://" in t)])
    assert all(block in text for block in code for text in (plain, linked)) and len(code) == 2
