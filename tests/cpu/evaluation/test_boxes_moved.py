"""The answers of a file of boxes, moved to the images of other patients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from box_world import Line, answers, command, evaluate, make_box_data, pairs_of, rows
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.evaluation.reference.box_models import BoxModel, BoxOptions, split_boxes


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_box_data(tmp_path / "data")


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
    assert command("report", run, "--quiet", "--no-page", "--replicates", 40) == 0
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


def test_answers_of_one_patient_cannot_move(data: Path, tmp_path: Path, capsys: Any) -> None:
    mine, file = tmp_path / "mine.jsonl", data / "annotations.json"
    answers(data, mine)
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "images": [{**image, "patient_id": "p"} for image in told["images"]]}))
    assert evaluate(data, "--model", f"moved:{mine}") == 1
    assert "moved:mine on coco: skipped, no finding has answers of two patients" in capsys.readouterr().out


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
