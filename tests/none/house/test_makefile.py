"""The Makefile and the install lines of docs/first-steps.md refuse an unsupported Python in one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDED = "Python 3.11, 3.12 or 3.13 is needed"


def alone() -> dict[str, str]:
    """The environment as from a shell: `make test` hands its own options and level on to the make below it, which then
    names folders."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("python", "sentence"),
    [("./old", f"{NEEDED}; ./old is none"), ("./nothere", f"{NEEDED}; ./nothere is none"), ("", f"{NEEDED}; none was")],
)
def test_make_refuses_another_python(tmp_path: Path, python: str, sentence: str) -> None:
    """`old` answers the question after its version as Python 3.10 does."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    old = tmp_path / "old"
    old.write_text("#!/usr/bin/env python3\nimport sys\nsys.version_info = (3, 10, 13)\nexec(sys.argv[2])\n")
    old.chmod(0o755)
    line = ["make", "demo", f"PYTHON={python}"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=alone())
    assert done.returncode == 2 and done.stdout.startswith(sentence), done
    assert len(done.stdout.splitlines()) == 1 and not (tmp_path / ".venv").exists()


def test_pip_is_new_before_it_installs_and_shows_its_progress() -> None:
    """The pip of Python 3.10 tells of a conflict of packages; a new one ends with "requires a different Python"."""
    makefile, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "docs/first-steps.md"))
    for text in (makefile, page):
        assert text.index("-m venv") < text.index("--upgrade-deps .venv") < text.index("pip install")
    assert "--quiet" not in makefile


STUB = """#!/bin/sh
case "$1$2" in
  -c*) exit 0 ;;
  -mvenv) mkdir -p .venv/bin; for name in python xbench-export xbench-fast; do cp old .venv/bin/$name; done ;;
esac
echo "$(basename "$0") runs: $*"
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_demo_says_at_once_what_takes_minutes(tmp_path: Path) -> None:
    """With stand-ins for Python and the commands: the announcement, the environment, pip, the export, the demo."""
    for name in ("Makefile", "pyproject.toml", "setup.py", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "old").write_text(STUB)
    (tmp_path / "old").chmod(0o755)
    done = subprocess.run(
        ["make", "demo", "PYTHON=./old"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=alone(),
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Installing into .venv: a few minutes and 6 to 8 GB") and "silently" in lines[1]
    runs = [line.partition(" runs: ")[::2] for line in lines if " runs: " in line]
    assert [name for name, _ in runs] == ["old", "python", "xbench-export", "xbench-fast"], done.stdout
    assert runs[1][1].startswith("-m pip install --constraint constraints.txt --editable .[cpu,export]")
    assert "--checkpoint demo/kad-demo.pt" in runs[2][1] and runs[3][1] == "demo --out demo"
    again = subprocess.run(
        ["make", "demo", "PYTHON=./old"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=alone(),
    )
    assert "Installing" not in again.stdout and "xbench-fast runs: demo --out demo" in again.stdout
