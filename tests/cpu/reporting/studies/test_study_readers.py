"""The study of readers: agreement against irrCAC and painted boxes, and a model beside a reader on the same pairs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from box_world import command
from reader_world import SIDE, VINDR, chexlocalize, vindr
from study_world import answer, study
from xbench_fast.metrics_gpu.sweep.counts import dice_curves
from xbench_fast.runtime.data.datasets.region_shapes import RunText
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.trust.card.making import make_cards

READER = "reader:radiologist"
GIVEN = tuple(part for option in VINDR for part in ("--data-option", option))
FINDINGS = ("Cardiomegaly", "Nodule/Mass", "Pleural effusion")


@pytest.fixture(scope="module")
def goldens(shared: Path) -> Path:
    return shared / "trust"


@pytest.fixture(scope="module")
def small(goldens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the made-up file of three readers."""
    folder = tmp_path_factory.mktemp("small")
    data = vindr(goldens, folder / "data")
    run = folder / "run"
    assert command("eval", "--data", f"vindr={data}", *GIVEN, "--out", run, "--model", READER) == 0
    return run


def box(file: Any, image: str, reader: str, finding: str, corners: list[int]) -> None:
    file.write(f"{image},{reader},{finding},{','.join(map(str, corners))}\n")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images by the same three readers; R3 is silent on every third. A model has a map of each case: a square about
    the middle of the region of two readers, which is right on two of three images."""
    rng = np.random.default_rng(11)
    folder = tmp_path_factory.mktemp("large")
    data, maps = folder / "data", folder / "maps"
    data.mkdir()
    with (data / "annotations_train.csv").open("w") as file:
        file.write("image_id,rad_id,class_name,x_min,y_min,x_max,y_max\n")
        for place in range(24):
            x, y = rng.integers(20, 100, 2).tolist()
            for reader in ("R1", "R2", "R3"):
                if reader == "R3" and place % 3 == 0:
                    file.write(f"i{place:02d},R3,No finding,,,,\n")
                    continue
                a, b = (int(value) for value in rng.integers(0, 12, 2))
                box(file, f"i{place:02d}", reader, FINDINGS[place % 2], [x + a, y + b, x + 60 + a, y + 60 + b])
            for reader in ("R1", "R2", "R3"):
                centre = (112, 112) if place % 3 == 1 else (x + 35, y + 35)
                rows, columns = np.ogrid[:SIDE, :SIDE]
                near = (abs(columns - centre[0]) < 25) & (abs(rows - centre[1]) < 25)
                target = maps / f"i{place:02d}~{reader}" / f"{FINDINGS[place % 2]}.npy"
                target.parent.mkdir(parents=True, exist_ok=True)
                np.save(target, near[::14, ::14].astype(np.float32))
    sizes = "".join(f"i{place:02d},{SIDE},{SIDE}\n" for place in range(24))
    (data / "sizes.csv").write_text(f"image_id,dim0,dim1\n{sizes}")
    run = folder / "run"
    models = ("--model", READER, "--model", f"maps:{maps}", "--model", "baseline:center")
    assert command("eval", "--data", f"vindr={data}", *GIVEN, "--out", run, *models) == 0
    return run


def test_agreement_is_that_of_the_goldens(goldens: Path, small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(capsys, "readers", small, "--replicates", 50)
    found, told = answer(small, "readers"), json.loads((goldens / "readers.json").read_text())["agreement"]
    presence = {row["finding"]: row for row in found["presence"]}
    extent = {row["finding"]: row for row in found["extent"]}
    assert set(presence) == set(told) and set(extent) == {"mean", *told}
    for name, expected in told.items():
        for key in ("gwet_ac1", "fleiss_kappa", "krippendorff_alpha"):
            assert round(presence[name][key], 5) == expected[key]  # irrCAC rounds
        labels = np.array(expected["labels_first_second_third_reader_of_each_film"])
        assert presence[name]["prevalence"] == pytest.approx(labels.mean(), abs=1e-9)
        assert presence[name]["images"] == len(labels) and presence[name]["gwet_ac1_low"] < expected["gwet_ac1"]
        assert extent[name]["dice_both"] == pytest.approx(expected["mean_pairwise_dice_where_both_drew"], abs=1e-6)
        assert extent[name]["dice_both_n"] == expected["pairs"]
        named = labels.sum(axis=1)
        either = int(3 * (named > 1).sum() + 2 * (named == 1).sum())
        assert extent[name]["dice_any_n"] == either
        assert extent[name]["dice_any"] == pytest.approx(extent[name]["dice_both"] * expected["pairs"] / either)
    assert "no reader read 20 images" in (small / "studies/readers/readers.md").read_text()
    assert not found["single_readers"]


def test_readers_point_with_their_largest_box_and_every_box_has_a_centre(small: Path) -> None:
    rows = {row["finding"]: row for row in answer(small, "readers")["pointing"]}
    assert [rows[name]["pointing"] for name in FINDINGS] == [0.6, 0.75, 0.9]
    assert [rows[name]["centres_inside_n"] for name in FINDINGS] == [6, 9, 9]
    assert rows["mean"]["pointing"] == pytest.approx(0.75) and rows["mean"]["centres_inside"] == 1.0


def pairs(run: Path, model: str) -> dict[tuple[str, str], Any]:
    cell = load_run(run).cell(model, "vindr")
    dice, names = dice_curves(cell.counts)[:, 50], zip(cell.image_of, cell.class_of, strict=True)
    return {(cell.case_ids[cell.case_of[i]], cell.findings[c]): dice[p] for p, (i, c) in enumerate(names)}


def test_a_model_is_read_against_the_reader_on_the_same_pairs(large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(capsys, "readers", large, "--replicates", 200)
    found = answer(large, "readers")
    mine, theirs = pairs(large, "maps:maps"), pairs(large, READER)
    assert set(mine) == set(theirs) and len(mine) == 24 * 3 - 2 * 8  # two readers of eight images give one truth
    means = [
        np.mean([np.mean([values[pair] for pair in values if pair[1] == name]) for name in FINDINGS[:2]])
        for values in (mine, theirs)
    ]
    rows = {(row["measure"], row["finding"]): row for row in found["models"]}
    row = rows["dice_fixed", "mean"]
    assert {each["model"] for each in found["models"]} == {"maps:maps"}  # no baseline
    assert (row["n"], row["patients"], row["family"]) == (56, 24, 1)
    assert [row["value"], row["reader_value"]] == pytest.approx(means)
    assert row["difference"] == pytest.approx(means[0] - means[1])
    assert row["share"] == pytest.approx(means[0] / means[1])
    assert row["share_low"] < row["share"] < row["share_high"] and 0 < row["p"] <= 1
    cross = rows["dice_cross_fitted", "mean"]
    assert cross["reader_value"] == row["reader_value"] and cross["value"] >= row["value"] - 1e-9
    assert rows["pointing", "mean"]["share"] is not None and rows["dice_fixed", FINDINGS[0]]["n"] < 56
    text = (large / "studies/readers/readers.md").read_text()
    assert f"maps:maps has {100 * row['share']:.0f} % " in text and "at 0.5, on these 56 pairs of 24 patients" in text
    assert "that does not make it better than radiologists" in text


def test_an_interval_and_a_test_that_disagree_are_said(large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, said = large.parent / "levels", "of 1 difference the interval and p (before the correction) disagree"
    for level, expected in ((0.95, False), (0.97, True)):
        study(capsys, "readers", large, "--replicates", 200, "--level", level, "--out", out)
        assert (said in (out / "readers.md").read_text()) is expected


def test_single_readers_of_twenty_images_have_a_row(large: Path) -> None:
    rows = {row["reader"]: row for row in answer(large, "readers")["single_readers"]}
    assert set(rows) == {"R1", "R2", "R3"} and {row["images"] for row in rows.values()} == {24}
    dice = pairs(large, READER)
    for reader, row in rows.items():
        own = {pair: value for pair, value in dice.items() if pair[0].endswith(reader)}
        assert row["dice_fixed_n"] == len(own)
        each = [np.mean([value for pair, value in own.items() if pair[1] == name]) for name in FINDINGS[:2]]
        assert row["dice_fixed"] == pytest.approx(np.mean(each))
    assert rows["R3"]["dice_fixed"] < rows["R1"]["dice_fixed"]  # silent on every third image


def test_report_and_compare_show_both_and_test_them_on_the_same_pairs(
    large: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("report", large, "--quiet", "--no-page", "--replicates", 200) == 0
    told = json.loads((large / "report/report.json").read_text())
    (difference,) = [
        each for each in told["differences"] if each["field"] == "dice_fixed" and each["dataset"] == "vindr"
    ]
    (row,) = [
        each
        for each in answer(large, "readers")["models"]
        if each["finding"] == "mean" and each["measure"] == "dice_fixed"
    ]
    sign = 1 if difference["first"] == "maps:maps" else -1
    assert sign * difference["difference"] == pytest.approx(row["difference"]) and row["n"] == 56
    assert difference["p"] == pytest.approx(row["p"])
    file = large.parent / "compared.json"
    line = ("compare", large, "--model", "maps:maps", "--model", READER, "--replicates", 50, "--json", file)
    assert command(*line) == 0 and capsys.readouterr().out
    told = json.loads(file.read_text())
    assert f"{READER}: what a reader marked; no model was run, and there is no threshold" in told["stamps"]
    assert "maps:maps" in json.dumps(told["cells"])


def test_few_patients_have_no_quotient_and_no_interval_of_a_coefficient(large: Path, capsys: Any) -> None:
    folder, run = large.parent, large.parent / "few"
    models = ("--model", READER, "--model", f"maps:{folder / 'maps'}", "--limit", 24)
    assert command("eval", "--data", f"vindr={folder / 'data'}", *GIVEN, "--out", run, *models) == 0
    study(capsys, "readers", run, "--replicates", 50)
    found = answer(run, "readers")
    assert {row["share"] for row in found["models"]} == {None} and found["models"][0]["patients"] == 8
    assert "of the Dice of" not in (run / "studies/readers/readers.md").read_text()
    assert {row["gwet_ac1_low"] for row in found["presence"]} == {None}
    ends = [row[f"{name}_any_{end}"] for row in found["extent"] for name in ("dice", "iou") for end in ("low", "high")]
    assert any(end is not None for end in ends) and all(end is None or 0 <= end <= 1 for end in ends)
    assert 1.0 in ends or 0.0 in ends  # Student's interval would reach beyond


def test_cards_have_the_readers_number_beside_line_1(large: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study(capsys, "readers", large, "--replicates", 200)
    rows = {(row["measure"], row["finding"]): row for row in answer(large, "readers")["models"]}
    report = make_report(large, Choices(replicates=200))
    found = {card.model: card for card in make_cards(report, (), pictures=False)}
    beside = [item for item in found["maps:maps"].lines[0].numbers if "radiologist" in item.what]
    for item, measure in zip(beside, ("dice_fixed", "pointing"), strict=True):
        row = rows[measure, "mean"]
        assert (item.value, item.low, item.high) == tuple(row[f"difference{end}"] for end in ("", "_low", "_high"))
        assert (item.pairs, item.patients, item.p, item.word) == (56, 24, row["p"], None)
        assert f"radiologist {100 * row['reader_value']:.1f} %" in item.baseline
    reader = found[READER]
    assert [line.word for line in reader.lines] == ["not applicable"] * 7 + ["not run", "no verdict"]
    assert (
        reader.lines[0].why == "a reader marks regions, and has no map"
        and "a reader is no model" in reader.lines[3].why
    )
    assert "no model" in reader.stamps[0] and reader.head["degenerate maps"] == "none: no maps"
    assert found["maps:maps"].lines[4].why.startswith("the maps are from a folder")
    assert found["baseline:center"].lines[8].word == "not applicable"


def test_masks_are_compared_with_the_regions_as_one_reader(goldens: Path, tmp_path: Path, capsys: Any) -> None:
    data, run = chexlocalize(goldens, tmp_path / "data"), tmp_path / "run"
    assert command("eval", "--data", f"chexlocalize={data}", "--out", run, "--model", READER) == 0
    study(capsys, "readers", run, "--replicates", 50)
    found = answer(run, "readers")
    presence = {row["finding"]: row for row in found["presence"]}
    truth, marks = (json.loads((goldens / f"{name}_segmentations_test.json").read_text()) for name in ("gt", "hb"))
    for name, row in presence.items():
        drawn = [[mask(each[image][name]) for each in (truth, marks)] for image in marks]
        assert row["images"] == 11 and row["observed"] >= np.mean([a == b for a, b in drawn]) - 1e-9
    assert len(presence) == 10 and {row["centres_inside"] for row in found["pointing"]} == {None}
    extent = {row["finding"]: row for row in found["extent"]}
    assert extent["Edema"]["dice_both_n"] == 5 and extent["Edema"]["dice_any_n"] == 7


def mask(told: Any) -> bool:
    return RunText(tuple(told["size"]), told["counts"], "coco").area > 0


def test_a_run_without_a_reader_is_refused(large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(large, run)
    assert command("study", "readers", run, "--model", "maps:maps") == 1
    assert "has no reader's row; evaluate one into the run with --model reader:radiologist" in capsys.readouterr().err
