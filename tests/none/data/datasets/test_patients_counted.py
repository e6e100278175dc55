"""Patients that a dataset names, and placeholders in their place (docs/datasets.md §0.1): counted before any number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from make_images import encode
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.data.datasets.attributes.lookup import look_up
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.case_rules import CaseRules
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.checking.patient_counts import count_patients
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.file_rows import Note
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes
from xbench_fast.runtime.data.datasets.patients import is_placeholder
from xbench_fast.runtime.data.datasets.siim import Siim

CASE = Path(__file__).parents[3] / "cases/patients-placeholder-id"


def csv(root: Path, *patients: str) -> CsvBoxes:
    """The case with other patients."""
    (root / "images").symlink_to(CASE / "images")
    head, *rows = (CASE / "annotations.csv").read_text().splitlines()
    rows = [row.removesuffix("nan") + name for row, name in zip(rows, patients, strict=False)]
    (root / "annotations.csv").write_text("\n".join([head, *rows]))
    return CsvBoxes(root)


@pytest.mark.parametrize(
    "name", ["nan", "ANONYMOUS", "None", "xxxx", "-1", "Anonymized^Patient", "<NA>", "Unknown", "?"]
)
def test_a_placeholder_is_no_patient_and_fails_the_audit(tmp_path: Path, name: str) -> None:
    found = audit(csv(tmp_path, *[name] * 12))
    assert (found.patients, found.images_without_patient, found.largest_patient) == (12, 12, "")
    assert not found.passed and found.notes == {"placeholder_patient": 1}
    assert f"'{name}' is given as the patient of 12 images" in found.warnings[0]


@pytest.mark.parametrize("name", ["0", "00000", "PAT", "0.0"])
def test_one_patient_of_all_images_is_told(tmp_path: Path, name: str) -> None:
    found = audit(csv(tmp_path, *[name] * 12))
    assert (found.patients, found.images_without_patient) == (1, 0)
    assert (found.largest_patient, found.largest_patient_images) == (name, 12)
    assert not found.passed and f"the patient '{name}' has 12 of 12 images" in found.warnings[0]


def test_patients_that_are_named_pass(tmp_path: Path) -> None:
    found = audit(csv(tmp_path, *[f"p{n // 2}" for n in range(10)], "", ""))
    assert found.passed and not found.warnings and not found.notes
    assert (found.patients, found.images_without_patient, found.largest_patient_images) == (7, 2, 2)


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["datasets", "check", "x", "--data", f"x={CASE}", "--data-option", "x.reader=csv"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert caught.value.code == 1
    assert "│ patients │ 12 │" in lines and "│ images without a named patient │ 12 │" in lines


def test_what_is_a_placeholder() -> None:
    names = ("", "  ", "NaN", "ANON", "anonymous^patient", "XX", "-1", "-1.0", "n/a", "#N/A", "no_name", "unbekannt")
    assert all(map(is_placeholder, names))
    named = ("0", "00000", "1", "p1", "nancy", "unknown7", "x1", "12-3", "1.2.840." * 9, "Anonymous 7", "a-1")
    assert not any(map(is_placeholder, named))


@pytest.mark.parametrize("value", ["NaN", "null", '"nan"', '"  "'])
def test_a_patient_of_json_that_says_nothing(tmp_path: Path, value: str) -> None:
    (tmp_path / "images").mkdir()
    text = '{"categories": [{"id": 1, "name": "Mass"}], "annotations": [], "images": [%s]}'
    image = f'{{"id": 1, "file_name": "1.png", "patient_id": {value}}}'
    (tmp_path / "annotations.json").write_text(text % image)
    assert Coco(tmp_path).cases()[0].patient_id is None


def test_a_file_of_patients_with_blank_cells_placeholders_and_other_names(tmp_path: Path) -> None:
    entries = [{"file_name": f"{n}.png", "syms": [], "boxes": []} for n in range(1, 7)]
    (tmp_path / "test.json").write_text(json.dumps(entries))
    rows = ["C:\\data\\1.PNG,p1", "./2,p1", "train/3.dcm,", "4.png,nan", "5,Unknown", "6,p2", "6,"]
    (tmp_path / "who.csv").write_text("\n".join(["image,patient_id", *rows]))
    dataset = ChestXDet10(tmp_path, patients="who.csv")
    assert [case.patient_id for case in dataset.cases()] == ["p1", "p1", None, None, None, "p2"]
    kinds = sorted((note.kind, note.subject) for note in dataset.notes if "patient" in note.kind)
    assert kinds == [("placeholder_patient", "Unknown"), ("placeholder_patient", "nan")]


def test_cases_of_one_image_are_one_patient_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "train-rle.csv").write_text("ImageId,EncodedPixels\na,0 3\na,9 3\nb,-1\n")
    (tmp_path / "who.csv").write_text("image,patient_id\na,\nb,nan\n")
    dataset = Siim(tmp_path, unit="row", patients="who.csv")
    first, second, third = dataset.cases()
    assert first.patient_id == second.patient_id == "image a#1" and third.patient_id is None
    counts = count_patients(dataset.cases())
    assert (counts.images, counts.patients, counts.unnamed, counts.most) == (2, 2, 2, 0)


def cases(*told: tuple[str, str | None]) -> list[Case]:
    return [Case(f"{n}", Path(image), {}, {}, "all", patient) for n, (image, patient) in enumerate(told)]


def test_the_sentence_before_an_evaluation() -> None:
    assert count_patients(cases(("a", "p"))).sentence == "1 image of 1 patient"
    assert count_patients(cases(("a", None), ("b", None))).sentence == (
        "2 images of 2 patients: no patient is named, so each image counts as one"
    )
    told = count_patients(cases(("a", "p"), ("b", "p"), ("c", None), ("a", "p"))).sentence
    assert told == "3 images of 2 patients, of which 1 are images without a named patient; most of one patient: 2"


def test_one_patient_of_most_images_is_noted_by_distinct_images() -> None:
    rules, notes = CaseRules("x", ("Mass",), "ignore", 9), list[Note]()
    rules.settle(cases(*[("a", "p")] * 5, ("b", "q"), ("c", "r"), ("d", "s")), notes, Path())
    assert not notes, "one image of four is not most"
    rules.settle(cases(("a", "p"), ("b", "p"), ("c", "p"), ("d", "s")), notes, Path())
    assert [note.kind for note in notes] == ["one_patient"]


def test_attributes_that_are_placeholders_and_a_column_of_row_numbers(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    images = [{"id": n, "file_name": f"s/{n}.png"} for n in range(3)]
    document = {"categories": [{"id": 1, "name": "Mass"}], "annotations": [], "images": images}
    (tmp_path / "annotations.json").write_text(json.dumps(document))
    rows = "0,s\\0.png,ANONYMIZED,F\n1,./s/1.jpg,GE,<NA>\n2,2,n/a,not available\n"
    (tmp_path / "about.csv").write_text(f"Unnamed: 0,image,manufacturer,sex\n{rows}")
    found = look_up(["0", "1", "2"], Coco(tmp_path), tmp_path / "about.csv")
    assert found.cases == ({"sex": "F"}, {"manufacturer": "GE"}, {}) and not found.notes


def test_one_film_under_two_names_is_counted(tmp_path: Path) -> None:
    (tmp_path / "test_data").mkdir()
    films = {name: encode(np.full((9, 12), 40 + (name > 2), np.uint8), "PNG") for name in (1, 2, 3, 4)}
    films[5] = bytes([*films[1][:-1], 0])
    films[6] = films[1]
    for name, data in films.items():
        (tmp_path / f"test_data/{name}.png").write_bytes(data)
    entries = [{"file_name": f"{name}.png", "syms": ["Mass"], "boxes": [[1, 2, 300, 400 + 100 * (name == 4)]]}
               for name in films]  # fmt: skip
    (tmp_path / "test.json").write_text(json.dumps(entries))
    found = audit(ChestXDet10(tmp_path), threads=2)
    assert found.same_content == 3 and found.to_json()["same_content"] == 3
    assert found.same_content_images == (
        "3.png ('3'), 4.png ('4'): one image under 2 names; their annotations differ, so keep one of them",
        "1.png ('1'), 2.png ('2'), 6.png ('6'): one image under 3 names",
    )
    assert "5.png" not in str(found.same_content_images), "of equal length, but not equal"


def test_hidden_files_are_no_files_without_annotation(tmp_path: Path) -> None:
    (tmp_path / "test_data/.ipynb_checkpoints").mkdir(parents=True)
    for name in (".DS_Store", "._1.png", ".ipynb_checkpoints/1-checkpoint.png", "Thumbs.db", "9.png"):
        (tmp_path / f"test_data/{name}").write_bytes(b"x")
    (tmp_path / "test.json").write_text("[]")
    assert audit(ChestXDet10(tmp_path)).unannotated == (str(tmp_path / "test_data/9.png"),)
