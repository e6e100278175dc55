"""Names of columns and keys that people write: the message has the one that is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import make_dataset
from xbench_fast.engines.errors import DataError
from xbench_fast.engines.registry import plain_name
from xbench_fast.runtime.data.answers.line_keys import LINE_KEYS
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.attributes.attribute_tables import read_table
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.patients import read_patients
from xbench_fast.runtime.data.datasets.source.column_guess import guessed_columns, renames
from xbench_fast.runtime.data.datasets.source.csv_files import read_csv


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("imgae,calss,x_min,y_min,x_max,y_max", {"image": "imgae", "class": "calss"}),
        ("Image,Class,x_min", {"image": "Image", "class": "Class"}),
        ("image,class,xmin,ymin,xmx,ymax", {"x_min": "xmin", "y_min": "ymin", "x_max": "xmx", "y_max": "ymax"}),
        ("image,class,x_max,y_max", {}),
        ("image,class,a,b,c,d", {}),
    ],
)
def test_a_column_of_another_spelling(header: str, found: dict[str, str]) -> None:
    assert guessed_columns(header.split(",")) == found


def test_only_columns_that_are_not_there_are_renamed() -> None:
    assert renames(["patientId", "Target"], ["patientid", "x", "Target"]) == (
        "did you mean 'patientId' by 'patientid'? rename it"
    )
    assert renames(["x", "y"], ["X", "z"]) == "did you mean 'x' by 'X'? rename it"
    assert renames(["image"], ["image", "imgae"]) == renames(["image"], ["colour"]) == ""
    assert renames(["xmin", "xmax"], ["xminn"]) == "did you mean 'xmin' by 'xminn'? rename it", "a column is taken once"


def test_every_table_says_it(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("Image,PatientId\na,b\n")
    with pytest.raises(DataError, match="did you mean 'image' by 'Image', 'patient_id' by 'PatientId'"):
        read_patients(file)
    with pytest.raises(DataError, match="did you mean 'image' by 'Image'"):
        read_table(file)
    with pytest.raises(
        DataError, match="lacks patientId; it has Image, PatientId; did you mean 'patientId' by 'PatientI"
    ):
        [*read_csv(file, ("patientId",))]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("image", "case"), ("image_id", "case"), ("file_name", "case"), ("filename", "case"), ("id", "case"),
        ("label", "finding"), ("category", "finding"), ("Class", "finding"),
        ("bbox", "boxes"), ("bboxes", "boxes"), ("bbox_2d", "boxes"),
        ("score", "scores"), ("confidence", "scores"), ("answer", "text"), ("response", "text"),
    ],
)  # fmt: skip
def test_a_key_of_another_format_names_the_one_that_is_meant(tmp_path: Path, key: str, meant: str) -> None:
    data = Coco(make_dataset(tmp_path / "data", 4))
    file = tmp_path / "f.jsonl"
    file.write_text(json.dumps({key: "x"}) + "\n")
    with pytest.raises(
        DataError, match=f"'{key}' is not a key of the format: did you mean '{meant}'\\? known are case"
    ):
        read_boxes(file, Questions(data.cases(), data.classes, ("coco",)))
    assert plain_name(key) not in LINE_KEYS
