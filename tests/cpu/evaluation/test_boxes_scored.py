"""Files of predicted boxes from the command line to the report."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb
from box_world import Line, command
from xbench_fast.engines.errors import ConfigError, DataError, RunError
from xbench_fast.metrics_gpu.detection.boxes import BoxLists
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_grid import region_grid
from xbench_fast.runtime.data.datasets.region_shapes import MaskRuns
from xbench_fast.runtime.evaluation.reference.box_files import _count
from xbench_fast.runtime.evaluation.reference.box_models import BoxModel, BoxOptions, split_boxes


def write(path: Path, lines: Sequence[Line], **header: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, [{"xbench_boxes": 1, "frame": "pixels", **header}, *lines])) + "\n")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four images of 1024 x 1024 without files: A has two Masses, B one, C one Nodule; D nothing."""
    folder = tmp_path / "data"
    (folder / "test_data").mkdir(parents=True)
    entries = [
        {"file_name": "a.png", "syms": ["Mass", "Mass"], "boxes": [[100, 100, 300, 300], [600, 600, 800, 800]]},
        {"file_name": "b.png", "syms": ["Mass"], "boxes": [[100, 100, 300, 300]]},
        {"file_name": "c.png", "syms": ["Nodule"], "boxes": [[500, 500, 520, 520]]},
        {"file_name": "d.png", "syms": [], "boxes": []},
    ]
    (folder / "test.json").write_text(json.dumps(entries))
    return folder


def scored(data: Path, *options: object, boxes: Path, name: str = "") -> dict[str, Any]:
    """The entry of report.json about boxes, after `eval` and `report`."""
    model = f"boxes:{name}={boxes}" if name else f"boxes:{boxes}"
    out = data.parent / "run"
    arguments = ["--model", model, "--data", f"chestxdet10={data}", "--dataset", "chestxdet10", "--out", out]
    assert command("eval", *arguments, *options) == 0
    assert command("report", out, "--quiet", "--no-page", "--replicates", 40) == 0
    told: dict[str, Any] = json.loads((out / "report/report.json").read_text())
    (found,) = told["boxes"]
    return {**found, "cells": told["cells"]}


@pytest.mark.parametrize("name", ["scored", "half_missing"])
def test_the_report_has_the_numbers_of_the_reference(reference_files: Path, tmp_path: Path, name: str) -> None:
    source = tmp_path / "data"
    (source / "test_data").mkdir(parents=True)
    shutil.copy(reference_files / "data/annotations/chestxdet10/test.json", source)
    found = scored(source, boxes=reference_files / f"boxes/predictions/{name}.jsonl")
    wanted = json.loads((reference_files / "boxes/reference.json").read_text())[name]
    (cell,) = found["cells"]
    told = {
        "dice": cell["grounding"]["macro"]["dice_fixed"],
        "iou": cell["grounding"]["macro"]["iou_fixed"],
        "pointing": cell["grounding"]["macro"]["pointing"],
        **{key: found[f"{key}_percent"] / 100 for key in ("inside", "dice_native", "iou_native")},
    }
    assert told == pytest.approx({key: wanted[key]["classes"] for key in told}, abs=1e-9)
    for at in ("0.1", "0.25", "0.5"):
        assert found[f"f1_{at}_percent"] / 100 == pytest.approx(wanted[f"f1@{at}"]["classes"], abs=1e-9)
        assert found[f"f1_{at}_low"] < found[f"f1_{at}_percent"] < found[f"f1_{at}_high"]
    assert (found["silent"], found["missing"]) == (wanted["silent"], wanted["missing"])
    assert cell["grounding"]["macro"]["dice_best"] is None and cell["cross_fitted"]["macro"]["dice_best"] is None
    published = json.loads((reference_files / "boxes/expected.json").read_text())["files"][name]
    assert found["published"]["radvlm"]["values"] == pytest.approx(published["radvlm"], abs=1e-6)
    assert found["why_no_ap"] == ("" if name == "scored" else "no scores")


LINES: list[Line] = [
    {"case": "a", "finding": "Mass", "boxes": [[100, 100, 300, 300], [100, 100, 310, 300], [5, 5, 5, 9]]},
    {"case": "c", "finding": "Nodule", "boxes": []},
    {"case": "d", "finding": "Mass", "boxes": [[9, 9, 9, 9]]},
    {"case": "d", "finding": "Nodule", "boxes": []},
]


