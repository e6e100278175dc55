"""RSNA pneumonia (docs/published-datasets.md §1, §10 item 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.rsna import Rsna

HEADER = "patientId,x,y,width,height,Target\n"
ROWS = """0001,10.0,20.0,30.0,40.0,1
0001,100.0,200.0,30.0,40.0,1
0001,115.0,200.0,30.0,40.0,1
0002,,,,,0
0003,1.0,1.0,2.0,2.0,1
"""
CLASSES = """patientId,class
0001,Lung Opacity
0001,Lung Opacity
0001,Lung Opacity
0002,Normal
0003,Lung Opacity
"""


def make(root: Path, rows: str = ROWS, header: str = HEADER, **options: Any) -> Rsna:
    (root / "stage_2_train_labels.csv").write_text(header + rows, encoding="utf-8", newline="")
    (root / "stage_2_train_images").mkdir(exist_ok=True)
    return Rsna(root, **options)


def test_three_rows_make_one_region_of_three_boxes(tmp_path: Path) -> None:
    (tmp_path / "stage_2_detailed_class_info.csv").write_text(CLASSES)
    dataset = make(tmp_path)
    cases = dataset.cases()
    assert [case.case_id for case in cases] == ["0001", "0002", "0003"]
    assert [case.labels for case in cases] == [{"pneumonia": 1}, {"pneumonia": 0}, {"pneumonia": 1}]
    assert cases[0].rows == (2, 3, 4) and cases[0].patient_id == "0001"
    assert cases[0].image == tmp_path / "stage_2_train_images/0001.dcm"
    mask = cases[0].regions["pneumonia"].mask(1024, 1024)
    assert mask.sum() == 30 * 40 + 45 * 40 and mask[20, 10] and mask[59, 39] and mask[200, 144] and not mask[60, 39]
    assert not cases[1].regions and not dataset.notes


def test_white_space_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    header = "\ufeff patientId , x,y,width,height, Target \r\n"
    rows = " 0001 , 10.0,20.0,30.0,40.0, 1 \r\n\r\n0002,NaN,nan,,,0\r\n"
    cases = make(tmp_path, rows, header).cases()
    assert [(c.case_id, c.labels["pneumonia"]) for c in cases] == [("0001", 1), ("0002", 0)]
    assert cases[1].rows == (4,)


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("0009,1,2,3,4,2", "Target is '2'"),
        ("0009,1,2,3,4,", "Target is ''"),
        ("0009,1,2,,4,1", "a box coordinate is '', not a number"),
        ("0009,1,2,x,4,1", "not a number"),
        ("0009,1,2,inf,4,1", "not a finite number"),
        ("0009,1,2,-3,4,1", "negative size"),
        ("0009,1,2,3,4,0", "Target is 0, but the row has a box"),
        ("0001,,,,,0", "Target is 0, but 1 in row 2"),
        ("0009,1,2,3,4", "5 cells"),
        ("0009,1,2,3,4,1,7", "7 cells"),
        (",1,2,3,4,1", "patientId is empty"),
    ],
)
def test_a_row_that_does_not_parse_is_an_error_with_file_and_row(tmp_path: Path, row: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"stage_2_train_labels\.csv, row 7: .*{cause}"):
        make(tmp_path, ROWS + row + "\n").cases()


@pytest.mark.parametrize("row", ["../0009,,,,,0", "a/../../b,,,,,0"])
def test_an_id_that_leads_out_of_the_folder_is_refused(tmp_path: Path, row: str) -> None:
    with pytest.raises(DataError, match=r"row 7: .*leads out of the folder"):
        make(tmp_path, ROWS + row + "\n").cases()


def test_a_header_without_a_needed_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the header lacks Target"):
        make(tmp_path, "", "patientId,x,y,width,height\n").cases()
    with pytest.raises(DataError, match="the header lacks patientId"):
        make(tmp_path, "", "").cases()
    with pytest.raises(DataError, match="repeats a column"):
        make(tmp_path, "", "patientId,x,y,width,height,Target,x\n").cases()
    (tmp_path / "stage_2_train_labels.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        Rsna(tmp_path).cases()


def test_repeated_rows_are_noted_and_change_nothing(tmp_path: Path) -> None:
    dataset = make(tmp_path, ROWS + "0002,,,,,0\n0003,1.0,1.0,2.0,2.0,1\n")
    assert len(dataset.cases()) == 3 and dataset.cases()[2].regions["pneumonia"].mask(9, 9).sum() == 4
    assert [(note.kind, note.row) for note in dataset.notes] == [("duplicate", 7), ("duplicate", 8)]


def test_a_box_without_area_is_noted(tmp_path: Path) -> None:
    dataset = make(tmp_path, "0001,5,6,0,4,1\n")
    assert dataset.cases()[0].regions["pneumonia"].mask(20, 20).sum() == 4
    assert [(note.kind, note.row) for note in dataset.notes] == [("degenerate", 2)]


def test_class_file_that_disagrees_is_noted(tmp_path: Path) -> None:
    text = CLASSES.replace("0002,Normal", "0002,Lung Opacity") + "0003,Normal\n0003,Odd\n"
    (tmp_path / "stage_2_detailed_class_info.csv").write_text(text)
    dataset = make(tmp_path)
    assert len(dataset.cases()) == 3
    assert [(n.kind, n.row) for n in dataset.notes] == [("disagreement", 5), ("disagreement", 7), ("unknown_class", 8)]


def test_a_list_chooses_and_orders_the_images(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text(
        "ID,img_path,boxes,classes\n0003,/a/b.dcm,1;1;2;2,1\n0002,/a/c.dcm,nan,0\n0003,x,,1\n"
    )
    dataset = make(tmp_path, list="test.csv")
    assert [case.case_id for case in dataset.cases()] == ["0003", "0002"]
    assert dataset.split == "list" and dataset.sources() == (dataset.annotations, tmp_path / "test.csv")
    assert [(note.kind, note.row) for note in dataset.notes] == [("duplicate", 4)]


def test_listed_images_without_a_label_stay_as_unknown(tmp_path: Path) -> None:
    (tmp_path / "test.csv").write_text("ID,classes\n0001,0\n7777,1\n")
    dataset = make(tmp_path, list="test.csv")
    assert [case.labels["pneumonia"] for case in dataset.cases()] == [1, None]
    assert [(note.kind, note.row) for note in dataset.notes] == [("disagreement", 2), ("not_annotated", 3)]


def test_split_list_needs_a_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="list=FILE"):
        make(tmp_path, split="list")


def test_images_converted_to_png_are_found(tmp_path: Path) -> None:
    (tmp_path / "stage_2_train_images").mkdir()
    (tmp_path / "stage_2_train_images/0002.png").touch()
    assert [case.image.name for case in make(tmp_path).cases()] == ["0001.dcm", "0002.png", "0003.dcm"]


def test_images_in_the_original_tree_are_found_by_the_lists_path(tmp_path: Path) -> None:
    (tmp_path / "mdai/1.2/3.4").mkdir(parents=True)
    (tmp_path / "mdai/1.2/3.4/5.6.dcm").touch()
    rows = (
        "ID,img_path,classes\n0001,/elsewhere/mdai/1.2/3.4/5.6.dcm,1\n0002,/elsewhere/mdai/1.2/3.4/7.8.dcm,0\n0003,,1\n"
    )
    (tmp_path / "test.csv").write_text(rows)
    dataset = make(tmp_path, list="test.csv", split="paper", images="mdai")
    images = [case.image.relative_to(tmp_path).as_posix() for case in dataset.cases()]
    assert images == ["mdai/1.2/3.4/5.6.dcm", "mdai/0002.dcm", "mdai/0003.dcm"] and dataset.split == "paper"
    (tmp_path / "test.csv").write_text("ID,img_path\n0001,a/../b.dcm\n")
    with pytest.raises(DataError, match="leads out of the folder"):
        make(tmp_path, list="test.csv").cases()
