"""Three readers of VinDr's training images, each left out in turn, against counts that were made by painting boxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from box_world import command
from reader_world import VINDR, vindr
from xbench_fast.metrics_gpu.sweep.counts import dice_curves
from xbench_fast.runtime.data.datasets.vindr import Vindr
from xbench_fast.runtime.results.load_rows import load_run


@pytest.fixture(scope="module")
def goldens(reference_files: Path) -> Path:
    return reference_files / "trust"


@pytest.fixture
def data(goldens: Path, tmp_path: Path) -> Path:
    return vindr(goldens, tmp_path / "data")


def run(data: Path, *more: object, model: str = "reader:radiologist", out: str = "run") -> tuple[int, Path]:
    given = [part for option in VINDR for part in ("--data-option", option)]
    path = data.parent / out
    return command(
        "eval", "--data", f"vindr={data}", "--dataset", "vindr", *given, "--out", path, "--model", model, *more
    ), path


def opened(data: Path, **more: object) -> Vindr:
    return Vindr(data, split="train", readers="leave-one-out", sizes="sizes.csv", **more)


def test_the_counts_are_those_of_painted_boxes(goldens: Path, data: Path) -> None:
    status, out = run(data)
    assert status == 0
    cell = load_run(out).cell("reader:radiologist", "vindr")
    expected = {
        (f"{row['image']}~{row['reader']}", row["finding"]): row
        for row in json.loads((goldens / "readers.json").read_text())["rows"]
    }
    pairs = [
        (cell.case_ids[cell.case_of[i]], cell.findings[c]) for i, c in zip(cell.image_of, cell.class_of, strict=True)
    ]
    assert len(pairs) == len(expected) and set(pairs) == set(expected)
    dice = dice_curves(cell.counts)
    for place, pair in enumerate(pairs):
        row = expected[pair]
        for name in ("region", "area", "overlap"):
            counted = getattr(cell.counts, name)[place]
            assert (counted if name == "region" else counted[50]) == row[name]
        assert dice[place, 50] == pytest.approx(row["dice"], abs=1e-6)
        assert bool(cell.counts.hit[place]) is row["hit_centre_of_largest_box"]


def test_truth_is_what_both_others_name_and_the_image_is_the_patient(data: Path) -> None:
    cases = {case.case_id: case for case in opened(data).cases()}
    assert len(cases) == 3 * 14
    without_8 = cases["img00~R8"]
    assert list(without_8.regions) == ["Nodule/Mass"]
    assert [without_8.labels[name] for name in ("Nodule/Mass", "Cardiomegaly")] == [1, 0]
    assert {cases[f"img00~R{reader}"].patient for reader in (8, 9, 10)} == {"image img00"}
    assert not any(cases["img03~R8"].labels.values())


def test_the_option_patients_names_them(data: Path, capsys: Any) -> None:
    names = [f"img{place:02d}" for place in range(14)]
    (data / "who.csv").write_text("\n".join(["image_id,patient_id", *(f"{name},p{name[3]}" for name in names)]))
    assert {case.patient for case in opened(data, patients="who.csv").cases()} == {"p0", "p1"}
    assert run(data)[0] == 0
    said = capsys.readouterr().out
    assert "the three cases of an image count as one patient" in said and "entries name the image" not in said
    assert run(data, "--data-option", "vindr.patients=who.csv")[0] == 0
    assert "count as one patient" not in capsys.readouterr().out


def test_the_largest_box_points_whatever_its_place_in_the_file(data: Path) -> None:
    file = data / "annotations_train.csv"
    lines = file.read_text().splitlines()
    small = "img05,R8,Pleural effusion,200,200,210,210"
    at = next(place for place, line in enumerate(lines) if line.startswith("img05,R8,"))
    file.write_text("\n".join([*lines[:at], small, *lines[at:]]))
    cell = load_run(run(data)[1]).cell("reader:radiologist", "vindr")
    pairs = [
        (cell.case_ids[cell.case_of[i]], cell.findings[c]) for i, c in zip(cell.image_of, cell.class_of, strict=True)
    ]
    assert cell.counts.hit[pairs.index(("img05~R8", "Pleural effusion"))]


def test_images_of_other_numbers_of_readers_are_noted(data: Path) -> None:
    file = data / "annotations_train.csv"
    file.write_text("\n".join(line for line in file.read_text().splitlines() if not line.startswith("img03,R12")))
    dataset = opened(data)
    assert len(dataset.cases()) == 3 * 13
    (note,) = [note for note in dataset.notes if note.kind == "other_readers"]
    assert note.subject == "img03" and str(note.text) == "'img03' was read by 2 readers, not by 3; not used"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["split=test", "readers=leave-one-out"],
            "its test set is a consensus without single readers; add split=train",
        ),
        (["split=train", "readers=leave-one"], "did you mean 'leave-one-out'?"),
        (["split=train"], "its readers; add --data-option vindr.readers=leave-one-out"),
    ],
)
def test_what_does_not_fit_is_said(data: Path, capsys: Any, options: list[str], words: str) -> None:
    given = [part for option in (*options, "sizes=sizes.csv") for part in ("--data-option", f"vindr.{option}")]
    out = data.parent / "other"
    line = (
        "eval",
        "--data",
        f"vindr={data}",
        "--dataset",
        "vindr",
        *given,
        "--out",
        out,
        "--model",
        "reader:radiologist",
    )
    assert command(*line) in (1, 2)
    said = capsys.readouterr()
    assert words in " ".join((said.out + said.err).split())


def test_shards_and_a_limit_have_the_rows_of_one_piece(data: Path) -> None:
    _, whole = run(data)
    for shard in ("1/2", "2/2"):
        assert run(data, "--shard", shard, "--chunk", 16, out=f"part{shard[0]}")[0] == 0
    parts = [data.parent / f"part{place}" / f"shard-{place}-of-2" for place in (1, 2)]
    assert command("merge", *parts, "--out", data.parent / "both") == 0
    one, other = (load_run(path).table("reader:radiologist", "vindr") for path in (whole, data.parent / "both"))
    assert one.equals(other)
    assert run(data, "--limit", 6, out="few")[0] == 0
    few = load_run(data.parent / "few").table("reader:radiologist", "vindr")
    assert few.equals(one.slice(0, few.num_rows)) and few.num_rows == 6 * 22
