"""The study of errors in the page of the report."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pytest
from box_world import answers, command, evaluate, make_box_data
from PIL import Image
from study_world import answer, study


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
        assert command("report", run, "--replicates", 20, "--quiet") == 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    written(8)
    assert "study of errors" not in reported() and "Kinds of errors" not in page.read_text()
    study(capsys, "errors", run, "--replicates", 20)
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
    study(capsys, "errors", run, "--replicates", 20)
    written(9)
    assert "is of earlier results and is not in the page; run" in reported()
    assert "Kinds of errors" not in page.read_text()
