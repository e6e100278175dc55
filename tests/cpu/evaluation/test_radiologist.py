"""A radiologist as a row: CheXlocalize's human benchmark, by ours and the authors' rules, against the authors' code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from box_world import command
from reader_world import change, chexlocalize, runs
from xbench_fast.runtime.reporting.native_tables import load_native, native_scores
from xbench_fast.runtime.results.load_rows import load_run

FIRST = "patient90000_study1_view1_frontal"
ABSENT = "patient90011_study1_view1_frontal"


@pytest.fixture(scope="module")
def goldens(shared: Path) -> Path:
    return shared / "trust"


@pytest.fixture
def data(goldens: Path, tmp_path: Path) -> Path:
    return chexlocalize(goldens, tmp_path / "data")


def run(data: Path, *more: object, model: str = "reader:radiologist") -> tuple[int, Path]:
    out = data.parent / "run"
    given = ("--data", f"chexlocalize={data}", "--dataset", "chexlocalize", "--out", out)
    return command("eval", *given, "--model", model, *more), out


def hit_rates(out: Path) -> dict[str, tuple[int, float]]:
    cell = load_run(out).cell("reader:radiologist", "chexlocalize")
    each = {name: cell.counts.hit[cell.class_of == place] for place, name in enumerate(cell.findings)}
    return {name: (len(hits), float(hits.mean())) for name, hits in each.items() if len(hits)}


def test_the_numbers_are_those_of_the_authors_and_ours_stand_beside_them(goldens: Path, data: Path) -> None:
    status, out = run(data, "--protocol", "chexlocalize")
    assert status == 0
    told = json.loads((goldens / "human.json").read_text())["tasks"]
    rows = load_native(load_run(out), "reader:radiologist", "chexlocalize")
    assert rows is not None
    only, every = ({s.name: s for s in native_scores(rows, true_positives_only=o)} for o in (True, False))
    ours = hit_rates(out)
    assert len(told) == 10 and set(told) == set(ours)
    for name, expected in told.items():
        assert only[name].n == ours[name][0] == expected["n_with_region"]
        assert only[name].counted == expected["n_true_positive"]
        assert only[name].drawn == pytest.approx(expected["iou_true_positive_only"], abs=1e-9)
        assert every[name].drawn == pytest.approx(expected["iou_pairs_with_region_silent_is_0"], abs=1e-9)
        assert only[name].hit == pytest.approx(expected["hit_any_point"], abs=1e-9)
        assert ours[name][1] == pytest.approx(expected["hit_first_point"], abs=1e-9)
        assert [getattr(only[name], key) for key in ("otsu", "tuned", "best", "best_tau")] == [None] * 4


def test_a_report_has_the_row_and_no_best_threshold(data: Path) -> None:
    assert (
        run(data, "--protocol", "chexlocalize")[0] == run(data, "--protocol", "chexlocalize", model="baseline:ones")[0]
    )
    out = data.parent / "run"
    assert command("report", out, "--quiet", "--no-page", "--replicates", 50) == 0
    text = (out / "report/tables.md").read_text()
    assert "reader:radiologist: what a radiologist marked, no model" in text
    assert "boxes from a file" not in text and "Hit of a reader: any of the points lies in the region" in text
    native = next(line for line in text.splitlines() if line.startswith("| reader:radiologist | Edema |"))
    cells = [cell.strip() for cell in native.strip("|").split("|")]
    assert cells[3] == "100.00" and cells[6] == "61.33" and cells[7:12] == ["-"] * 5
    assert cells[12] == "61.33" and cells[13:] == ["-"] * 3
    told = json.loads((out / "report/report.json").read_text())
    (found,) = told["boxes"]
    assert found["negatives_asked"] == 83 and found["negatives_with_boxes"] is None  # masks, not boxes
    assert found["model"] == "reader:radiologist" and found["missing"] == 6 and found["file"]["reader"] == "radiologist"


def test_without_a_reader_the_table_is_as_before(data: Path) -> None:
    assert run(data, "--protocol", "chexlocalize", model="baseline:center")[0] == 0
    out = data.parent / "run"
    assert command("report", out, "--quiet", "--no-page", "--replicates", 0) == 0
    text = (out / "report/tables.md").read_text()
    assert "true positives: Otsu" in text and "drawn |" not in text and "Hit of a reader" not in text


def test_an_image_that_the_files_lack_is_silent_or_left_out(data: Path) -> None:
    counted, out = run(data)
    rows = load_run(out).cell("reader:radiologist", "chexlocalize")
    of_absent = [p for p in range(len(rows.counts)) if rows.case_ids[rows.case_of[rows.image_of[p]]] == ABSENT]
    assert counted == 0 and len(of_absent) == 6
    assert not rows.counts.hit[of_absent].any() and not rows.counts.area[of_absent][:, 1:].any()
    assert run(data, "--missing", "leave-out")[0] == 0
    fewer = load_run(out).cell("reader:radiologist", "chexlocalize")
    assert len(fewer.counts) == len(rows.counts) - 6


def test_the_first_point_is_the_one_on_the_grid(data: Path) -> None:
    rows = load_run(run(data)[1]).cell("reader:radiologist", "chexlocalize")
    place = rows.findings.index("Edema")
    assert rows.counts.argmax[rows.class_of == place][0] == 43 * 224 + 88  # of (39, 23)


def test_a_reader_who_drew_elsewhere_overlaps_nothing(data: Path) -> None:
    home = data / "CheXlocalize"
    mask = json.loads((home / "gt_segmentations_test.json").read_text())[FIRST]["Edema"]
    height, width = mask["size"]
    change(
        home / "hb_segmentations_test.json",
        FIRST,
        "Edema",
        {"size": mask["size"], "counts": runs(0, 4, height * width - 4)},
    )
    change(home / "hb_salient_pt_test.json", FIRST, "Edema", [[0, 0]])
    status, out = run(data, "--protocol", "chexlocalize")
    rows = load_native(load_run(out), "reader:radiologist", "chexlocalize")
    assert status == 0 and rows is not None
    place = next(p for p in range(len(rows.region)) if rows.findings[rows.class_of[p]] == "Edema")
    assert (rows.area[place, 50], rows.overlap[place, 50], bool(rows.hit[place])) == (4, 0, False)


@pytest.mark.parametrize(
    ("file", "value", "words"),
    [
        ("hb_segmentations", {"size": [120, 100], "counts": "P!g"}, "a character that does not belong there"),
        ("hb_segmentations", {"size": [120, 100], "counts": "Pg;Pg;"}, "does not fit its grid of 120 x 100"),
        ("hb_segmentations", {"size": [121, 100], "counts": "Pg;"}, "is 121 x 100, other masks of the image are not"),
        ("hb_segmentations", [1, 2], "is not an object with size and counts"),
        ("hb_salient_pt", [[500, 10]], "the point (500, 10)"),
        ("hb_salient_pt", [[10, 120]], "lies outside the image of 100 x 120 pixels"),
        ("hb_salient_pt", [[-1, 10]], "the point (-1, 10)"),
        ("hb_salient_pt", [[10]], "a point of"),
        ("hb_salient_pt", {"x": 1}, "is not a list of points"),
    ],
)
def test_a_mark_that_cannot_be_is_named(data: Path, capsys: Any, file: str, value: Any, words: str) -> None:
    change(data / "CheXlocalize" / f"{file}_test.json", FIRST, "Edema", value)
    assert run(data)[0] == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"{file}_test.json" in said and FIRST in said and "Edema" in said and words in said


def test_masks_of_another_size_than_the_regions_are_named(data: Path, capsys: Any) -> None:
    file = data / "CheXlocalize" / "hb_segmentations_test.json"
    told = json.loads(file.read_text())
    told[FIRST] = {name: {"size": [60, 50], "counts": runs(3000)} for name in told[FIRST]}
    file.write_text(json.dumps(told))
    assert run(data)[0] == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"the masks of '{FIRST}' are 60 x 50, and its regions 120 x 100" in said


def test_an_unknown_finding_or_image_is_said(data: Path, capsys: Any) -> None:
    home = data / "CheXlocalize"
    change(home / "hb_salient_pt_test.json", FIRST, "Oedema", [[1, 1]])
    file = home / "hb_segmentations_test.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "patient1_study1_view1_frontal": told[FIRST]}))
    assert run(data)[0] == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"'{FIRST}': 'Oedema' is not one of the 13 findings; not used" in said
    assert "images that the dataset does not have, not used: 1, such as 'patient1_study1_view1_frontal'" in said


def test_a_missing_file_is_named(data: Path, capsys: Any) -> None:
    (data / "CheXlocalize" / "hb_salient_pt_test.json").unlink()
    assert run(data)[0] == 1
    assert "the human benchmark needs the file" in capsys.readouterr().out
    elsewhere = data / "points.json"
    elsewhere.write_text("{}")
    assert run(data, "--data-option", "chexlocalize.reader_points=points.json")[0] == 0


def test_marks_that_change_are_computed_again(data: Path, capsys: Any) -> None:
    assert run(data)[0] == 0
    change(data / "CheXlocalize" / "hb_salient_pt_test.json", FIRST, "Edema", None)
    capsys.readouterr()
    assert run(data)[0] == 0
    assert "computed again, because this changed: map" in capsys.readouterr().out
    assert run(data)[0] == 0
    assert "1 of them before" in capsys.readouterr().out
