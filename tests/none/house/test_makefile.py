"""The Makefile and README's install lines refuse an unsupported Python in one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDED = "Python 3.11, 3.12 or 3.13 is needed"


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
    # As from a shell: `make test` hands its own options and level on to the make below it, which then names folders.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    line = ["make", "demo", f"PYTHON={python}"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False, env=alone)
    assert done.returncode == 2 and done.stdout.startswith(sentence), done
    assert len(done.stdout.splitlines()) == 1 and not (tmp_path / ".venv").exists()


def test_pip_is_new_before_it_installs_and_shows_its_progress() -> None:
    """The pip of Python 3.10 tells of a conflict of packages; a new one ends with "requires a different Python"."""
    makefile, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", "README.md"))
    for text in (makefile, readme):
        assert text.index("-m venv") < text.index("--upgrade-deps .venv") < text.index("pip install")
    assert "--quiet" not in makefile
