"""The policy for uncertain labels in an evaluation: results of their own, and a line in every table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluation_world import World
from make_images import encode
from synthetic import make_bundle
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.comparison.comparison import compare_runs
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.reporting.studies.material import load_material
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.run_json import RUN_FILE, read_run
from xbench_fast.runtime.results.selected_pairs import Resampling

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
    for name in ("table1.tex", "recognition.tex", "coverage.tex", "auc-nih.tex", "provenance.tex", "tables.md"):
        assert line in told[name].replace("\\_", "_"), name
    for name in ("table1.csv", "classes.csv", "recognition.csv", "coverage.csv"):
        assert line.removeprefix("ChestX-ray14: ") in told[name], name
    assert json.loads(told["report.json"])["cells"][0]["uncertain"] == {"policy": policy, "labels": 2}
    assert line in load_material(world.out).stamps
    assert line in compare_runs(load_run(world.out), load_run(world.out), resampling=Resampling(50)).stamps


def test_a_dataset_without_uncertain_labels_says_nothing(tmp_path: Path, data: Path) -> None:
    file = data / "Data_Entry_2017.csv"
    file.write_text(file.read_text().replace("-1.0", "1").replace("-1", "0"))
    world = World(tmp_path)
    world.run([], [config(data, "ignore")], baselines=["baseline:ones"])
    assert "uncertain" not in world.entry("baseline:ones--nih")
    write_report(make_report(world.out), out=tmp_path / "report", page=False)
    assert "uncertain label" not in (tmp_path / "report/tables.md").read_text()


def test_a_damaged_entry_is_refused(tmp_path: Path, data: Path) -> None:
    world = World(tmp_path)
    world.run([], [config(data, "ignore")], baselines=["baseline:ones"])
    told = json.loads((world.out / RUN_FILE).read_text())
    assert read_run(world.out)["cells"]
    told["cells"]["baseline:ones--nih"]["uncertain"]["policy"] = "zeros"
    del told["checksum"]
    (world.out / RUN_FILE).write_text(json.dumps(told))
    with pytest.raises(RunError, match="uncertain"):
        read_run(world.out)
