"""The exit statuses of docs/command-line.md §1."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from synthetic import make_bundle, make_dataset
from xbench_fast.export.cli import main as export
from xbench_fast.export.cli.export_command import command
from xbench_fast.runtime.cli import main as runtime
from xbench_fast.runtime.cli.app import app

ROOT = Path(__file__).parents[3]
ONES = "eval --model baseline:ones --data coco=data"


@pytest.mark.parametrize(
    ("main", "line", "status"),
    [
        (runtime, "models", 0),
        (runtime, "datasets check coco --data coco=data", 0),
        (runtime, "report nothing", 1),
        (runtime, "evla", 2),
        (export, "--list", 0),
        (export, "--model nothing --out here", 2),
        (runtime, f"{ONES} --out run", 0),
        (runtime, f"{ONES} --out run --engine nothing", 2),
        (runtime, f"{ONES} --out run --cluster nothing", 2),
        (runtime, f"{ONES} --out run --cluster 127.0.0.1:1", 2),
        (runtime, f"{ONES} --out run --bundles nothere", 2),
        (runtime, f"{ONES} --out run --config nothere.toml", 2),
        (runtime, f"{ONES} --out run --data-option coco.part=1", 2),
        (runtime, f"{ONES} --out run --data-option coco.nothing=1", 2),
        (runtime, f"{ONES} --out run --data-option coco.invalid=nothing", 2),
        (runtime, f"{ONES} --out run --data-option coco.annotations=nothing.json", 1),
        (runtime, "eval --model baseline:nothing --data coco=data", 2),
        (runtime, "eval --model nothing --data coco=data", 2),
        (runtime, "eval --model baseline:ones --dataset nothing --data coco=data", 2),
        (runtime, "eval --model baseline:ones --data nothing=data", 2),
        (runtime, "eval --model baseline:ones --data coco=data --protocol nothing", 2),
        (runtime, "trust nothing --data coco=data", 2),
        (runtime, "serve --bundles nothere", 2),
        (runtime, "models --bundles nothere", 2),
        (runtime, "models --bundles data", 0),
        (runtime, "bench --engine nothing", 2),
        (runtime, "bench --gpu 99", 2),
        (runtime, "serve --gpu 99 --port 0", 2),
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


@pytest.mark.parametrize(
    "line",
    [
        "runtime.cli datasets --json -",
        "runtime.cli --help",
        "runtime.cli models --bundles models",
        f"runtime.cli {ONES} --out run",
        "export.cli --list",
        "export.cli --help",
    ],
)
def test_a_closed_pipe_is_141(tmp_path: Path, line: str) -> None:
    make_dataset(tmp_path / "data", 4)
    make_bundle(tmp_path / "models" / "good-32")
    assert into_a_closed_pipe(tmp_path, line, stderr=False) == (141, b"")


def test_a_pipe_of_both_streams_is_141(tmp_path: Path) -> None:
    """`2>&1 | head`: the sentence of an error has no reader either."""
    assert into_a_closed_pipe(tmp_path, "runtime.cli report nothing", stderr=True) == (141, b"")


def into_a_closed_pipe(folder: Path, line: str, *, stderr: bool) -> tuple[int, bytes]:
    """Exit status and standard error of a command whose output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    module, _, rest = line.partition(" ")
    with os.fdopen(writer, "wb") as out:
        started = [sys.executable, "-m", f"xbench_fast.{module}", *rest.split()]
        errors = out if stderr else subprocess.PIPE
        done = subprocess.run(started, cwd=folder, stdout=out, stderr=errors, timeout=60, check=False)
    return done.returncode, done.stderr or b""


def test_the_help_and_the_page_name_the_same() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for group in (app, command):
        told = CliRunner().invoke(group, ["--help"]).output
        for status in ("0", "1", "2", "130", "141"):
            assert f"{status} " in told.partition("Exit status:")[2] and f"\n| {status} |" in page
