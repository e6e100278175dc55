"""Regions that leave their image are counted wherever pairs are counted (docs/datasets.md §0.3)."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import xbench_fast as xb
from evaluation_world import World
from PIL import Image
from synthetic import make_bundle, make_dataset
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_grid import region_fault
from xbench_fast.runtime.data.datasets.region_shapes import AtLeast, Polygons, Rle, union
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.runs.merging import merge_shards
from xbench_fast.runtime.results.runs.shards import Shard

LINE = "regions: 2 outside their image and not counted, 1 partly outside their image and clipped"


def moved(root: Path, *, sized: bool = True) -> Path:
    """A dataset of 40 x 56 pixels and 12 regions, two of them outside their images and one partly outside."""
    make_dataset(root)
    file = root / "annotations.json"
    document = json.loads(file.read_text())
    boxes = [annotation for annotation in document["annotations"] if annotation["category_id"] == 1]
    boxes[1]["bbox"], boxes[2]["bbox"], boxes[3]["bbox"] = [60, 5, 9, 9], [5, 41, 9, 9], [50, 5, 9, 9]
    for image in document["images"] if not sized else []:
        del image["height"], image["width"]
    file.write_text(json.dumps(document))
    return root


def status(*arguments: object) -> object:
    with pytest.raises(SystemExit) as ended:
        main([str(each) for each in arguments])
    return ended.value.code


@pytest.mark.parametrize("sized", [True, False])
def test_eval_report_and_check_count_them(tmp_path: Path, capsys: pytest.CaptureFixture[str], sized: bool) -> None:
    root, out = moved(tmp_path / "data", sized=sized), tmp_path / "run"
    data = ("--data", f"coco={root}")
    assert status("eval", "--model", "baseline:ones", "--dataset", "coco", *data, "--out", out, "--no-cache") == 0
    assert LINE in capsys.readouterr().out.replace("\n", " ")
    assert status("report", out, "--quiet") == 0
    wanted = {"pairs": 10, "outside": 2, "clipped": 1, "empty": 0}
    with (out / "report/coverage.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert {name: int(row[name]) for name in wanted} == wanted
    (cell,) = json.loads((out / "report/report.json").read_text())["cells"]
    assert cell["faults"] == {"outside": 2, "clipped": 1, "empty": 0} and cell["n"] == 10
    table = xb.load_run(out).table("coverage").set_index("metric").value
    assert {name: int(table[name]) for name in wanted} == wanted
    capsys.readouterr()
    assert status("datasets", "check", "coco", *data, "--json", "-") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["outside"], found["clipped"], found["passed"]) == (2, 1, False)
    assert found["outside_regions"][0] == ("case0003: the region of 'Mass' at [60, 5, 69, 14] and an image of 56 x 40")


def test_a_bundle_counts_them_in_one_piece_and_in_shards(tmp_path: Path) -> None:
    data, path = DatasetConfig("coco", moved(tmp_path / "data"), "coco"), make_bundle(tmp_path / "blocks-32").path
    whole = World(tmp_path)
    whole.run([path], [data])
    entry = whole.entry()
    assert (entry["outside"], entry["clipped"], entry["empty"]) == (2, 1, 0)
    assert any(LINE in line for line in whole.lines)
    rows = whole.table().to_pandas().set_index(["case_id", "finding"])
    assert rows.region_fault.dropna().to_dict() == {
        ("case0003", "Mass"): "outside",
        ("case0006", "Mass"): "outside",
        ("case0009", "Mass"): "clipped",
    }
    assert rows.region_area["case0003", "Mass"] == 0 and rows.region_area["case0009", "Mass"] > 0
    parts = []
    for index in (1, 2):
        part = World(tmp_path / f"part{index}")
        part.out.parent.mkdir()
        part.run([path], [data], shard=Shard(index, 2))
        store_run(part.out, {**read_run(part.out), "config": {"shard": f"{index}/2"}})
        parts.append(part.out)
    merge_shards(parts, tmp_path / "merged", lambda line: None)
    merged = json.loads((tmp_path / "merged/run.json").read_text())["cells"]["blocks-32--coco"]
    assert (merged["outside"], merged["clipped"], merged["empty"]) == (2, 1, 0)


def test_the_fault_of_every_kind_of_region() -> None:
    def fault(region: object) -> str | None:
        return region_fault(region, 20, 30, drawn=bool(region.mask(20, 30).any()))  # type: ignore[arg-type, attr-defined]

    inside, right, below = ((1, 1, 5, 5),), ((30, 1, 34, 5),), ((1, 20, 5, 24),)
    assert fault(Boxes(inside)) is None
    assert fault(Boxes(((-2, -2, 32, 22),))) is None, "two pixels are rounding"
    assert fault(Boxes(((-2.5, 0, 5, 5),))) == fault(Boxes(((0, 0, 5, 22.5),))) == "clipped"
    assert fault(Boxes(((0, -2.5, 5, 5),))) == fault(Boxes(((0, 0, 32.5, 5),))) == "clipped"
    assert fault(Boxes(right)) == fault(Boxes(below)) == fault(Boxes(((-9, 1, -1, 5),))) == "outside"
    assert fault(Boxes(inside + right)) == "clipped", "one of its boxes is lost"
    assert fault(Polygons((((31.0, 1.0), (40.0, 1.0), (40.0, 9.0)),))) == "outside"
    assert fault(Polygons((((25.0, 1.0), (40.0, 1.0), (40.0, 9.0)),))) == "clipped"
    assert fault(Polygons(((),))) == fault(Rle((20, 30), (600,))) == "empty"
    assert fault(union([Boxes(inside), Polygons((((31.0, 1.0), (40.0, 1.0), (40.0, 9.0)),))])) == "clipped"
    apart = AtLeast((Boxes(inside), Boxes(((9, 9, 12, 12),))), 2)
    assert fault(apart) == "empty", "its parts lie in the image and do not meet"
    assert fault(AtLeast((Boxes(inside), Boxes(right)), 2)) == "empty"
    assert fault(AtLeast((Boxes(right), Boxes(below)), 2)) == "outside"


def test_images_that_cannot_be_read_have_no_region_to_judge(tmp_path: Path) -> None:
    root = moved(tmp_path / "data")
    (root / "images/case0003.png").unlink()
    (root / "images/case0009.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    Image.fromarray(np.zeros((20, 28), np.uint8)).save(root / "images/case0006.png")
    world = World(tmp_path)
    world.run([make_bundle(tmp_path / "blocks-32").path], [DatasetConfig("coco", root, "coco")])
    entry = world.entry()
    assert [entry[name] for name in ("missing", "unreadable", "outside", "clipped")] == [1, 1, 1, 0]


def test_one_region_outside_fails_the_check_and_a_clipped_one_does_not(tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "data")
    file = root / "annotations.json"
    document = json.loads(file.read_text())
    for box, outside, clipped in (([56, 5, 9, 9], 1, 0), ([50, 5, 9, 9], 0, 1)):
        document["annotations"][0]["bbox"] = box
        file.write_text(json.dumps(document))
        found = audit(Coco(root))
        assert (found.outside, found.clipped, found.misfits, found.warnings) == (outside, clipped, 0, ())
        assert found.passed == (not outside)
