"""One's own boxes in a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes

CORNERS = """image,class,x_min,y_min,x_max,y_max,patient_id,image_width,image_height
a.png,Mass,1,2,4,6,p1,50,40
a.png,Mass,3,2,6,6,p1,50,40
sub/b.png,Effusion,1.9,1.9,3.8,3.8,,,
c.png,,,,,,p2,,
d.png,Mass,,,,,p3,,
"""


def make(root: Path, text: str = CORNERS, **options: Any) -> CsvBoxes:
    (root / "annotations.csv").write_text(text, encoding="utf-8", newline="")
    (root / "images").mkdir(exist_ok=True)
    return CsvBoxes(root, **options)


def test_corners(tmp_path: Path) -> None:
    dataset = make(tmp_path, "\ufeff" + CORNERS.replace("\n", "\r\n"))
    a, b, c, d = dataset.cases()
    assert dataset.classes == ("Effusion", "Mass") and (dataset.name, dataset.title) == ("csv", "csv")
    assert (a.case_id, a.image, a.patient_id, a.size) == ("a.png", tmp_path / "images/a.png", "p1", (40, 50))
    assert a.rows == (2, 3) and a.regions["Mass"].mask(40, 50).sum() == 20 and a.labels == {"Effusion": 0, "Mass": 1}
    assert b.regions["Effusion"].mask(9, 9).sum() == 4 and b.size is None and b.patient_id is None
    assert c.labels == {"Effusion": 0, "Mass": 0} and not c.regions
    assert d.labels == {"Effusion": 0, "Mass": 1} and not d.regions and not dataset.notes
    assert audit(dataset).pairs == 2


def test_sizes_are_truncated_before_they_are_added(tmp_path: Path) -> None:
    dataset = make(tmp_path, "image,class,x,y,width,height\na.png,Mass,1.9,0.9,1.9,2.9\n")
    mask = dataset.cases()[0].regions["Mass"].mask(6, 6)
    assert mask.sum() == 2 and mask[0, 1] and mask[1, 1]


def test_own_column_names_classes_and_split(tmp_path: Path) -> None:
    text = (
        "file,what,x,y,width,height,part\na.png,Mass,1,1,2,2,test\na.png,Cyst,1,1,2,2,test\nb.png,Mass,1,1,2,2,train\n"
    )
    dataset = make(
        tmp_path, text, columns={"image": "file", "class": "what", "split": "part"}, split="test",
        classes=["Nodule", "Mass"], name="mine", title="Mine",
    )  # fmt: skip
    assert [c.case_id for c in dataset.cases()] == ["a.png"] and dataset.cases()[0].split == "test"
    assert dataset.classes == ("Nodule", "Mass") and dataset.cases()[0].labels == {"Nodule": 0, "Mass": 1}
    assert [(n.kind, n.subject, n.row) for n in dataset.notes] == [("unknown_class", "Cyst", 3)]
    assert (dataset.name, dataset.title, dataset.image_folders()) == ("mine", "Mine", ())


def test_image_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,Mass,Odd\na.png,1,0\nc.png,0,1\ne.png,,\n")
    dataset = make(tmp_path, labels="labels.csv")
    labels = {c.case_id: c.labels for c in dataset.cases()}
    assert labels["a.png"] == {"Effusion": None, "Mass": 1} and labels["c.png"] == {"Effusion": None, "Mass": 0}
    assert labels["sub/b.png"] == {"Effusion": 1, "Mass": None} and labels["e.png"] == {"Effusion": None, "Mass": None}
    assert [(n.kind, n.subject) for n in dataset.notes] == [("unknown_class", "Odd")] and len(dataset.sources()) == 2
    for text, cause in (
        ("image,Mass\na.png,0\n", "has it"),
        ("image,Mass\na.png,2\n", "not 0 or 1, -1 for uncertain, or blank"),
        ("image\nb\nb\n", "twice"),
    ):
        (tmp_path / "labels.csv").write_text(text)
        with pytest.raises(DataError, match=rf"labels\.csv, row [23]: .*{cause}"):
            make(tmp_path, labels="labels.csv").cases()


def test_repeated_and_flat_boxes_are_noted(tmp_path: Path) -> None:
    dataset = make(tmp_path, CORNERS + "a.png,Mass,1,2,4,6,p1,50,40\na.png,Effusion,7,7,7,9,,,\n")
    assert {(n.kind, n.row) for n in dataset.notes} == {("duplicate", 7), ("degenerate", 8)}


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("a.png,Mass,1,2,3,,p1,50,40", "not a number"),
        ("a.png,Mass,9,2,3,4,p1,50,40", "ends before it begins"),
        ("a.png,,1,2,3,4,p1,50,40", "a box but no class"),
        (",Mass,1,2,3,4,p1,50,40", "image is empty"),
        ("a.png,Mass,1,2,3,4,p9,50,40", "belongs to the patient 'p9'"),
        ("a.png,Mass,1,2,3,4,p1,51,40", "another size"),
        ("a.png,Mass,1,2,3,4,p1,51,", "not a number"),
        ("a.png,Mass,1,2,3,4,p1,5.5,40", "not a size in whole pixels"),
        ("a.png,Mass,1,2,3", "5 cells"),
        ("../a.png,Mass,1,2,3,4,,,", "leads out of"),
        ("x" * 300 + ".png,Mass,1,2,3,4,,,", "longer than 240"),
        ("ä" * 130 + ".png,Mass,1,2,3,4,,,", "longer than 240"),
        ("x/" * 3000 + "a.png,Mass,1,2,3,4,,,", "longer than 240"),
    ],
)
def test_a_row_that_does_not_parse_names_file_and_row(tmp_path: Path, row: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"annotations\.csv, row 7: .*{cause}"):
        make(tmp_path, CORNERS + row + "\n").cases()


def test_files_and_options_that_cannot_be_used(tmp_path: Path) -> None:
    for text, cause in (
        ("image,class,x_min\na,b,1\n", "needs either x_min, y_min, x_max, y_max or x, y, width, height"),
        ("image,x,y,width,height\n", "the header lacks class"),
        ("image,class,x,y,width,height\n", "names a class, so there is nothing"),
    ):
        with pytest.raises(DataError, match=cause):
            make(tmp_path, text)
    for options, cause in (
        ({"columns": "image"}, "must be a table"),
        ({"columns": {"picture": "file"}}, "names 'picture'"),
        ({"classes": 3}, "must be a list"),
        ({"name": " "}, "must be a text"),
    ):
        with pytest.raises(ConfigError, match=cause):
            make(tmp_path, **options)
    assert DATASETS.load("csv") is CsvBoxes


MS_CXR = """dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split
i-1,Pneumonia,Right basal opacity,files/p1/s5/i-1.jpg,4,16,10,20,60,80,train
i-1,Pneumonia,another opacity,files/p1/s5/i-1.jpg,30,16,10,20,60,80,train
i-2,Cardiomegaly,enlarged,files/p1/s6/i-2.jpg,4,16,10,20,60,80,test
"""


@pytest.mark.parametrize("image", ["path", "dicom_id"])
def test_boxes_as_ms_cxr_has_them(tmp_path: Path, image: str) -> None:
    """Boxes per category; the image by its path, or by its id anywhere below the folder."""
    for place in ("files/p1/s5/i-1.jpg", "files/p1/s6/i-2.jpg"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    columns = {"image": image, "class": "category_name", "width": "w", "height": "h"}
    (tmp_path / "annotations.csv").write_text(MS_CXR)
    dataset = CsvBoxes(tmp_path, columns=columns, images=".")
    first, second = dataset.cases()
    assert first.image == tmp_path / "files/p1/s5/i-1.jpg" and first.size == (80, 60) and not dataset.notes
    assert first.regions["Pneumonia"].mask(80, 60).sum() == 2 * 10 * 20 and second.image.name == "i-2.jpg"
    assert [case.case_id for case in CsvBoxes(tmp_path, columns=columns, images=".", split="test").cases()] == [
        second.case_id
    ]


def test_a_suffix_and_names_that_mean_nothing(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/1_frontal.png").touch()
    (tmp_path / "labels.csv").write_text("image,Mass,No Finding\n1,1,0\n")
    rows = "1,Mass,1,1,3,3\n2,no_finding,,,,\n3,Normal,0,0,1,1\n4,Normal,,,,\n4,Mass,1,1,3,3\n"
    (tmp_path / "annotations.csv").write_text(f"image,class,x_min,y_min,x_max,y_max\n{rows}")
    dataset = CsvBoxes(tmp_path, suffix="_frontal")
    assert dataset.classes == ("Mass",)
    assert [(case.case_id, case.labels["Mass"], bool(case.regions)) for case in dataset.cases()] == [
        ("1", 1, True), ("2", 0, False), ("3", 0, False), ("4", 1, True),
    ]  # fmt: skip
    assert dataset.cases()[0].image == tmp_path / "images/1_frontal.png"
    assert [(note.kind, note.row) for note in dataset.notes] == [("no_finding", 4), ("disagreement", 5)]
    assert {note.kind for note in CsvBoxes(tmp_path, labels="labels.csv").notes} == {"no_finding", "disagreement"}
    assert CsvBoxes(tmp_path, nothing=["clear"]).classes == ("Mass", "Normal", "no_finding")
