"""Predicted boxes on a dataset whose regions are masks: what needs true boxes is not defined."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import xbench_fast as xb
from box_world import answers, command, evaluate, make_box_data


def test_duplicate_boxes_are_not_defined_where_regions_are_masks(tmp_path: Path) -> None:
    """They are boxes about a true box, and 0.00 would say that there is none."""
    data = make_box_data(tmp_path / "data")
    answers(data, tmp_path / "mine.jsonl")
    file = data / "annotations.json"
    told = json.loads(file.read_text())
    for entry in told["annotations"]:
        x, y, w, h = entry.pop("bbox")
        entry["segmentation"] = [[x, y, x + w, y, x, y + h]]
    file.write_text(json.dumps(told))
    assert evaluate(data, "--model", f"boxes:{tmp_path / 'mine.jsonl'}", "--model", "baseline:ones") == 0
    out = tmp_path / "run" / "report"
    assert command("report", out.parent, "--quiet", "--no-page", "--replicates", 0) == 0
    rows = [
        dict(zip(lines[0], line, strict=True))
        for part in (out / "tables.md").read_text().split("\n## ")
        if (lines := [[cell.strip() for cell in line.split("|")] for line in part.split("\n") if line.startswith("|")])
        for line in lines
        if line[1] == "boxes:mine"
    ]
    assert [row[name] for row in rows for name in row if "duplicate" in name] == ["-", "-"]
    (silent,) = [row["per 100 pairs: silent"] for row in rows if "per 100 pairs: silent" in row]
    assert float(silent) > 0
    for name, column in (("coverage", "duplicate_boxes"), ("boxes", "duplicates")):
        with (out / f"{name}.csv").open(newline="") as stream:
            assert {row[column] for row in csv.DictReader(stream)} == {""}
    (entry,) = json.loads((out / "report.json").read_text())["boxes"]
    assert entry["duplicates"] is None and entry["published"] == {}
    shown = xb.load_run(out.parent).table("coverage")
    assert shown[shown.metric == "duplicate_boxes"].value.isna().all()
