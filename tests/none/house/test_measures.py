""".ci/house.py: lines, arrows and shared names of a small made-up house."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

FILES = {
    "api/__init__.py": "from .runtime.cli import app\nfrom .frames import frame\n",
    "api/frames.py": "frame = 1\n",
    "engines/app.py": "import json\n\n",
    "runtime/cli/__init__.py": "",
    "runtime/cli/app.py": "def run():\n    from ..host import machine\n    from ...engines.app import json\n",
    "runtime/cli/options.py": "from .app import run\nfrom ..host.machine import cores, name\n",
    "runtime/host/machine.py": "cores = name = 1\n",
    "runtime/host/notes.txt": "no code\n",
    "tests/app.py": "from ..runtime import host\n",
}


@pytest.mark.parametrize("shown", ["", "arrows", "names"])
def test_a_house_is_measured(root: Path, tmp_path: Path, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {**FILES, "runtime/host/untracked.py": "one = 1\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for line in (["init", "-q"], ["add", *FILES]):
        subprocess.run(["git", *line], cwd=tmp_path, check=True)
    runpy.run_path(str(root / ".ci/house.py"))["main"](shown, tmp_path)
    more = {
        "": [],
        "arrows": ["api -> runtime/cli: 1", "runtime/cli -> engines: 1", "runtime/cli -> runtime/host: 3"],
        "names": ["app.py: engines/app.py runtime/cli/app.py"],
    }
    assert capsys.readouterr().out.splitlines() == [
        "api                        3 lines    2 files   1 arrows",
        "engines                    2 lines    1 files   0 arrows",
        "runtime/cli                5 lines    3 files   2 arrows",
        "runtime/host               1 lines    1 files   0 arrows",
        *more[shown],
        "11 product lines in 7 files",
        "2 rooms of runtime, 1 arrows between them, 3 arrows in all",
        "2 files share their name with another",
    ]
