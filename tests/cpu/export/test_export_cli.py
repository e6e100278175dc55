"""The command xbench-export as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.bundle import Bundle
from xbench_fast.export.cli import main

NO_HEAVY = (
    "import sys\n"
    "for name in ('torch', 'onnx', 'onnxruntime', 'onnxscript', 'transformers', 'open_clip', 'tokenizers', 'yaml'):\n"
    "    sys.modules[name] = None\n"
    "from xbench_fast.export.cli import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


def run(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code is not None else ["-m", "xbench_fast.export.cli"]
    return subprocess.run([sys.executable, *start, *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_option_without_any_heavy_package(flag: str) -> None:
    done = run(flag, code=NO_HEAVY)
    assert done.returncode == 0, done.stderr
    options = ["--model", "--checkpoint", "--out", "--weights", "--variant", "--resolution", "--tokenizer"]
    options += ["--prompts", "--seed", "--force", "--list"]
    assert [option for option in options if option not in done.stdout] == []


def test_the_list_says_where_each_variant_is_published_and_under_what_terms() -> None:
    done = run("--list", code=NO_HEAVY)
    assert done.returncode == 0, done.stderr
    words = [
        "kad",
        "224",
        "512",
        "1024",
        "best_valid.pt",
        "MIT",
        "vit-b-32",
        "ViT-B-16.pt",
        "Med-KEBERT",
        "Google Drive",
    ]
    assert [word for word in words if word not in done.stdout] == []


def test_the_list_agrees_with_the_models() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("open_clip")
    from xbench_fast.export.models.model_registry import MODELS
    from xbench_fast.export.models.published_checkpoints import PUBLISHED

    for name, facts in PUBLISHED.items():
        assert set(facts.variants) <= set(MODELS.load(name).variants)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give --model or --family"),
        (["--model", "kad"], "Give --out, the folder"),
        (["--model", "kad", "--out", "x"], "Give --checkpoint FILE"),
        (["--model", "kad", "--out", "x", "--weights", "stand-in", "--checkpoint", "y"], "exclude each other"),
        (["--model", "kad", "--out", "x", "--weights", "random"], "random"),
        (["--modle", "kad"], "--model"),
        (["warp"], "did you mean 'wrap'"),
    ],
)
def test_wrong_options_end_with_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "kad", "--checkpoint", "absent.pt"], "There is no file absent.pt"),
        (["--model", "kid", "--weights", "stand-in"], "did you mean 'kad'"),
        (["--model", "kad", "--weights", "stand-in", "--variant", "225"], "no variant '225'"),
        (["--model", "kad", "--weights", "stand-in", "--variant", "demo", "--prompts", "absent.yaml"], "absent.yaml"),
        (
            ["--model", "kad", "--weights", "stand-in", "--variant", "demo", "--tokenizer", "absent"],
            "There is no folder absent",
        ),
        (["--model", "all", "--weights", "stand-in", "--tokenizer", "absent"], "There is no folder absent"),
        (["--model", "absent.py:Model", "--weights", "stand-in"], "absent.py"),
    ],
)
def test_what_is_not_possible_is_one_sentence_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    pytest.importorskip("torch")
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert words in error and error.splitlines()[-1].startswith("xbench-export: ") and "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_that_is_not_there_is_said_although_the_checkpoint_has_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, root: Path
) -> None:
    for package in ("torch", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    demo = root / "demo"
    options = ("--checkpoint", str(demo / "kad-demo.pt"), "--prompts", str(demo / "prompts.yaml"))
    command = ["--model", "kad", *options, "--tokenizer", str(tmp_path / "vocab"), "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert f"There is no folder {tmp_path / 'vocab'}" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_file_that_is_no_checkpoint_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "notes.pt").write_text("no weights here")
    assert main(["--model", "kad", "--checkpoint", str(tmp_path / "notes.pt"), "--out", str(tmp_path / "out")]) == 1
    assert "notes.pt" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_stand_in_becomes_a_bundle_with_the_users_prompts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for package in ("torch", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    prompts = tmp_path / "prompts.json"
    prompts.write_text(
        json.dumps({"phantoms": {"Disc": ["disc"], "Bar": {"positive": ["bar"], "negative": ["no bar"]}}})
    )
    arguments = ["--model", "kad", "--weights", "stand-in", "--variant", "demo", "--seed", "3"]
    arguments += ["--prompts", str(prompts), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(tmp_path / "out" / "kad-demo")
    assert "parity" in printed.err and "stand-in tokenizer" in printed.err
    bundle = Bundle.load(tmp_path / "out" / "kad-demo")
    assert bundle.prompt_set("phantoms").texts == ("disc", "bar", "no bar")
    assert main(arguments) == 1
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_export_leaves_nothing(tmp_path: Path, number: signal.Signals, status: int) -> None:
    for package in ("torch", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    arguments = ["--model", "kad", "--weights", "stand-in", "--variant", "demo", "--out", str(tmp_path / "out")]
    process: Any = subprocess.Popen(
        [sys.executable, "-u", "-m", "xbench_fast.export.cli", *arguments], stderr=subprocess.PIPE, text=True
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "comparing" in line:
                break
        assert lines and "comparing" in lines[-1], lines
        assert any(path.name.startswith(".kad-demo") for path in (tmp_path / "out").iterdir())
        os.kill(process.pid, number)
        rest = process.stderr.read()
        assert process.wait(timeout=120) == status, rest
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in rest and not (tmp_path / "out").exists()
