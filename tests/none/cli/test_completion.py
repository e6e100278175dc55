"""What a shell completes, through click's own interface and through the environment variable that a shell sets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from synthetic import make_bundle
from xbench_fast.export.cli.export_command import command
from xbench_fast.runtime.cli.app import app
from xbench_fast.runtime.cli.options.completing import _BASELINES, _FILES
from xbench_fast.runtime.evaluation.pairing import KINDS
from xbench_fast.runtime.evaluation.reference import baselines
from xbench_fast.runtime.evaluation.reference.box_models import FLOORS, READER, READERS, WORDS

CONFIG = (
    "bundles = ['models']\n[datasets.mine]\nroot = 'data'\n[models.own]\nclass = 'mine.py:A'\n[eval]\nout = 'run'\n"
)


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("good-32", "good-64", "other-32", ".good-old"):
        make_bundle(tmp_path / "models" / name)
    (tmp_path / "xbench.toml").write_text(CONFIG)
    (tmp_path / "run").mkdir()
    cells = {"a": {"model": "kad-224", "dataset": "rsna"}, "b": {"model": "clip", "dataset": "siim"}}
    (tmp_path / "run" / "run.json").write_text(json.dumps({"cells": cells}))


def offered(line: str, of: object = app) -> list[str]:
    *words, incomplete = line.split(" ")
    found = ShellComplete(of, {}, "name", "_NAME_COMPLETE").get_completions(words, incomplete)  # type: ignore[arg-type]
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("ev", ["eval"]),
        ("study thr", ["thresholds"]),
        ("eval --model good", ["good-32", "good-64"]),
        ("eval --bundles models/other-32 --model o", ["other-32"]),
        ("eval --model .", []),
        ("eval --model baseline:", list(_BASELINES)),
        ("eval --model b", [*_BASELINES, "boxes:"]),
        ("eval --model m", ["maps:", "moved:", "mirrored:"]),
        ("eval --model r", ["reader:second", "reader:radiologist"]),
        ("eval --dataset mi", ["mine"]),
        ("eval --dataset chestxd", ["chestxdet10"]),
        ("eval --data rs", ["rsna="]),
        ("eval --protocol me", ["medklip"]),
        ("eval --engine onnxruntime-", ["onnxruntime-cpu", "onnxruntime-cuda"]),
        ("eval --decoder d", ["dali"]),
        ("serve --model good-6", ["good-64"]),
        ("serve --engine a", ["auto"]),
        ("bench --model oth", ["other-32"]),
        ("prepare --dataset min", ["mine"]),
        ("prompts encode --model oth", ["other-32"]),
        ("datasets check min", ["mine"]),
        ("report --model kad-224 --model c", ["clip"]),
        ("report run --dataset r", ["rsna"]),
        ("study strata run --model ", ["kad-224", "clip"]),
        ("study prompts --dataset s", ["siim"]),
        ("compare run run --model k", ["kad-224"]),
        ("compare nothing run --model k", []),
        ("eval --config nothing.toml --dataset mi", []),
    ],
)
def test_names_that_are_here_are_offered(line: str, names: list[str]) -> None:
    assert offered(line) == names


def test_exports_too() -> None:
    assert offered("wr", command) == ["wrap"]
    assert offered("--model ow", command) == ["own"] and "kad" in offered("--model k", command)
    assert offered("--saliency layer", command) and offered("--model clip --saliency layer", command) == []
    assert list(_BASELINES) == [f"baseline:{name}" for name in baselines.BASELINES]
    kinds = {READER if name in READERS else WORDS if name in FLOORS else name for name in _FILES}
    assert {"baseline:", *kinds} == set(KINDS) and {*READERS, *FLOORS} < set(_FILES), "every kind of model is offered"


@pytest.mark.parametrize(("shell", "line"), [("bash", "xbench-fast eval --model good"), ("zsh", "xbench-fast ev")])
def test_a_shell_asks_by_the_environment(shell: str, line: str) -> None:
    program = shutil.which("xbench-fast", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("the commands are not installed beside this Python")
    words = line.split()
    asked = {"_XBENCH_FAST_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    known = {**os.environ, **asked}
    done = subprocess.run([program], env=known, capture_output=True, text=True, timeout=60, check=True)
    assert ("plain,good-32\nplain,good-64\n" if shell == "bash" else "plain\neval\n") in done.stdout
    assert done.stderr == ""
