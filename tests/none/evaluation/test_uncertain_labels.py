"""The policy for uncertain labels in an evaluation: results of their own, and a line in every table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluation_world import World
from make_images import encode
from synthetic import make_bundle
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.studies.material import load_material

LINE = "NIH: {} uncertain labels {} (uncertain={})"
DONE = {"ignore": "ignored", "positive": "counted as positive", "negative": "counted as negative"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Twelve images with a Mass each or none; two labels of Effusion are uncertain, and one is blank."""
    root = tmp_path / "data"
    (root / "images").mkdir(parents=True)
    boxes, entries = ["Image Index,Finding Label,x,y,w,h"], ["Image Index,Mass,Effusion"]
    rng = np.random.default_rng(4)
    for n in range(12):
        (root / f"images/{n}_0.png").write_bytes(encode(rng.integers(0, 120, (40, 56), dtype=np.uint8), "PNG"))
        boxes.append(f"{n}_0.png,Mass,{10 * n},20,300,400")
        entries.append(f"{n}_0.png,1,{(-1, -1.0, '', 1, 0, 0)[n] if n < 6 else n % 2}")
    (root / "BBox_List_2017.csv").write_text("\n".join(boxes))
    (root / "Data_Entry_2017.csv").write_text("\n".join(entries))
    return root


def config(data: Path, policy: str) -> DatasetConfig:
    return DatasetConfig("nih", data, "chestxray14", "coco", {"uncertain": policy})


@pytest.mark.parametrize("policy", DONE)
def test_rows_key_and_every_table(tmp_path: Path, data: Path, policy: str) -> None:
    world, bundle = World(tmp_path), make_bundle(tmp_path / "blocks-32").path
    world.run([bundle], [config(data, policy)])
    assert "nih: 12 images of 12 patients" in world.lines, world.lines
    entry = world.entry("blocks-32--nih")
    assert entry["uncertain"] == {"policy": policy, "labels": 2}
    rows = world.table("blocks-32--nih").select(["finding", "label"]).to_pylist()
    labels = [row["label"] for row in rows if row["finding"] == "Effusion"][:4]
    assert labels == [{"ignore": None, "positive": 1, "negative": 0}[policy]] * 2 + [None, 1]
    other = next(each for each in DONE if each != policy)
    world.run([bundle], [config(data, other)])
    assert world.entry("blocks-32--nih")["key"] != entry["key"], "a result of its own"
    assert world.entry("blocks-32--nih")["uncertain"]["policy"] == other
    world.run([bundle], [config(data, policy)])
    assert world.entry("blocks-32--nih")["key"] == entry["key"]
    line = f"ChestX-ray14: 2 uncertain labels {DONE[policy]} (uncertain={policy})"
    report = make_report(world.out)
    write_report(report, out=tmp_path / "report", page=False)
    told = {path.name: path.read_text(errors="replace") for path in (tmp_path / "report").rglob("*") if path.is_file()}
    print(sorted(told))
    for name, text in told.items():
        if name.startswith(("table", "coverage", "report")) and name.endswith((".csv", ".tex", ".md", ".html")):
            assert line in text.replace("\\_", "_"), name
    assert json.loads(told["report.json"])["cells"][0]["uncertain"] == {"policy": policy, "labels": 2}
    assert line in load_material(world.out).stamps
