"""The answers of a file of boxes, moved to the images of other patients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.evaluation.reference.box_models import BoxModel, BoxOptions, split_boxes

Line = dict[str, Any]
SIZES = [(60, 40), (90, 120), (300, 200), (50, 50)]
CLASSES = ("Mass", "Effusion", "Nodule")


def command(*arguments: object) -> int:
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as caught:
        return int(caught.code or 0)
    return 0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """14 images of several sizes and 6 patients; every one has a Mass, every second an Effusion, two of one patient
    a Nodule. There are no files of images."""
    rng = np.random.default_rng(5)
    images, annotations = [], []
    for index in range(14):
        width, height = SIZES[index % 4]
        image = {"id": f"c{index}", "file_name": f"c{index}.png", "width": width, "height": height}
        images.append({**image, "patient_id": f"p{index // 3 if index < 9 else index % 3}"})
        for category in [1, *[2] * (index % 2 == 0), *[3] * (index in (6, 7))]:
            x, y = rng.integers(0, width // 2), rng.integers(0, height // 2)
            box = [int(x), int(y), int(rng.integers(3, width // 2)), int(rng.integers(3, height // 2))]
            annotations.append({"image_id": f"c{index}", "category_id": category, "bbox": box})
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    categories = [{"id": i, "name": name} for i, name in enumerate(CLASSES, 1)]
    told = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "annotations.json").write_text(json.dumps(told))
    return folder


def pairs_of(data: Path) -> list[tuple[str, str, str, tuple[int, int]]]:
    """(case, finding, patient, size) in the order of the dataset."""
    told = json.loads((data / "annotations.json").read_text())
    has = {(entry["image_id"], CLASSES[entry["category_id"] - 1]) for entry in told["annotations"]}
    return [
        (image["id"], name, image["patient_id"], (image["width"], image["height"]))
        for image in told["images"]
        for name in CLASSES
        if (image["id"], name) in has
    ]


def answers(data: Path, path: Path, without: tuple[str, ...] = ()) -> dict[tuple[str, str], Line]:
    """A file with an answer to each pair; every fifth is silent."""
    rng = np.random.default_rng(8)
    lines: dict[tuple[str, str], Line] = {}
    for place, (case, finding, _, (width, height)) in enumerate(pairs_of(data)):
        low = rng.random((1 + place % 2, 2)) * (width / 2, height / 2)
        boxes = np.hstack([low, low + 1 + rng.random(low.shape) * (width / 3, height / 3)]).tolist()
        if case not in without:
            lines[case, finding] = {"case": case, "finding": finding, "boxes": [] if place % 5 == 4 else boxes}
    path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "pixels"}, *lines.values()])) + "\n")
    return lines


def moved(data: Path, lines: dict[tuple[str, str], Line], path: Path, left_out: bool = False) -> Path:
    """The same as a file of boxes, by a loop over the pairs after each."""
    told = []
    pairs = [pair for pair in pairs_of(data) if not left_out or pair[:2] in lines]
    for case, finding, patient, size in pairs:
        own = [pair for pair in pairs if pair[1] == finding]
        at = [pair[0] for pair in own].index(case)
        for other, _, another, theirs in [*own[at + 1 :], *own[:at]]:
            if another == patient:
                continue
            line = lines.get((other, finding))
            if line is not None:
                scale = np.tile(np.array(size) / theirs, 2)
                told.append({**line, "case": case, "boxes": (np.array(line["boxes"]).reshape(-1, 4) * scale).tolist()})
            break
    path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "pixels"}, *told])) + "\n")
    return path


def rows(run: Path, model: str) -> list[dict[str, Any]]:
    file = json.loads((run / "run.json").read_text())["cells"][f"{model}--coco"]["file"]
    found: list[dict[str, Any]] = pq.read_table(run / file).to_pylist()
    return found


def evaluate(data: Path, *more: object) -> int:
    place = ["--data", f"coco={data}", "--data-option", "coco.reader=coco", "--out", data.parent / "run"]
    return command("eval", *place, *more)


def same(data: Path, finding: set[str]) -> None:
    """The rows of moved:mine are those of boxes:loop, for these findings."""
    for one, two in zip(rows(data.parent / "run", "moved:mine"), rows(data.parent / "run", "boxes:loop"), strict=True):
        if one["finding"] not in finding:
            assert one["area"] is None
            continue
        for name in ("case_id", "finding", "area", "overlap", "argmax", "hit", "region_area"):
            assert one[name] == two[name], (one["case_id"], name)
        assert (one["answer"] is None) == (two["answer"] is None)
        if one["answer"] is not None:
            assert one["answer"]["boxes"] == pytest.approx(two["answer"]["boxes"])
            assert one["answer"]["state"] == two["answer"]["state"]


def test_each_answer_goes_to_the_next_other_patient(data: Path, tmp_path: Path) -> None:
    mine, loop = tmp_path / "mine.jsonl", tmp_path / "loop.jsonl"
    moved(data, answers(data, mine), loop)
    assert evaluate(data, "--model", f"moved:{mine}", "--model", f"boxes:{mine}", "--model", f"boxes:{loop}") == 0
    same(data, {"Mass", "Effusion"})  # both with a Nodule are of one patient
    run = tmp_path / "run"
    assert evaluate(data, "--model", f"moved:{mine}", "--limit", 5, "--out", tmp_path / "few") == 0
    assert rows(tmp_path / "few", "moved:mine") == rows(run, "moved:mine")[:15]
    assert command("report", run, "--quiet", "--no-page", "--replicates", 20) == 0
    text = (run / "report/tables.md").read_text()
    assert "moved:mine: a control, each answer is the one to the image of another patient" in text
    told = json.loads((run / "report/report.json").read_text())
    assert [cell["n"] for cell in told["cells"]] == [21, 23, 23]
    (item,) = [
        item for item in told["differences"]
        if (item["field"], item["first"], item["second"]) == ("pointing", "moved:mine", "boxes:mine")
    ]  # fmt: skip
    assert item["shared"] == 21 and item["p"] is not None


def test_a_control_is_not_ranked(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    answers(data, mine)
    assert evaluate(data, "--model", f"moved:{mine}", "--model", f"boxes:{mine}") == 0
    assert command("report", tmp_path / "run", "--quiet", "--no-page", "--replicates", 0) == 0
    lines = (tmp_path / "run/report/tables.md").read_text().split("\n")
    shown = [line for line in lines if line.startswith(("| moved:mine", "| boxes:mine"))]
    assert len(shown) > 10 and not any("**" in line for line in shown)


def test_pairs_without_a_line_neither_give_nor_get_an_answer_when_left_out(data: Path, tmp_path: Path) -> None:
    mine, loop = tmp_path / "mine.jsonl", tmp_path / "loop.jsonl"
    moved(data, answers(data, mine, without=("c2", "c4")), loop, left_out=True)
    options = ["--missing", "leave-out"]
    assert evaluate(data, *options, "--model", f"moved:{mine}", "--model", f"boxes:{loop}") == 0
    same(data, {"Mass", "Effusion"})
    found = [row for row in rows(tmp_path / "run", "moved:mine") if row["area"] is not None]
    assert len(found) == 23 - 2 - 4  # without the Nodules, and two cases with a Mass and an Effusion each


def test_a_patient_beyond_the_limit_changes_the_key(data: Path, tmp_path: Path, capsys: Any) -> None:
    mine = tmp_path / "mine.jsonl"
    answers(data, mine)
    for patient, said in ((None, ""), (None, "reused"), ("p9", "because this changed: dataset, map")):
        if patient:
            file = data / "annotations.json"
            told = json.loads(file.read_text())
            told["images"][-1]["patient_id"] = patient
            file.write_text(json.dumps(told))
        capsys.readouterr()
        assert evaluate(data, "--model", f"moved:{mine}", "--limit", 5) == 0
        assert said in capsys.readouterr().out


def test_names_of_moved_files(tmp_path: Path) -> None:
    mine = tmp_path / "mine.jsonl"
    mine.write_text("")
    found, others = split_boxes([f"boxes:{mine}", f"moved:{mine}", f"moved:two={mine}"], BoxOptions())
    assert [(model.name, model.moved) for model in found] == [
        ("boxes:mine", False), ("moved:mine", True), ("moved:two", True),
    ]  # fmt: skip
    assert not others and BoxModel(mine, "a", moved=True).description != BoxModel(mine, "a").description
    with pytest.raises(ConfigError, match="as moved:NAME="):
        split_boxes([f"moved:{mine}", f"moved:mine={mine}"], BoxOptions())
