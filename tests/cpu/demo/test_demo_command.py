"""`xbench-fast demo` where torch cannot be imported and no connection can be opened, with fewer phantoms."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
from synthetic import make_dataset
from xbench_fast.demo.phantoms import is_drawn, phantoms, write
from xbench_fast.demo.placing import place_files
from xbench_fast.runtime.cli import demo_command, main
from xbench_fast.runtime.cli.app import app
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.host.config import load_config

pytest.importorskip("onnxruntime")

COUNT = 24
# Modules of the extra `export` are hidden, and what opens a connection ends the process.
GUARDED = f"""
import os, sys
HIDDEN = {{"torch", "torchvision", "transformers", "open_clip", "timm", "onnx", "onnxscript", "safetensors"}}
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hiding())
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
        os.write(2, f"{{event}} {{arguments}}".encode())
        os._exit(99)
sys.addaudithook(refuse)
from xbench_fast.runtime.cli import demo_command, main
demo_command.PHANTOMS = {COUNT}
main(["demo"])
"""


def guarded(folder: Path, code: str = GUARDED) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The working directory of a demo, and what the command printed."""
    folder = tmp_path_factory.mktemp("user")
    done = guarded(folder)
    assert done.returncode == 0 and "Traceback" not in done.stderr, f"{done.stdout}\n{done.stderr}"
    return folder, done.stdout


def test_the_guards_work(tmp_path: Path) -> None:
    code = GUARDED.partition("from xbench_fast")[0]
    assert guarded(tmp_path, code + "import socket\nsocket.create_connection(('127.0.0.1', 9))").returncode == 99
    assert "No module named 'torch'" in guarded(tmp_path, code + "import torch").stderr


def test_it_evaluates_and_reports_without_torch_and_network(shown: tuple[Path, str]) -> None:
    folder, text = shown
    cells = json.loads((folder / "demo" / "out" / "run" / "run.json").read_text())["cells"].values()
    assert {(cell["model"], cell["dataset"], cell["cases"]) for cell in cells} == {
        ("kad-demo", "phantoms", COUNT),
        ("kad-demo", "chestxdet10", 40),
    }
    report = folder / "demo" / "out" / "run" / "report"
    assert (report / "index.html").is_file() and "Table 1: grounding" in text
    assert "warning" not in text.lower(), text
    points = pd.read_csv(report / "table1.csv").set_index("dataset").pointing_percent
    assert points["phantoms"] > 70 and points["chestxdet10"] < 50, "it was trained on phantoms alone"


def test_it_says_from_the_beginning_what_it_does(shown: tuple[Path, str]) -> None:
    lines = shown[1].splitlines()
    assert (
        lines[0]
        == f"Demo of xbench-fast in demo: a small model on {COUNT} phantoms and 40 radiographs; a minute or two."
    )
    assert [line for line in lines if line.startswith("[")] == [
        "[1/4] copy radiographs, model and configuration to demo",
        f"[2/4] draw {COUNT} phantoms",
        "[3/4] xbench-fast eval --config demo/xbench.toml --model kad-demo",
        "[4/4] xbench-fast report demo/out/run",
    ]
    assert "Done. Open demo/out/run/report/index.html in a browser. Then, for example:" in lines


def test_what_to_do_next_are_commands_that_exist(shown: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shown[0])
    after = shown[1].partition("Then, for example:\n")[2].splitlines()
    lines = [line.strip() for line in after if line.startswith("  xbench-")]
    assert len(lines) == len(demo_command.NEXT)
    for line in lines:
        program, *words = shlex.split(line)
        if program == "xbench-fast" and words[-1] != "--help":
            command = app.get_command(click.Context(app), words[0])
            assert command is not None
            command.make_context(words[0], words[1:])  # raises for an option or a file that does not exist
            assert all(Path(word).exists() for word in words if word.startswith("demo/"))


def step(monkeypatch: pytest.MonkeyPatch, name: str, status: int) -> list[str]:
    """Replaces the command of a step by one with this status; returns the arguments that it will get."""
    taken: list[str] = []

    class Step(click.Command):
        def main(self, args: Any = None, *rest: Any, **options: Any) -> int:
            taken.extend(args)
            return status

    module, attribute = {"eval": ("evaluate_command", "evaluate"), "report": ("report_command", "report")}[name]
    monkeypatch.setattr(f"xbench_fast.runtime.cli.{module}.{attribute}", Step(name))
    return taken


