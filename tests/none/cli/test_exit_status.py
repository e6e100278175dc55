"""The exit statuses of docs/command-line.md §1."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from synthetic import make_dataset
from xbench_fast.export.cli import main as export
from xbench_fast.export.cli.export_command import command
from xbench_fast.runtime.cli import main as runtime
from xbench_fast.runtime.cli.app import app

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("main", "line", "status"),
    [
        (runtime, "models", 0),
        (runtime, "datasets check coco --data coco=data", 0),
        (runtime, "report nothing", 1),
        (runtime, "evla", 2),
        (export, "--list", 0),
        (export, "--model nothing --out here", 1),
        (export, "rwap", 2),
    ],
)
def test_each_status_is_as_documented(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[list[str]], int | None],
    line: str,
    status: int,
) -> None:
    make_dataset(tmp_path / "data", 4)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        sys.exit(main(line.split()))  # as the installed command does
    assert ended.value.code == status and "Traceback" not in capsys.readouterr().err


def test_a_process_ends_with_the_status(tmp_path: Path) -> None:
    started = [sys.executable, "-m", "xbench_fast.runtime.cli", "report", "nothing"]
    done = subprocess.run(started, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("line", ["xbench_fast.runtime.cli datasets --json -", "xbench_fast.export.cli --list"])
def test_a_closed_pipe_is_141(tmp_path: Path, line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        started = [sys.executable, "-m", *line.split()]
        done = subprocess.run(started, cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_help_and_the_page_name_the_same() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for group in (app, command):
        told = CliRunner().invoke(group, ["--help"]).output
        for status in ("0", "1", "2", "130", "141"):
            assert f"{status} " in told.partition("Exit status:")[2] and f"\n| {status} |" in page
