"""A mistyped word of the command line: the message has the most similar known one."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import make_bundle
from xbench_fast.export.cli import main as export
from xbench_fast.runtime.cli import main

DATA = ["--data", "coco=data", "--bundles", "models"]


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_bundle(tmp_path / "models" / "good-32")


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (["evla"], 2, "no command 'evla': did you mean 'eval'? known are demo, eval, merge"),
        (["study", "thresold"], 2, "no command 'thresold': did you mean 'thresholds'? known are asked, calibration, "),
        (["cache", "pruen"], 2, "no command 'pruen': did you mean 'prune'? known are clear, prune."),
        (["datasets", "chek"], 2, "no command 'chek': did you mean 'check'?"),
        (["prompts", "encod"], 2, "no command 'encod': did you mean 'encode'?"),
        (["report", "--protocol", "papr"], 2, "'papr' is unknown: did you mean 'paper'? known are default, paper"),
        (["eval", "--decoder", "cup"], 2, "'cup' is unknown: did you mean 'cpu'? known are auto, cpu, dali."),
        (["bench", "offlien"], 2, "'offlien' is unknown: did you mean 'offline'?"),
        (["serve", "--http-parser", "h1"], 2, "did you mean 'h11'?"),
        (["study", "prompts", "--by", "modle"], 2, "did you mean 'model'?"),
        (["eval", "--all", "--protocol", "afloc"], 2, "'afloc' is a published scorer of boxes, which report computes"),
        (["eval", "--all", "--protocol", "papr"], 2, "Unknown protocol 'papr': did you mean 'paper'?"),
        (["eval", "--model", "god-32", *DATA], 2, "no bundle called 'god-32': did you mean 'good-32'?"),
        (["eval", "--model", "boxs:f.jsonl", *DATA], 2, "no model called 'boxs:f.jsonl': did you mean 'boxes:'? known"),
        (["eval", "--model", "boxes=f.jsonl", *DATA], 2, "no model called 'boxes=f.jsonl': did you mean 'boxes:'?"),
        (["eval", "--model", "Boxes:f.jsonl", *DATA], 2, "did you mean 'boxes:'?"),
        (["eval", "--model", "box:f.jsonl", *DATA], 2, "did you mean 'boxes:'?"),
        (["eval", "--model", "movd:f.jsonl", *DATA], 2, "did you mean 'moved:'?"),
        (["eval", "--model", "map:folder", *DATA], 2, "did you mean 'maps:'?"),
        (["eval", "--model", "baselin:ones", *DATA], 2, "did you mean 'baseline:'?"),
        (["eval", "--model", "reader:secnd", *DATA], 2, "did you mean 'reader:second'?"),
        (["eval", "--model", "readr:radiologist", *DATA], 2, "did you mean 'reader:'?"),
        (
            ["eval", "--model", "nothing:y", *DATA],
            2,
            "'nothing:y': known are baseline:, maps:, boxes:, moved:, mirrored:, words:, reader:; or",
        ),
        (["eval", "--model", "boxes:models", *DATA], 2, "models of boxes:models is a folder; give one file of boxes"),
        (["eval", "--dataset", "ccoo", *DATA], 2, "'ccoo' is not configured: did you mean 'coco'?"),
        (["eval", "--all", "--engine", "onnxruntime-cup", *DATA], 2, "did you mean 'onnxruntime-cpu'?"),
        (["datasets", "check", "chestxdet1"], 2, "'chestxdet1' is not configured: did you mean 'chestxdet10'?"),
        (["datasets", "check", "rsna"], 2, "'rsna' is not configured: known are none; give its folder"),
    ],
)
def test_the_most_similar_word_is_named(
    capsys: pytest.CaptureFixture[str], line: list[str], status: int, words: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line)
    assert words in capsys.readouterr().err and ended.value.code == status


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (["rwap"], 2, "no command 'rwap': did you mean 'wrap'?"),
        (["--model", "kda", "--out", "o"], 2, "did you mean 'kad'?"),
        (["--model", "kad", "--out", "o", "--precision", "pf16"], 2, "did you mean 'fp16'?"),
        (["plan", "--backend", "tensort", "x"], 2, "did you mean 'tensorrt'?"),
        (["triton", "--model", "god-32", "--bundles", "models", "--out", "o"], 2, "did you mean 'good-32'?"),
        (["triton", "--model", "good-32", "--out", "o", "--device", "gup"], 2, "did you mean 'gpu'?"),
        (["wrap", "x", "--saliency", "atention"], 2, "did you mean 'attention'?"),
    ],
)
def test_the_other_command_too(capsys: pytest.CaptureFixture[str], line: list[str], status: int, words: str) -> None:
    assert export(line) == status
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", [["eval"], ["serve"], ["bench"], ["prepare"], ["prompts", "encode"]])
def test_threads_have_a_limit(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    for number in ("0", "1025"):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--threads", number])
        assert f"{number} is not in the range 1<=x<=1024." in capsys.readouterr().err and ended.value.code == 2
