"""Regions marked iscrowd: `eval` warns of them, and the tables with COCO's numbers count them."""

from __future__ import annotations

from pathlib import Path

import pytest
from box_world import command

CASE = Path(__file__).parents[2] / "cases" / "coco-iscrowd-in-ap"


def test_crowd_regions_are_counted_where_the_numbers_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dataset", "x", "--data", f"x={CASE}", "--data-option", "x.reader=coco", "--out", str(tmp_path)]
    command("eval", "--model", f"boxes:{CASE}/res.json", "--coco", f"{CASE}/annotations.json", *options)
    said = "regions marked iscrowd: 4 in 4 images; they count as regions"
    assert said in capsys.readouterr().out
    command("report", tmp_path)
    out = " ".join((tmp_path / "report/tables.md").read_text(encoding="utf-8").split())
    for number in ("AP", "coco"):
        assert f"{number}: {CASE / 'annotations.json'}: {said}; pycocotools would ignore those marked iscrowd" in out