def test_a_second_start_computes_nothing_again(
    shown: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shown[0] / "demo", tmp_path / "demo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo_command, "PHANTOMS", COUNT)
    more = ["--model", "baseline:ones", "--dataset", "chestxdet10"]  # what the user adds to the run is no obstacle
    with pytest.raises(SystemExit, match="0"):
        main(["eval", "--config", "demo/xbench.toml", *more])
    capsys.readouterr()
    taken = step(monkeypatch, "report", 0)
    with pytest.raises(SystemExit, match="0"):
        main(["demo"])
    text = capsys.readouterr().out
    assert "2 cells finished (2 of them before)" in text and "demo/out/phantoms has them" in text
    assert taken == ["demo/out/run"]


class Counted(PlainProgress):
    """Keeps what is counted."""

    counts: list[int]

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Callable[[int], None]]:
        self.counts = []
        yield self.counts.append


def test_a_step_that_fails_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = Counted(lambda line: None)
    monkeypatch.setattr("xbench_fast.runtime.evaluation.progress.progress_for", lambda console: counted)
    monkeypatch.setattr(demo_command, "PHANTOMS", 2)
    step(monkeypatch, "eval", 130)
    with pytest.raises(SystemExit, match="130"):
        main(["demo", "--out", str(tmp_path / "demo")])
    text = capsys.readouterr().out
    assert "[3/4]" in text and "[4/4]" not in text and "Done." not in text
    assert counted.counts == [1, 1], "the bar of the phantoms"


def test_phantoms_are_drawn_again_where_one_is_missing(tmp_path: Path) -> None:
    assert not is_drawn(tmp_path, "test", 2)
    write(tmp_path, phantoms("test", 2))
    assert is_drawn(tmp_path, "test", 2)
    assert (
        not is_drawn(tmp_path, "test", 1) and not is_drawn(tmp_path, "test", 3) and not is_drawn(tmp_path, "train", 2)
    )
    next((tmp_path / "images").iterdir()).unlink()
    assert not is_drawn(tmp_path, "test", 2)
    (tmp_path / "annotations.json").write_text("[]")
    assert not is_drawn(tmp_path, "test", 2)


def test_the_run_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place_files(tmp_path / "demo")
    out = tmp_path / "demo" / "out"
    words = ["--model", "baseline:ones", "--data", f"coco={make_dataset(tmp_path / 'data', 2)}"]
    with pytest.raises(SystemExit, match="0"):
        main(["eval", *words, "--out", str(out / "run")])
    before = (out / "run" / "run.json").read_bytes()
    with pytest.raises(SystemExit, match="1"):
        main(["demo", "--out", str(tmp_path / "demo")])
    said = capsys.readouterr().err
    assert f"{out / 'run'} is the run directory of another evaluation; give another folder with --out." in said
    assert (out / "run" / "run.json").read_bytes() == before and not (out / "phantoms").exists()


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="2"):
        main(["demo", "--out", str(tmp_path / "file")])
    assert capsys.readouterr().err == f"Error: --out {tmp_path / 'file'} is a file; give a folder.\n"
    with pytest.raises(SystemExit, match="1"):
        main(["demo", "--out", str(tmp_path / "file" / "demo")])
    assert str(tmp_path / "file" / "demo") in capsys.readouterr().err


def test_without_an_engine_nothing_is_copied_or_drawn(tmp_path: Path) -> None:
    done = guarded(tmp_path, GUARDED.replace('"torch", ', '"torch", "onnxruntime", '))
    assert done.returncode == 1 and "install xbench-fast[cpu]" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_makefile_evaluates_the_bundle_that_it_exports(root: Path) -> None:
    recipe = (root / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2].partition("\n\n")[0]
    export, demo = recipe.index("xbench-export"), recipe.index("xbench-fast demo --out demo")
    (bundles,) = load_config(root / "demo" / "xbench.toml").bundles
    assert export < demo and f"--out {bundles.relative_to(root)} --force" in recipe
