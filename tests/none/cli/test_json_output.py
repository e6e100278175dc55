"""`--json`: a file with everything that is printed, or with `-` standard output and nothing else there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic import make_bundle, make_dataset
from xbench_fast.runtime.cli import main

DATA = ("--data", "coco=data")
ONES = ("eval", "--model", "baseline:ones", *DATA)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    make_dataset(folder / "data", 12, missing=(3,))
    make_bundle(folder / "models" / "good-32")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        line = {"case": "case0000", "finding": "Mass", "boxes": [], "frame": "pixels"}
        (folder / "answers.jsonl").write_text(json.dumps(line))
        status(*ONES)
        status(*ONES, "--out", "parts", "--shard", "1/1")
    return folder


def status(*line: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(line)
    return ended.value.code


OWN = {"report": "run/report/report.json", "study": "run/studies/thresholds/thresholds.json"}
"""Commands that write a file of JSON of their own -> that file."""


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (ONES, "cells"),
        (("merge", "parts/shard-1-of-1", "--out", "whole"), "cells"),
        (("report", "--no-page", "--replicates", "10"), "cells"),
        (("study", "thresholds", "--replicates", "10"), "study"),
        (("compare", "run", "run", "--replicates", "0"), "cells"),
        (("datasets", *DATA), "readers"),
        (("datasets", *DATA, "check", "coco"), "dataset"),
        (("boxes", "check", "answers.jsonl", "--dataset", "coco", *DATA), "positive"),
        (("cache",), "stores"),
        (("cache", "prune"), "deleted"),
        (("prepare", *DATA, "--geometry", "squash-32-32-bilinear"), "datasets"),
        (("models", "--bundles", "models"), 0),
    ],
)
def test_one_option_everywhere(
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: Sequence[str],
    key: str | int,
) -> None:
    monkeypatch.chdir(world)
    wanted = 1 if "check" in line else 0  # one image is missing, and most answers
    assert status(*line, "--json", "found.json") == wanted
    kept = capsys.readouterr()
    assert status(*line, "--json", "-") == wanted
    piped = capsys.readouterr()
    found = json.loads(piped.out)
    assert found[key] is not None
    written = json.loads(Path("found.json").read_text(encoding="utf-8"))
    assert "written: found.json" in kept.out
    assert type(written) is type(found) and len(written) == len(found)
    if line[0] in OWN:
        assert found == json.loads(Path(OWN[line[0]]).read_text())


def test_an_evaluation_tells_its_cells(
    world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(world)
    make_dataset(tmp_path / "other", 4)
    line = [*ONES[:3], "--model", "good-32", "--bundles", "models", "--data", f"mine={tmp_path / 'other'}", *DATA]
    line += ["--data-option", "mine.reader=coco", "--out", str(tmp_path / "run"), "--engine", "onnxruntime-cpu"]
    for state in ("computed", "reused"):
        status(*line, "--data-option", "mine.prompts=none", "--json", "-")
        told = json.loads(capsys.readouterr().out)
        assert told["run"] == str(tmp_path / "run")
        cells = {(cell["model"], cell["dataset"]): cell for cell in told["cells"]}
        first = cells["baseline:ones", "coco"]
        assert (first["state"], first["cases"], first["unreadable"], first["not_asked"]) == (state, 12, 0, [])
        assert (first["cases_per_second"] is not None) is (state == "computed")
        assert (tmp_path / "run" / first["file"]).is_file()
        failed = cells["good-32", "mine"]
        assert failed["state"] == "failed" and "has no prompt set 'none'" in failed["reason"]


def test_a_folder_is_no_file(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("doctor", "--json", str(world)) == 2
    assert "is a directory" in capsys.readouterr().err
