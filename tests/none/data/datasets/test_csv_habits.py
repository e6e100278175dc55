"""CSV files as tools and spreadsheets write them: columns, spellings, marks, empty cells and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.csv_boxes import CsvBoxes

CASES = Path(__file__).parents[3] / "cases"
HEADER = "image,class,x_min,y_min,x_max,y_max"


def make(root: Path, text: str, **options: Any) -> CsvBoxes:
    (root / "annotations.csv").write_text(text, encoding="utf-8")
    (root / "images").mkdir(exist_ok=True)
    return CsvBoxes(root, **options)


def kinds(dataset: CsvBoxes) -> list[str]:
    return [note.kind for note in dataset.notes]


def test_classes_that_differ_in_case_are_one() -> None:
    dataset = CsvBoxes(CASES / "csv-classes-differ-in-case")
    assert dataset.classes == ("Mass", "Pleural effusion") and kinds(dataset) == ["spelling"] * 2
    assert all(set(case.labels.values()) == {1} for case in dataset.cases())


def test_a_placeholder_is_no_patient() -> None:
    dataset = CsvBoxes(CASES / "patients-placeholder-id")
    assert {case.patient_id for case in dataset.cases()} == {None} and kinds(dataset) == ["placeholder_patient"]
    assert not audit(dataset).passed


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("filename,label,xmin,ymin,xmax,ymax",
         'image = "filename", class = "label", x_min = "xmin", y_min = "ymin", x_max = "xmax", y_max = "ymax"'),
        ("filename,width,height,class,xmin,ymin,xmax,ymax",
         'image_width = "width", image_height = "height", image = "filename", x_min = "xmin", y_min = "ymin", '
         'x_max = "xmax", y_max = "ymax"'),
        ("Image Index,Finding Label,Bbox [x,y,w,h]",
         'image = "Image Index", class = "Finding Label", x = "Bbox [x", width = "w", height = "h]"'),
    ],
)  # fmt: skip
def test_a_missing_column_names_the_option_and_the_columns_there_are(tmp_path: Path, header: str, columns: str) -> None:
    with pytest.raises(DataError) as caught:
        make(tmp_path, f"{header}\n")
    assert "columns = {" in str(caught.value) and all(each in str(caught.value) for each in columns.split(", "))


def test_the_columns_that_the_message_names_can_be_pasted(tmp_path: Path) -> None:
    import tomllib

    text = "filename,label,xmin,ymin,xmax,ymax\na.png,Mass,1,2,4,6\n"
    with pytest.raises(DataError) as caught:
        make(tmp_path, text)
    line = str(caught.value).partition("such as ")[2].rstrip(".")
    assert make(tmp_path, text, **tomllib.loads(line)).cases()[0].regions["Mass"].mask(9, 9).sum() == 12
    with pytest.raises(DataError, match=r'needs either .*such as columns = \{image = "filename"'):
        make(tmp_path, text, columns={"image": "filename", "class": "label"}).cases()


def test_a_table_with_an_index_and_empty_cells_of_pandas(tmp_path: Path) -> None:
    rows = ",a.png,Mass,1,2,4,6,nan,nan\n1,b.png,NaN,,NaN,nan,,,\n2,c.png,Mass,<NA>,<NA>,<NA>,<NA>,,\n"
    (tmp_path / "labels.csv").write_text("Unnamed: 0,,image,Mass\n0,0,a.png,1\n")
    text = f",{HEADER},image_width,image_height\n{rows}"
    a, b, c = make(tmp_path, text).cases()
    assert a.regions["Mass"].mask(9, 9).sum() == 12 and a.size is None
    assert b.labels == {"Mass": 0} and c.labels == {"Mass": 1} and not c.regions
    assert not make(tmp_path, text, labels="labels.csv").notes


@pytest.mark.parametrize(
    ("cells", "cause"),
    [
        ("1;2;4,5;6", "'4,5', not a number; write a point instead of the decimal comma"),
        ("1;2;1_0;6", "'1_0', not a number"),
    ],
)
def test_numbers_that_are_refused(tmp_path: Path, cells: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"row 2: .*{cause}"):
        make(tmp_path, f"{HEADER.replace(',', ';')}\na.png;Mass;{cells}\n")


def test_marks_and_turns(tmp_path: Path) -> None:
    dataset = make(tmp_path, f"{HEADER},iscrowd,angle\na.png,Mass,1,2,4,6,1,0\na.png,Mass,5,2,7,6,0,0.0\n")
    assert kinds(dataset) == ["crowd"] and "iscrowd: 1 in 1" in dataset.notes[0].text
    with pytest.raises(DataError, match="row 2: the column angle turns the box by 30"):
        make(tmp_path, f"{HEADER},angle\na.png,Mass,1,2,4,6,30\n")


@pytest.mark.parametrize(
    ("cell", "policy", "label"),
    [
        ("-1", "ignore", None), ("-1.0", "positive", 1), ("-1", "negative", 0), ("1.0", "ignore", 1),
        ("0.0", "ignore", 0), ("", "positive", None), ("nan", "positive", None), ("True", "ignore", 1),
    ],
)  # fmt: skip
def test_labels(tmp_path: Path, cell: str, policy: str, label: int | None) -> None:
    (tmp_path / "labels.csv").write_text(f"image,mass\n./b.png,{cell}\n")
    text = f"{HEADER}\na.png,Mass,1,2,4,6\nb.png,,,,,\n"
    dataset = make(tmp_path, text, labels="labels.csv", uncertain=policy)
    assert [case.labels["Mass"] for case in dataset.cases()] == [1, label]


def test_names_of_windows_and_two_forms_of_one_name_are_one_image(tmp_path: Path) -> None:
    (tmp_path / "images/sub").mkdir(parents=True)
    (tmp_path / "images/sub/a.png").write_bytes(b"")
    dataset = make(tmp_path, f"{HEADER}\nsub\\a.png,Mass,1,2,4,6\n./sub/a.png,Mass,5,2,7,6\n")
    (case,) = dataset.cases()
    assert case.image == tmp_path / "images/sub/a.png" and case.rows == (2, 3) and not dataset.notes
    assert case.regions["Mass"].mask(9, 9).sum() == 20


def test_a_split_that_no_row_has(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no row has 'tset' in the column split; it has 'train', 'test'"):
        make(tmp_path, f"{HEADER},split\na.png,Mass,1,2,4,6,train\nb.png,Mass,1,2,4,6,test\n", split="tset")


def test_a_split_takes_no_images_from_the_label_file(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,Mass\na.png,1\nb.png,0\nc.png,0\n")
    text = f"{HEADER},split\na.png,Mass,1,2,4,6,test\nb.png,,,,,,train\n"
    assert [c.case_id for c in make(tmp_path, text, labels="labels.csv", split="test").cases()] == ["a.png"]


@pytest.mark.parametrize("column", ["x_min", "patient_id", "note"])
def test_a_column_twice_is_refused(tmp_path: Path, column: str) -> None:
    more = f"patient_id,note,{column}"
    with pytest.raises(DataError, match="row 1: the header repeats a column: image, class, x_min"):
        make(tmp_path, f"{HEADER},{more}\na.png,Mass,1,2,4,6,p1,n,3\n")


def test_a_class_twice_in_the_label_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,Mass,Mass\na.png,1,0\n")
    with pytest.raises(DataError, match=r"labels\.csv, row 1: the header repeats a column"):
        make(tmp_path, f"{HEADER}\na.png,Mass,1,2,4,6\n", labels="labels.csv")
    (tmp_path / "labels.csv").write_text("Filename,Mass\na.png,1\n")
    with pytest.raises(DataError, match=r'labels\.csv, .*columns = \{image = "Filename"\}'):
        make(tmp_path, f"{HEADER}\na.png,Mass,1,2,4,6\n", labels="labels.csv")


def test_a_label_file_may_leave_out_the_extension(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,Mass\na,1\nb,0\nc,1\n")
    rows = f"{HEADER}\na.png,Mass,1,2,4,6\nb.png,,,,,\nd.png,Mass,1,2,4,6\nd.jpg,Mass,1,2,4,6\n"
    labels = {case.case_id: case.labels["Mass"] for case in make(tmp_path, rows, labels="labels.csv").cases()}
    assert labels == {"a.png": 1, "b.png": 0, "d.png": 1, "d.jpg": 1, "c": 1}
    (tmp_path / "labels.csv").write_text("image,Mass\na,1\na.png,1\n")
    with pytest.raises(DataError, match=r"row 3: .*'a\.png' appears twice"):
        make(tmp_path, rows, labels="labels.csv")


@pytest.mark.parametrize(("first", "second", "patient"), [
    ("nan", "p1", "p1"), ("p1", "NaN", "p1"), ("", "p1", "p1"), ("p1", "", "p1"), ("NaN", "nan", None),
])  # fmt: skip
def test_an_empty_cell_is_no_other_patient(tmp_path: Path, first: str, second: str, patient: str | None) -> None:
    rows = f"a.png,Mass,1,2,4,6,{first}\na.png,Mass,5,2,7,6,{second}\n"
    assert make(tmp_path, f"{HEADER},patient_id\n{rows}").cases()[0].patient_id == patient


@pytest.mark.parametrize("column", ["Rotation", "rotation_deg", "Angle"])
def test_columns_that_turn_a_box_in_other_spellings(tmp_path: Path, column: str) -> None:
    with pytest.raises(DataError, match=f"row 2: the column {column} turns the box by 30"):
        make(tmp_path, f"{HEADER},{column}\na.png,Mass,1,2,4,6,30\n")
    assert make(tmp_path, f"{HEADER},{column}\na.png,Mass,1,2,4,6,0\n").cases()[0].regions


def test_several_classes_in_one_cell_are_refused(tmp_path: Path) -> None:
    rows = f"{HEADER}\na.png,Mass|Cyst,1,2,4,6\nb.png,Mass,1,2,4,6\n"
    with pytest.raises(DataError, match=r"row 2: the class 'Mass\|Cyst' seems to be several; write a row for each"):
        make(tmp_path, rows)
    assert make(tmp_path, rows, classes=["Mass|Cyst"]).cases()[0].labels == {"Mass|Cyst": 1}
