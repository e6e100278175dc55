"""Regions marked iscrowd: `eval` warns of them, COCO's numbers ignore them and say so, and all others count them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from box_world import command
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.stored_boxes import load_boxes

CASE = Path(__file__).parents[2] / "cases" / "coco-iscrowd-in-ap"
GOLDEN = Path(__file__).parents[2] / "golden" / "boxes" / "coco_crowd.json"


def reported(folder: Path, out: Path) -> tuple[dict[str, float], dict[str, Any], str]:
    """The numbers of the scorer `coco`, the row of boxes.csv, and the tables, of annotations.json and res.json."""
    options = ["--dataset", "x", "--data", f"x={folder}", "--data-option", "x.reader=coco", "--out", str(out)]
    command("eval", "--model", f"boxes:{folder}/res.json", "--coco", f"{folder}/annotations.json", *options)
    command("report", out)
    published = list(csv.DictReader((out / "report/published.csv").open(encoding="utf-8")))
    coco = {row["number"]: float(row["value"]) for row in published if row["scorer"] == "coco"}
    (boxes,) = csv.DictReader((out / "report/boxes.csv").open(encoding="utf-8"))
    return coco, boxes, " ".join((out / "report/tables.md").read_text(encoding="utf-8").split())


def test_crowd_regions_are_ignored_by_coco_and_counted_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coco, boxes, tables = reported(CASE, tmp_path)
    said = "regions marked iscrowd: 4 in 4 images; they count as regions"
    assert said in capsys.readouterr().out
    for number in ("AP", "coco"):
        assert f"{number}: {CASE / 'annotations.json'}: {said}, but {number} ignores boxes marked iscrowd" in tables
    assert coco["AP"] == coco["AR100"] == 1.0 and float(boxes["ap_percent"]) == 100
    assert boxes["true_boxes"] == "8" and float(boxes["recall_0.5_of_all_boxes_percent"]) == 50


def test_the_numbers_are_those_of_pycocotools(tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    truth, digests = golden["ground_truth"], set[str]()
    for image in truth["images"]:
        image["file_name"] = f"{image['id']}.png"
    for mark, values in ((1, golden["values"]), (0, golden["without_marks"])):
        folder = tmp_path / str(mark)
        folder.mkdir()
        if not mark:  # another one, which COCO's code does not ask for
            for each in truth["annotations"]:
                each["iscrowd"], each["difficult"] = 0, each["iscrowd"]
        (folder / "annotations.json").write_text(json.dumps(truth))
        (folder / "res.json").write_text(json.dumps(golden["results"]))
        coco, boxes, tables = reported(folder, folder / "run")
        assert {name: coco[name] for name in values} == pytest.approx(values, abs=1e-9)
        assert float(boxes["ap_percent"]) == pytest.approx(100 * values["AP"])
        assert ("ignores boxes marked iscrowd" in tables) == bool(mark)
        assert f"regions marked {'iscrowd' if mark else 'difficult'}: " in tables
        run = load_run(folder / "run")
        digests.add(load_boxes(run, run.cell("boxes:res", "x")).truth)
    assert len(digests) == 2, "models with other marks are not ranked together"
