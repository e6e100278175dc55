"""The study of errors in the page of the report."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from box_world import answers, command, evaluate, make_box_data
from PIL import Image
from study_world import answer, study
from xbench_fast.runtime.reporting.studied_errors import studied_errors
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.studied import write_study


def test_the_page_of_the_report_shows_the_study(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figure and its examples, of these results only; without the study the page has neither."""
    monkeypatch.setattr("xbench_fast.runtime.reporting.figures.all_figures", lambda results: [])
    data, run, page = make_box_data(tmp_path / "data"), tmp_path / "run", tmp_path / "run/report/index.html"

    def written(seed: int) -> None:
        answers(data, tmp_path / "mine.jsonl", seed=seed)
        assert evaluate(data, "--model", f"boxes:{tmp_path}/mine.jsonl") == 0

    def reported() -> str:
        capsys.readouterr()
        assert command("report", run, "--replicates", 40, "--quiet") == 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    written(8)
    assert "study of errors" not in reported() and "Kinds of errors" not in page.read_text()
    study(capsys, "errors", run, "--replicates", 40)
    told = answer(run, "errors")
    reported()
    text = page.read_text()
    assert text.count("<b>Kinds of errors.</b>") == 1 and "Boxes of each kind per 100 pairs" in text
    shown = re.findall(r'<figure><img src="data:image/jpeg;base64,([^"]+)" alt="([^"]+)">', text)
    kinds = [case["kind"].replace("_", " ") for case in told["cases"]]
    assert sorted(alt.partition(":")[0] for _, alt in shown) == sorted(kinds) != []
    assert all(": boxes:mine on coco, " in alt and "; Dice " in alt for _, alt in shown)
    for source, _ in shown:
        assert Image.open(io.BytesIO(base64.b64decode(source))).size[0] > 100
    monkeypatch.setattr("xbench_fast.runtime.reporting.studied_errors._MOST", 1)
    assert f"1 of {len(shown)} examples of errors" in reported()
    (run / "studies/errors" / told["cases"][0]["overlay"]).unlink()
    assert "cannot be shown" in reported() and "Kinds of errors" not in page.read_text()
    study(capsys, "errors", run, "--replicates", 40)
    written(9)
    assert "is of earlier results and is not in the page; run" in reported()
    assert "Kinds of errors" not in page.read_text()


def test_a_study_that_is_damaged_or_of_something_else_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = make_box_data(tmp_path / "data"), tmp_path / "run"
    folder = run / "studies/errors"

    def written(name: str, seed: int) -> None:
        answers(data, tmp_path / f"{name}.jsonl", seed=seed)
        assert evaluate(data, "--model", f"boxes:{tmp_path}/{name}.jsonl") == 0

    def shown(**choices: Any) -> tuple[int, str]:
        found = studied_errors(load_run(run), folder / "errors.json", Choices(**{"replicates": 20, **choices}))
        assert bool(found.examples) == bool(found.figures)
        return len(found.examples), found.remark

    written("mine", 8)
    study(capsys, "errors", run, "--replicates", 20)
    count, remark = shown()
    assert count and not remark
    record = answer(run, "errors")
    assert set(record["checksums"]) == {str(path.relative_to(folder)) for path in folder.rglob("*.*")} - {"errors.json"}
    used = {case["overlay"] for case in record["cases"]} | {f"errors.{kind}" for kind in ("svg", "pdf", "png")}
    for name in sorted(used | {"errors.json"}):
        content = (folder / name).read_bytes()
        for place in (20, len(content) // 2, -30):
            flipped = bytearray(content)
            flipped[place] ^= 2
            (folder / name).write_bytes(flipped)
            found, remark = shown()
            assert (found, name in remark) == (0, True) and remark.endswith(
                f"study errors {run} --replicates 20 again."
            )
        (folder / name).write_bytes(content)
    assert shown() == (count, "") == shown(replicates=0), "a report without intervals has no other draws"
    told = shown(seed=5)
    assert told[0] == 0 and "was made with --replicates 20 --seed" in told[1] and "--replicates 20 --seed 5" in told[1]
    for choices in ({"pairs": "true_positives"}, {"protocol": "chexlocalize"}, {"constant": "skip"}):
        told = shown(**choices)
        assert (
            told[0] == 0 and "counts all pairs by the protocol of the evaluation" in told[1] and "again" not in told[1]
        )
    older = {name: value for name, value in record.items() if name != "checksum"}
    (folder / "errors.json").write_text(json.dumps(older))
    assert shown()[0] == 0 and "by a version that did not say which results a study is of" in shown()[1]
    write_study(folder / "errors.json", older)
    assert shown() == (count, "")
    # True boxes of any predicted boxes stand for the truth of maps too.
    written("other", 9)
    assert shown()[0] == 0 and "is of earlier results" in shown()[1]
    study(capsys, "errors", run, "--replicates", 20, "--model", "boxes:mine", "--cases", 1)
    assert {each["model"] for each in answer(run, "errors")["results"]} == {"boxes:mine", "boxes:other"}
    assert shown()[0]
    entry = (shared := read_run(run))["cells"]["boxes:mine--coco"]
    entry["protocol"] = "paper"
    store_run(run, shared)
    assert shown()[0] == 0 and "is by the protocol default" in shown()[1]
