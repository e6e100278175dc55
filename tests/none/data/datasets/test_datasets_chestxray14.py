"""NIH ChestX-ray14 boxes (docs/published-datasets.md §6, §10 item 3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.chestxray14 import ChestXray14

BOXES = """Image Index,Finding Label,Bbox [x,y,w,h],,,
00000001_000.png,Infiltrate,10.5,20.5,30.9,40.9
00000001_000.png,Mass,1,2,3,4
00000002_003.png,Pneumonia,100,100,50,60,,
"""
FIRST = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"
HEADERS = (
    f"{FIRST},OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],",
    f"{FIRST},OriginalImageWidth,OriginalImageHeight,OriginalImagePixelSpacing_x,OriginalImagePixelSpacing_y",
)
ENTRIES = """00000001_000.png,Infiltration|Mass|Effusion|Hernia,0,1,58,M,PA,2682,2749,0.143,0.143,
00000002_003.png,Pneumonia,0,2,81,M,PA,2500,2048,0.171,0.171,
00000003_000.png,No Finding,0,3,81,F,PA,2500,2048,0.171,0.171,
"""


def make(
    root: Path, boxes: str = BOXES, entries: str | None = f"{HEADERS[0]}\n{ENTRIES}", **options: Any
) -> ChestXray14:
    (root / "BBox_List_2017.csv").write_text(boxes, encoding="utf-8", newline="")
    if entries is not None:
        (root / "Data_Entry_2017_v2020.csv").write_text(entries, encoding="utf-8", newline="")
    (root / "images").mkdir(exist_ok=True)
    return ChestXray14(root, **options)


@pytest.mark.parametrize("header", HEADERS)
def test_the_nine_cell_header_and_both_entry_files(tmp_path: Path, header: str) -> None:
    dataset = make(tmp_path, entries=f"{header}\n{ENTRIES}")
    first, second = dataset.cases()
    assert (first.case_id, first.patient_id, first.rows, first.size) == (
        "00000001_000",
        "00000001",
        (2, 3),
        (1024, 1024),
    )
    assert set(first.regions) == {"Infiltrate", "Mass"}
    mask = first.regions["Infiltrate"].mask(1024, 1024)
    assert mask.sum() == 30 * 40 and mask[20, 10] and mask[59, 39] and not mask[60, 39]
    # Effusion: labelled without a box, so positive for recognition and no pair for grounding.
    assert {name for name, value in first.labels.items() if value} == {"Infiltrate", "Mass", "Effusion"}
    assert set(first.labels) == set(dataset.classes) and len(dataset.classes) == 8
    assert {name for name, value in second.labels.items() if value} == {"Pneumonia"} and not dataset.notes
    assert audit(dataset).pairs == 3 and "NIH Clinical Center" in dataset.card


def test_without_an_entry_file_a_missing_box_is_unknown(tmp_path: Path) -> None:
    dataset = make(tmp_path, entries=None)
    labels = dataset.cases()[0].labels
    assert labels["Mass"] == 1 and labels["Infiltrate"] == 1 and labels["Effusion"] is None
    assert [n.kind for n in dataset.notes] == ["not_annotated"] and len(dataset.sources()) == 1
    with pytest.raises(DataError, match=r"absent\.csv does not exist"):
        ChestXray14(tmp_path, entries="absent.csv").cases()


def test_the_test_list_adds_films_without_boxes(tmp_path: Path) -> None:
    (tmp_path / "test_list.txt").write_text("00000003_000.png\r\n00000001_000.png\r\n")
    dataset = make(tmp_path, recognition_images="test_list")
    assert [c.case_id for c in dataset.cases()] == ["00000003_000", "00000001_000"]
    assert set(dataset.cases()[0].labels.values()) == {0} and not dataset.cases()[0].regions
    assert [(n.kind, n.subject) for n in dataset.notes] == [("disagreement", "00000002_003")]
    official = dataset.official()
    assert official is not None and official.cases == 25_596 and len(dataset.sources()) == 3


def test_images_in_twelve_folders(tmp_path: Path) -> None:
    for place in ("images_001/images/00000001_000.png", "images_012/images/00000002_003.png"):
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).touch()
    images = [case.image.relative_to(tmp_path).as_posix() for case in make(tmp_path).cases()]
    assert images == ["images_001/images/00000001_000.png", "images_012/images/00000002_003.png"]


def test_what_is_odd_is_noted(tmp_path: Path) -> None:
    more = (
        "00000002_003.png,Pneumonia,100,100,50,60\n00000002_003.png,Hernia,1,1,2,2\n00000002_003.png,Nodule,5,5,0,2\n"
    )
    entries = f"{HEADERS[0]}\n{ENTRIES}".replace("|Hernia", "|Odd")
    dataset = make(tmp_path, BOXES + more, entries)
    assert sorted((n.kind, n.subject) for n in dataset.notes) == [
        ("degenerate", "Nodule"), ("disagreement", "00000002_003"), ("duplicate", "00000002_003"),
        ("unknown_class", "Hernia"), ("unknown_class", "Odd"),
    ]  # fmt: skip
    assert dataset.cases()[1].regions["Pneumonia"].mask(1024, 1024).sum() == 50 * 60


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("00000009_000.png,Mass,1,2,3", "5 cells"),
        ("00000009_000.png,Mass,1,2,3,4,5", "7 cells"),
        ("00000009_000.png,Mass,1,2,x,4", "not a number"),
        ("00000009_000.png,Mass,1,2,-3,4", "negative size"),
        (",Mass,1,2,3,4", "Image Index is empty"),
        ("../9.png,Mass,1,2,3,4", "leads out of"),
    ],
)
def test_a_row_that_does_not_parse_names_file_and_row(tmp_path: Path, row: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"BBox_List_2017\.csv, row 5: .*{cause}"):
        make(tmp_path, BOXES + row + "\n").cases()


def test_headers_of_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"BBox_List_2017\.csv, row 1: the header lacks"):
        make(tmp_path, "a,b,c\n").cases()
    with pytest.raises(DataError, match=r"v2020\.csv, row 1: the header lacks"):
        make(tmp_path, entries="a,b\n").cases()
    with pytest.raises(DataError, match=r"row 3: the labels of '00000002_003' are empty"):
        make(tmp_path, entries=f"{HEADERS[0]}\n00000001_000.png,Mass\n00000002_003.png,\n").cases()
    with pytest.raises(DataError, match="other labels here"):
        make(tmp_path, entries=f"{HEADERS[0]}\n00000001_000.png,Mass\n00000001_000.png,Nodule\n").cases()
