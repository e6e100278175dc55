"""The rows of an evaluation and what its run directory tells, with a model that NumPy runs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from evaluation_world import World, same
from PIL import Image
from synthetic import make_bundle, make_dataset, model, prompt_set, reference_sweep
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.evaluation.pairing import shared_findings
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.cell_key import cases_digest
from xbench_fast.runtime.results.schema import result_schema


def test_rows_are_what_a_plain_loop_computes(world: World, bundle: Path, data: DatasetConfig) -> None:
    outcome = world.run([bundle], [data])
    assert (outcome.computed, outcome.failed, outcome.skipped) == (1, [], [])
    table = world.table()
    assert table.schema.equals(result_schema(), check_metadata=False)
    rows = table.to_pylist()
    document = json.loads((data.root / "annotations.json").read_text())
    assert [(r["case_id"], r["finding"]) for r in rows] == [
        (image["id"], finding) for image in document["images"] for finding in ("Mass", "Effusion")
    ]
    text = prompt_set().features
    for row in rows:
        picture = Image.open(data.root / "images" / f"{row['case_id']}.png")
        small = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR))
        logits, saliency = model(small[None, None], text)
        query = {"Mass": 0, "Effusion": 1}[row["finding"]]
        boxes = [
            a["bbox"]
            for a in document["annotations"]
            if a["image_id"] == row["case_id"] and a["category_id"] == query + 1
        ]
        native = np.zeros((40, 56), bool)
        for x, y, w, h in boxes:
            native[y : y + h, x : x + w] = True
        mask = np.array([[native[i * 40 // 224, j * 56 // 224] for j in range(224)] for i in range(224)])
        assert row["logit"] == logits[0, query] and row["logit_negative"] is None
        assert (row["status"], row["reason"], row["label"]) == ("ok", None, int(bool(boxes)))
        assert row["patient_id"] == f"p{int(row['case_id'][4:]) // 2}"
        if not boxes:
            assert row["region_area"] == 0
            assert row["area"] is row["overlap"] is row["argmax"] is row["hit"] is row["degenerate"] is None
            continue
        counts = reference_sweep(saliency[0, query : query + 1], mask[None])
        assert (row["area"], row["overlap"]) == (counts.area[0].tolist(), counts.overlap[0].tolist())
        assert row["region_area"] == mask.sum() and row["argmax"] == counts.argmax[0]
        assert (row["hit"], row["degenerate"], row["sub_pixel"]) == (counts.hit[0], False, False)
    assert sum(row["area"] is not None for row in rows) == 7 + 5


def test_several_prompts_are_averaged_before_normalisation(world: World, tmp_path: Path, data: DatasetConfig) -> None:
    path = make_bundle(tmp_path / "many-32", several=True).path
    world.run([path], [data])
    rows = [row for row in world.table("many-32--coco").to_pylist() if row["case_id"] == "case0000"]
    picture = Image.open(data.root / "images" / "case0000.png").resize((32, 32), Image.Resampling.BILINEAR)
    logits, saliency = model(np.asarray(picture)[None, None], prompt_set(several=True).features)
    assert rows[0]["logit"] == np.float32((np.float64(logits[0, 0]) + np.float64(logits[0, 1])) / 2)
    assert (rows[0]["logit_negative"], rows[1]["logit_negative"]) == (logits[0, 2], logits[0, 4])
    mean = ((saliency[0, 0].astype(float) + saliency[0, 1]) / 2).astype(np.float32)
    assert rows[0]["area"] == reference_sweep(mean[None], np.zeros((1, 224, 224), bool)).area[0].tolist()


def test_crop_models_are_swept_in_the_native_frame(world: World, tmp_path: Path, data: DatasetConfig) -> None:
    path = make_bundle(tmp_path / "crop-32", geometry=Geometry("crop", 32, 36, "bilinear")).path
    world.run([path], [data])
    row = next(row for row in world.table("crop-32--coco").to_pylist() if row["case_id"] == "case0000")
    # 40 x 56 -> 36 x 50, of which rows 2..34 and columns 9..41 are seen: pixels 12.44..211.56 and 40.32..183.68.
    assert 12 <= row["argmax"] // 224 < 212 and 40 <= row["argmax"] % 224 < 184
    document = json.loads((data.root / "annotations.json").read_text())
    x, y, w, h = document["annotations"][0]["bbox"]
    picture = Image.open(data.root / "images" / "case0000.png").resize((50, 36), Image.Resampling.BILINEAR)
    _, saliency = model(np.asarray(picture)[None, None, 2:34, 9:41], prompt_set().features)
    i, j = np.arange(224) * 40 // 224, np.arange(224) * 56 // 224
    mask = ((i >= y) & (i < y + h))[:, None] & ((j >= x) & (j < x + w))[None, :]
    frame = np.array([[2 / 36, 9 / 50, 34 / 36, 41 / 50]])
    counts = reference_sweep(saliency[0, :1], mask[None], frames=frame)
    assert (row["area"], row["overlap"]) == (counts.area[0].tolist(), counts.overlap[0].tolist())


def test_missing_and_unreadable_images_are_rows(world: World, bundle: Path, tmp_path: Path) -> None:
    root = make_dataset(tmp_path / "holes", missing=(0, 7))
    (root / "images" / "case0004.png").write_bytes(b"\x89PNG\r\n\x1a\nnot really")
    outcome = world.run([bundle], [DatasetConfig("coco", root, "coco")])
    assert outcome.failed == []
    rows = world.table().to_pandas()
    assert len(rows) == 40
    status = dict(zip(rows.case_id, rows.status, strict=True))
    assert [case for case, word in status.items() if word == "missing"] == ["case0000", "case0007"]
    assert [case for case, word in status.items() if word == "unreadable"] == ["case0004"]
    bad = rows[rows.status != "ok"]
    assert bad.logit.isna().all() and bad.region_area.isna().all() and bad.area.isna().all()
    assert "case0004.png" in bad.reason.iloc[-1] or "case0004.png" in bad[bad.status == "unreadable"].reason.iloc[0]
    assert (bad[bad.finding == "Mass"].label.to_list(), len(bad)) == ([1, 0, 0], 6)
    assert (world.entry()["missing"], world.entry()["unreadable"]) == (2, 1)
    assert any("2 images missing, 1 unreadable" in line for line in world.lines)


def test_a_failing_cell_does_not_stop_the_others(
    world: World, bundle: Path, data: DatasetConfig, tmp_path: Path
) -> None:
    broken = make_bundle(tmp_path / "broken-32").path
    (broken / "image.onnx").write_bytes(b"x" * 25)
    absent = DatasetConfig("absent", tmp_path / "nowhere", "coco")
    other = DatasetConfig("strange", data.root, "coco", None, {"annotations": "nothing.json"})
    outcome = world.run([broken, bundle], [absent, other, data])
    assert outcome.computed == 1
    assert {(m, d) for m, d, _ in outcome.failed} == {
        ("broken-32", "absent"),
        ("broken-32", "strange"),
        ("broken-32", "coco"),
        ("blocks-32", "absent"),
        ("blocks-32", "strange"),
    }
    assert world.entry("blocks-32--absent")["state"] == "failed"
    assert "nowhere" in world.entry("blocks-32--absent")["reason"]


def test_an_absent_dataset_can_be_skipped(world: World, bundle: Path, tmp_path: Path) -> None:
    outcome = world.run([bundle], [DatasetConfig("absent", tmp_path / "nowhere", "coco")], skip_absent=True)
    assert outcome.failed == [] and "nowhere" in outcome.skipped[0][2]


def test_a_pair_without_prompts_is_skipped_with_one_line(world: World, bundle: Path, data: DatasetConfig) -> None:
    other = DatasetConfig("rsna", data.root, "coco", None, {"name": "rsna"})
    outcome = world.run([bundle], [other])
    reason = (
        "the bundle has no prompt set 'rsna' (it has: coco); name one with --data-option rsna.prompts=SET, or add one "
        "with xbench-fast prompts encode --model blocks-32"
    )
    assert outcome.skipped == [("blocks-32", "rsna", reason)]
    assert world.lines == [f"blocks-32 on rsna: skipped, {reason}"]
    assert world.engines == []


def test_classes_without_a_prompt_are_told(world: World, bundle: Path, tmp_path: Path) -> None:
    """A mean over the others is no mean over the dataset; a misspelt class must not vanish."""
    root = make_dataset(tmp_path / "typo")
    file = root / "annotations.json"
    content = json.loads(file.read_text())
    content["categories"].append({"id": 77, "name": "Nodle"})
    file.write_text(json.dumps(content))
    outcome = world.run([bundle], [DatasetConfig("coco", root, "coco")])
    assert outcome.computed == 1
    (line,) = (line for line in world.lines if "not asked for" in line)
    assert line.startswith("blocks-32 on coco: ") and "Nodle" in line and "prompt set 'coco'" in line
    for number, category in enumerate(content["categories"]):
        category["name"] = f"Class {number}"
    file.write_text(json.dumps(content))
    skipped = world.run([bundle], [DatasetConfig("coco", root, "coco")]).skipped[0][2]
    assert "(Mass, Effusion, Unicorn) has none of the dataset's classes (Class 0, " in skipped


def test_an_engine_that_fails_or_breaks_is_one_failed_cell(world: World, bundle: Path, data: DatasetConfig) -> None:
    second = DatasetConfig("again", data.root, "coco", "coco")
    for error, words in (
        (EngineError("It is broken."), "It is broken."),
        (ZeroDivisionError("oops"), "unexpected ZeroDivisionError: oops"),
    ):
        world.interrupt = (1, error)
        outcome = world.run([bundle], [data, second])
        assert [words in reason for _, _, reason in outcome.failed] == [True, True]
    assert "ZeroDivisionError" in (world.out / "errors" / "blocks-32--coco.txt").read_text()


def test_prepared_images_give_the_same_rows(tmp_path: Path, bundle: Path, data: DatasetConfig) -> None:
    tables = []
    for name, cache in (("a", None), ("b", tmp_path / "cache"), ("c", tmp_path / "cache")):
        (tmp_path / name).mkdir()
        world = World(tmp_path / name)
        assert world.run([bundle], [data], cache).failed == []
        tables.append(world.table())
    assert same(tables[0], tables[1]) and same(tables[0], tables[2])
    assert list((tmp_path / "cache").iterdir())


def test_run_json_tells_where_results_come_from(world: World, bundle: Path, data: DatasetConfig) -> None:
    world.run([bundle], [data])
    text = (world.out / "run.json").read_text()
    run = json.loads(text)
    assert run["machine"]["cores"] >= 1 and run["machine"]["libraries"]["numpy"] == np.__version__
    assert os.uname().nodename not in json.dumps(run["machine"])
    entry = world.entry()
    assert entry["ingredients"]["bundle"] == Bundle.load(bundle).digest
    assert entry["engine"]["backend"] == "numpy" and entry["ingredients"]["decoder"].startswith("cpu ")
    assert (entry["state"], entry["cases"], entry["weights"]) == ("done", 20, "published")


def test_rows_survive_pandas(world: World, bundle: Path, data: DatasetConfig) -> None:
    world.run([bundle], [data])
    frame = world.table().to_pandas()
    assert isinstance(frame, pd.DataFrame) and frame.area.dropna().map(len).eq(101).all()


@pytest.mark.parametrize(
    ("findings", "classes", "pairs"),
    [
        (["Mass", "Edema"], ["Edema", "Nodule", "Mass"], {"Edema": "Edema", "Mass": "Mass"}),
        (["Pneumonia"], ["pneumonia"], {"pneumonia": "Pneumonia"}),
        (["Pneumonia", "PNEUMONIA"], ["pneumonia"], {}),
        (["Pneumonia"], ["pneumonia", "PNEUMONIA"], {}),
        (["mass", "Mass"], ["Mass"], {"Mass": "Mass"}),
        (["Lung Opacity"], ["Opacity"], {}),
    ],
)
def test_classes_meet_findings(findings: list[str], classes: list[str], pairs: dict[str, str]) -> None:
    assert shared_findings(findings, classes) == pairs
    assert list(shared_findings(findings, classes)) == list(pairs)


def test_rows_keep_the_spelling_of_the_dataset(world: World, bundle: Path, data: DatasetConfig) -> None:
    world.run([bundle], [data])
    expected = world.table()
    file = data.root / "annotations.json"
    file.write_text(file.read_text().replace('"Mass"', '"mass"'))
    world.run([bundle], [data])
    assert world.table()["finding"].to_pylist()[:2] == ["mass", "Effusion"]
    assert same(world.table().drop_columns(["finding"]), expected.drop_columns(["finding"]))


def test_a_cell_depends_on_all_that_is_said_of_a_case(tmp_path: Path) -> None:
    case = Case("a", tmp_path / "a.png", {"Mass": 1}, {}, "all", "p")
    others = [
        replace(case, case_id="b"),
        replace(case, patient_id=None),
        replace(case, labels={"Mass": 0}),
        replace(case, labels={"Mass": None}),
        replace(case, regions={"Mass": Boxes(((0, 0, 1, 1),))}),
        replace(case, image=tmp_path / "b.png"),
    ]
    found = [cases_digest([each], tmp_path) for each in (case, *others)]
    (tmp_path / "a.png").write_bytes(b"film")
    found.append(cases_digest([case], tmp_path))
    assert len(set(found)) == len(found)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    (moved / "a.png").write_bytes(b"film")
    os.utime(moved / "a.png", (1, 1))
    assert cases_digest([replace(case, image=moved / "a.png")], moved) == found[-1]