def test_states_and_counters_are_columns(data: Path, tmp_path: Path) -> None:
    found = scored(data, boxes=write(tmp_path / "mine.jsonl", LINES, model="m", seed=3))
    keys = ("pairs", "answered", "silent", "unparsable", "missing", "illegal", "duplicates", "boxes", "true_boxes")
    assert [found[key] for key in keys] == [3, 1, 1, 0, 1, 1, 1, 2, 4]
    # A box that cannot be kept is an invented one all the same.
    asked = [found[f"negatives_{key}"] for key in ("asked", "with_boxes", "boxes", "not_asked")]
    assert asked == [2, 1, 0, 4 * 10 - 3 - 2]
    assert found["file"]["provenance"] == {"model": "m", "seed": 3}
    with (tmp_path / "run/report/boxes.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert (row["model"], row["missing"], row["illegal"]) == ("boxes:mine", "1", "1")
    text = (tmp_path / "run/report/tables.md").read_text()
    assert "boxes:mine: 33.3% of the pairs have no line; they are scored as silent" in text
    assert all(name in text for name in ("leaves silent pairs out: two regions", "no scores", "what was answered"))


def test_pairs_without_a_line_are_left_out_on_request(data: Path, tmp_path: Path) -> None:
    boxes = write(tmp_path / "mine.jsonl", LINES)
    found = scored(data, "--missing", "leave-out", boxes=boxes, name="part")
    assert (found["model"], found["pairs"], found["missing"]) == ("boxes:part", 2, 0)
    assert [cell["n"] for cell in found["cells"]] == [2]
    assert "they are left out (--missing leave-out)" in (tmp_path / "run/report/tables.md").read_text()
    assert coverage(tmp_path)["boxes:part"] == ["2", "1", "1", "1", "0", "0", "1", "0", "0", "1", "0"]


def test_most_pairs_without_a_line_are_an_error(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = write(tmp_path / "mine.jsonl", [{"case": "a", "finding": "Mass", "boxes": [[100, 100, 300, 300]]}])
    told = "boxes:mine on chestxdet10: 66.7% of the pairs with a region have no line and are scored as silent; answer"
    arguments = ["--model", f"boxes:{boxes}", "--data", f"chestxdet10={data}", "--dataset", "chestxdet10"]
    for again in ("computed", "reused"):
        assert command("eval", *arguments, "--out", tmp_path / "run", "--json", tmp_path / "told.json") == 1
        assert f"Error: {told}" in capsys.readouterr().err
        (cell,) = json.loads((tmp_path / "told.json").read_text())["cells"]
        assert cell["state"] == again and "--missing leave-out" in cell["reason"]
    for more in (["--missing", "leave-out"], ["--model", f"moved:{boxes}", "--missing", "leave-out"]):
        assert command("eval", *arguments, *more, "--out", tmp_path / "other") == 0
    assert (
        "boxes:mine on chestxdet10: warning: 66.7% of the pairs with a region have no line" in capsys.readouterr().out
    )
    assert command("eval", "--model", f"moved:{boxes}", *arguments[2:], "--out", tmp_path / "other") == 0
    with pytest.raises(RunError, match="have no line and are scored as silent"):
        xb.evaluate(dataset="chestxdet10", data=data, out=tmp_path / "run", boxes=boxes, progress=False)


def test_most_answers_that_cannot_be_read_are_an_error(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = json.dumps([{"bbox_2d": [1, 1, 300, 300], "label": "Nodule"}])
    lines = [
        {"case": "a", "finding": "Mass", "text": "effusion(100,300),(300,500)"},
        {"case": "b", "finding": "Mass", "text": named, "dialect": "qwen3vl"},
        {"case": "c", "finding": "Nodule", "text": "(1,2) or (3,4)"},
    ]
    boxes = write(tmp_path / "mine.jsonl", lines, dialect="radvlm")
    arguments = ["--model", f"boxes:{boxes}", "--data", f"chestxdet10={data}", "--dataset", "chestxdet10"]
    told = (
        "boxes:mine on chestxdet10: 2 of 3 answers (66.7%) could not be read; the first is line 2: 'effusion(100,300)"
    )
    for again in ("computed", "reused"):
        assert command("eval", *arguments, "--out", tmp_path / "run", "--json", tmp_path / "told.json") == 1
        assert f"Error: {told}" in capsys.readouterr().err
        (cell,) = json.loads((tmp_path / "told.json").read_text())["cells"]
        assert cell["state"] == again and "boxes check" in cell["reason"]
    assert command("report", tmp_path / "run", "--no-page") == 0
    text = (tmp_path / "run/report/tables.md").read_text()
    assert "boxes:mine: 2 of 3 answers (66.7%) could not be read; they have no boxes" in text
    assert "boxes:mine: 1 of 1 labelled boxes bear the name of another finding than asked; they are scored" in text
    capsys.readouterr()
    moved = ["--model", f"moved:{boxes}", *arguments[2:], "--out", tmp_path / "other"]
    assert command("eval", *moved) == 0 and "warning: 2 of 3 answers (66.7%)" in capsys.readouterr().out
    with pytest.raises(RunError, match="could not be read; the first is line 2"):
        xb.evaluate(dataset="chestxdet10", data=data, out=tmp_path / "run", boxes=boxes, progress=False)


def test_no_table_for_programs_is_empty(data: Path, tmp_path: Path) -> None:
    boxes, report = write(tmp_path / "mine.jsonl", LINES), tmp_path / "run" / "report"
    scored(data, boxes=boxes)
    for name in ("recognition", "paper", "recognition-medklip"):
        (report / f"{name}.csv").write_text("of an earlier report")
    scored(data, boxes=boxes)
    names = {path.stem for path in report.glob("*.csv")}
    assert names == {"auc_differences", "boxes", "classes", "coverage", "differences", "published", "table1"}


def test_rows_of_n_name_the_models_that_have_other_pairs(data: Path, tmp_path: Path) -> None:
    lines = [
        {"case": c, "finding": f, "boxes": [[1, 1, 9, 9]]} for c, f in (("a", "Mass"), ("b", "Mass"), ("c", "Nodule"))
    ]
    whole, part = write(tmp_path / "whole.jsonl", lines), write(tmp_path / "part.jsonl", lines[:2])
    models = [word for model in (whole, part, f"two={whole}") for word in ("--model", f"boxes:{model}")]
    place = ["--data", f"chestxdet10={data}", "--dataset", "chestxdet10", "--out", tmp_path / "run"]
    assert command("eval", "--missing", "leave-out", *models, *place) == 0
    assert command("report", tmp_path / "run", "--quiet", "--no-page", "--replicates", 0) == 0
    text = (tmp_path / "run/report/tables.md").read_text()
    found = [line.split("|")[1].strip() for line in text.split("\n## ")[1].split("\n") if line.startswith("|")]
    assert found[2:6] == ["n pairs", "n pairs, boxes:part", "all-ones", "all-ones, boxes:part"]
    # Two that differ are both named, as neither is the rule.
    command("report", tmp_path / "run", "--quiet", "--no-page", "--model", "boxes:part", "--model", "boxes:two")
    assert all(
        f"| n pairs, boxes:{name} |" in (tmp_path / "run/report/tables.md").read_text() for name in ("part", "two")
    )


COUNTED = ("pairs", "left_out", "answered", "silent", "unparsable", "without_line", "illegal_boxes", "outside_boxes",
           "clipped_boxes", "duplicate_boxes", "hallucinated_boxes")  # fmt: skip


def coverage(folder: Path) -> dict[str, list[str]]:
    """Model -> its counts in coverage.csv."""
    with (folder / "run/report/coverage.csv").open(newline="") as stream:
        return {row["model"]: [row[name] for name in COUNTED] for row in csv.DictReader(stream)}


def test_the_coverage_counts_answers_and_boxes(data: Path, tmp_path: Path) -> None:
    lines: list[Line] = [
        {"case": "a", "finding": "Mass", "boxes": [[100, 100, 300, 300], [100, 100, 300, 310], [2000, 0, 2100, 9]]},
        {"case": "b", "finding": "Mass", "boxes": [[9, 9, 9, 9]]},
        {"case": "d", "finding": "Mass", "boxes": [[1, 1, 90, 1090], [5, 5, 9, 9]]},
        {"case": "d", "finding": "Nodule", "boxes": []},
    ]
    found = scored(data, "--model", "baseline:ones", boxes=write(tmp_path / "mine.jsonl", lines))
    assert found["pairs"] == 3
    # a: answered, one outside, one a duplicate; b: unparsable by its illegal box; c: no line; d: two hallucinated.
    assert coverage(tmp_path)["boxes:mine"] == ["3", "0", "1", "0", "1", "1", "1", "1", "0", "1", "2"]
    assert coverage(tmp_path)["baseline:ones"] == ["3", "0", *[""] * 9]
    text = (tmp_path / "run/report/tables.md").read_text()
    table = text[text.index("## Coverage") :].split("\n## ")[0]
    rows = [[item.strip() for item in line.split("|")] for line in table.split("\n") if line.startswith("|")]
    (mine,) = [dict(zip(rows[0], row, strict=True)) for row in rows if row[1] == "boxes:mine"]
    heads = [f"pairs: {name}" for name in ("answered", "silent", "unparsable", "no line")]
    heads += [f"boxes: {name}" for name in ("illegal", "outside", "clipped", "duplicate", "hallucinated")]
    assert [mine[head] for head in heads] == ["1", "0", "1", "1", "1", "1", "0", "1", "2"]
    shown = xb.load_run(tmp_path / "run").table("coverage")
    (count,) = shown[(shown.model == "boxes:mine") & (shown.metric == "hallucinated_boxes")].value
    assert count == 2
    # Nothing has a score, so a table of recognition would be empty.
    assert "\n## Recognition" not in text
    assert "no table of recognition, as none of 2 results has scores of findings" in table


def test_a_bad_line_stops_or_is_counted(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = write(tmp_path / "mine.jsonl", [*LINES, {"case": "z", "finding": "Mass", "boxes": []}])
    arguments = ["eval", "--model", f"boxes:{boxes}", "--data", f"chestxdet10={data}", "--out", tmp_path / "run"]
    assert command(*arguments) == 1
    assert "line 6" in capsys.readouterr().err
    found = scored(data, "--bad-lines", "count", boxes=boxes)
    assert found["file"]["rejected"] == 1
    assert "1 lines were rejected" in (tmp_path / "run/report/tables.md").read_text()


def test_the_report_shows_the_scorers_that_are_asked(data: Path, tmp_path: Path) -> None:
    scored(data, boxes=write(tmp_path / "mine.jsonl", LINES))
    assert (
        command("report", tmp_path / "run", "--quiet", "--no-page", "--protocol", "afloc", "--protocol", "paper") == 0
    )
    told = json.loads((tmp_path / "run/report/report.json").read_text())
    assert list(told["boxes"][0]["published"]) == ["afloc"] and told["choices"]["protocol"] == "paper"
    assert command("report", tmp_path / "run", "--quiet", "--protocol", "paper", "--protocol", "mavl") == 2
    run = xb.load_run(tmp_path / "run")
    for protocol, shown, counted in ((["rodeo", "paper"], ["rodeo"], "paper"), ("coco", ["coco"], None)):
        folder = xb.report(run, page=False, protocol=protocol, replicates=0)
        told = json.loads((folder / "report.json").read_text())
        assert list(told["boxes"][0]["published"]) == shown and told["choices"]["protocol"] == counted
    folder = xb.report(run, page=False, replicates=0)
    assert len(json.loads((folder / "report.json").read_text())["boxes"][0]["published"]) == 9
    for wrong, said in (
        ("radvml", "did you mean 'radvlm'"),
        (["paper", "mavl"], "one of them"),
        (["coco", 3], "list of texts"),
    ):
        with pytest.raises(ConfigError, match=said):
            xb.report(run, page=False, protocol=wrong)


def test_studies_of_thresholds_leave_boxes_out(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their counts are the same at every level, so a best threshold and a gain of 0 would say nothing."""
    lines = [
        {"case": "a", "finding": "Mass", "boxes": [[100, 100, 300, 300]]},
        {"case": "b", "finding": "Mass", "boxes": []},
        {"case": "c", "finding": "Nodule", "boxes": [[500, 500, 520, 520]]},
    ]
    scored(data, "--missing", "count", boxes=write(data.parent / "mine.jsonl", lines))
    run = data.parent / "run"
    for name in ("thresholds", "calibration"):
        assert command("study", name, run, "--replicates", 40) == 1
        assert "boxes:mine: left out, because boxes have no threshold; evaluate a model" in capsys.readouterr().err
    for name, rows in (("strata", "strata"), ("failures", "classes")):
        assert command("study", name, run, "--replicates", 40) == 0
        found = json.loads((run / "studies" / name / f"{name}.json").read_text())[rows]
        assert all(row["dice_best"] is None and row["tau_best"] is None for row in found)
        assert any(row["dice_fixed"] == 1 for row in found)  # the Nodule
    assert "No overlays of boxes:mine on ChestX-Det10: boxes from a file have no map." in capsys.readouterr().out
    options = ["--data", f"chestxdet10={data}", "--dataset", "chestxdet10", "--out", run]
    assert command("eval", "--model", "baseline:center", *options) == 0
    capsys.readouterr()
    assert command("study", "thresholds", run, "--replicates", 40) == 0
    said = capsys.readouterr().out
    assert "boxes:mine: left out, because boxes have no threshold" in said and "baseline:center" in said


def test_python_takes_files_and_names(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = write(tmp_path / "mine.jsonl", LINES)
    run = xb.evaluate(
        dataset="chestxdet10", data=data, out=tmp_path / "run", boxes={"one": boxes}, missing="leave-out",
        progress=False,
    )  # fmt: skip
    assert run.models == ["boxes:one"] or list(run.models) == ["boxes:one"]
    corners = dict(zip(("x_min", "y_min", "x_max", "y_max"), (0.1, 0.1, 0.3, 0.3), strict=True))
    texts = {name: [{"text": text, "boxes": [corners]} for text in ("a lump", "a tube")] for name in "abc"}
    for name, told in (("phrases", texts), ("named", {"A lump": "Mass"})):
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    capsys.readouterr()
    run = xb.evaluate(
        dataset="chestxdet10", data=data, out=tmp_path / "other", boxes=tmp_path / "phrases.json",
        mapping=tmp_path / "named.json",
    )  # fmt: skip
    told = capsys.readouterr().err
    assert "boxes:phrases on chestxdet10: 3 texts that are neither a finding nor a phrase of the dataset" in told
    table = run.table("coverage", replicates=0).set_index("metric").value
    assert (table["answered"], table["silent"]) == (2, 1)
    with pytest.raises(ConfigError, match="missing"):
        xb.evaluate(dataset="chestxdet10", data=data, boxes=boxes, missing="leave", progress=False)  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError, match="does not exist"):
        xb.evaluate(dataset="chestxdet10", data=data, boxes=tmp_path / "no.jsonl", progress=False)


def test_names_of_files(tmp_path: Path) -> None:
    options = BoxOptions()
    for name in ("x/mine.jsonl", "y/mine.jsonl", "a=b.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    one, two = tmp_path / "x/mine.jsonl", tmp_path / "y/mine.jsonl"
    found, others = split_boxes(["kad", f"boxes:{one}", f"boxes:two={two}", f"boxes:{one}"], options)
    assert ([model.name for model in found], others) == (["boxes:mine", "boxes:two"], ["kad"])
    assert [model.name for model in split_boxes([f"boxes:{tmp_path / 'a=b.jsonl'}"], options)[0]] == ["boxes:a=b"]
    with pytest.raises(ConfigError, match=r"Two files of boxes are called 'boxes:mine'.*boxes:NAME="):
        split_boxes([f"boxes:{one}", f"boxes:{two}"], options)


def test_the_key_is_of_contents_and_options(tmp_path: Path) -> None:
    one, copy = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text("1")
    copy.write_text("1")
    plain = BoxModel(one, "a").description
    assert BoxModel(copy, "b").description == plain
    assert BoxModel(one, "a", BoxOptions("leave-out")).description != plain
    assert BoxModel(one, "a", BoxOptions(read=ReadOptions(count_bad_lines=True))).description != plain
    one.write_text("2")
    assert BoxModel(one, "a").description != plain
    one.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        _ = BoxModel(one, "a").description


def test_a_region_of_pixels_counts_as_the_same_region_of_boxes() -> None:
    rng = np.random.default_rng(0)
    width, height = 300, 211
    low = rng.integers(0, 150, (40, 2)).astype(float)
    corners = np.hstack([low, low + rng.integers(1, 60, (40, 2))])
    shapes = [Boxes((tuple(one), tuple(two))) for one, two in zip(corners, corners[::-1], strict=True)]
    given = BoxLists.of(
        [[] if p % 7 == 0 else [box.tolist()] for p, box in enumerate(corners + rng.normal(0, 9, (40, 4)).clip(-9, 9))]
    )
    sizes = np.tile(np.array([[width, height]]), (40, 1))
    masks = pack_masks(np.stack([region_grid(shape, height, width)[0] for shape in shapes]))
    one = _count(given, shapes, sizes, masks)
    two = _count(given, [MaskRuns.of(shape.mask(height, width)) for shape in shapes], sizes, masks)
    for name in ("area", "overlap", "region", "argmax", "hit"):
        assert np.array_equal(getattr(one.counts, name), getattr(two.counts, name)), name
    assert np.array_equal(one.native.overlap, two.native.overlap) and np.array_equal(one.native.area, two.native.area)
    assert one.truth[0] is not None and two.truth[0] is None
    silent = np.arange(40) % 7 == 0
    assert (one.counts.area[silent, 1:] == 0).all() and not one.counts.hit[silent].any()
    assert (one.counts.area[:, 0] == 224 * 224).all() and (one.counts.overlap[:, 0] == one.counts.region).all()
