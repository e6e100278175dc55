"""ChestX-Det10 (docs/published-datasets.md §4, §10 item 4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS

ENTRIES: list[dict[str, Any]] = [
    {
        "file_name": "00123.png",
        "syms": ["Nodule", "Mass", "Nodule"],
        "boxes": [[10, 20, 30, 40], [0, 0, 5, 5], [25, 35, 50, 60]],
    },
    {"file_name": "7.png", "syms": [], "boxes": []},
]


def make(root: Path, entries: Any, **options: Any) -> ChestXDet10:
    (root / "test.json").write_text(entries if isinstance(entries, str) else json.dumps(entries), encoding="utf-8")
    return ChestXDet10(root, **options)


def test_two_boxes_of_one_class_one_of_another_and_an_empty_image(tmp_path: Path) -> None:
    dataset = make(tmp_path, ENTRIES)
    first, second = dataset.cases()
    assert (first.case_id, first.image, first.rows) == ("00123", tmp_path / "test_data/00123.png", (1,))
    assert first.labels == {name: int(name in ("Nodule", "Mass")) for name in dataset.classes}
    assert set(first.regions) == {"Nodule", "Mass"}
    mask = first.regions["Nodule"].mask(1024, 1024)
    assert mask.sum() == 20 * 20 + 25 * 25 - 5 * 5 and mask[20, 10] and mask[59, 49] and not mask[40, 10]
    assert first.regions["Mass"].mask(1024, 1024).sum() == 25
    assert set(second.labels.values()) == {0} and not second.regions
    assert first.patient_id is None and first.size == (1024, 1024) and first.split == "test"
    assert [note.kind for note in dataset.notes] == ["no_images_folder"]


def test_boxes_drawn_on_another_frame(tmp_path: Path) -> None:
    case = make(tmp_path, ENTRIES, frame=512).cases()[0]
    assert case.size == (512, 512) and case.regions["Mass"].mask(512, 512).sum() == 25
    with pytest.raises(DataError, match=r"row 1: the box .* leaves the 48 x 48 frame"):
        make(tmp_path, ENTRIES, frame=48).cases()
    for wrong in (0, True, "512", 1.5):
        with pytest.raises(ConfigError, match="frame"):
            make(tmp_path, ENTRIES, frame=wrong)


def test_an_entry_that_repeats_a_name_is_merged_and_noted(tmp_path: Path) -> None:
    again = {"file_name": " 7.png", "syms": ["Nodule "], "boxes": [[1, 2, 3, 4]]}
    dataset = make(tmp_path, [*ENTRIES, again])
    case = dataset.cases()[1]
    assert case.labels["Nodule"] == 1 and case.rows == (2, 3) and case.regions["Nodule"].mask(1024, 1024).sum() == 4
    assert [(n.kind, n.row) for n in dataset.notes if n.kind != "no_images_folder"] == [("duplicate", 3)]


def test_an_unknown_class_is_noted_and_not_used(tmp_path: Path) -> None:
    dataset = make(tmp_path, [{"file_name": "1.png", "syms": ["Ascites"], "boxes": [[1, 2, 3, 4]]}])
    case = dataset.cases()[0]
    assert not case.regions and set(case.labels.values()) == {0}
    note = next(n for n in dataset.notes if n.kind == "unknown_class")
    assert note.subject == "Ascites" and note.row == 1 and "test.json, row 1" in str(note)


@pytest.mark.parametrize(
    ("entry", "cause"),
    [
        ({"file_name": "1.png", "syms": ["Mass"], "boxes": []}, "equal length"),
        ({"file_name": "1.png", "syms": ["Mass"], "boxes": [[1, 2, 3]]}, "list of 4 numbers"),
        ({"file_name": "1.png", "syms": ["Mass"], "boxes": [[1, 2, "x", 4]]}, "not a number"),
        ({"file_name": "1.png", "syms": ["Mass"], "boxes": [[1, 2, float("nan"), 4]]}, "not a finite number"),
        ({"file_name": "1.png", "syms": ["Mass"], "boxes": [[9, 2, 3, 4]]}, "ends before it begins"),
        ({"file_name": "1.png", "syms": [3], "boxes": [[1, 2, 3, 4]]}, "not a name"),
        ({"syms": [], "boxes": []}, "no file_name"),
        ("1.png", "no file_name"),
        ({"file_name": "../../secret.png", "syms": [], "boxes": []}, "leads out of"),
        ({"file_name": "a/../../b.png", "syms": [], "boxes": []}, "leads out of"),
        ({"file_name": "..\\b.png", "syms": [], "boxes": []}, "leads out of"),
    ],
)
def test_what_does_not_parse_names_file_and_row(tmp_path: Path, entry: Any, cause: str) -> None:
    dataset = make(tmp_path, [ENTRIES[1], entry])
    with pytest.raises(DataError, match=rf"test\.json, row 2: .*{cause}"):
        dataset.cases()


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', "[" * 100_000])
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"test\.json"):
        make(tmp_path, text).cases()


def test_a_byte_order_mark_is_accepted(tmp_path: Path) -> None:
    assert len(make(tmp_path, "\ufeff" + json.dumps(ENTRIES)).cases()) == 2


def test_a_missing_file_folder_or_option_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"annotation file .*train\.json does not exist"):
        ChestXDet10(tmp_path, split="train").cases()
    with pytest.raises(DataError, match="does not exist"):
        ChestXDet10(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="did you mean 'split'"):
        ChestXDet10(tmp_path, splt="test")
    with pytest.raises(ConfigError, match="cannot be 'val': known are test, train"):
        ChestXDet10(tmp_path, split="val")
    with pytest.raises(ConfigError, match="must be a path"):
        ChestXDet10(tmp_path, images=3)


def test_annotations_and_images_may_lie_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    (tmp_path / "boxes.json").write_text(json.dumps(ENTRIES))
    dataset = DATASETS.load("chestxdet10")(tmp_path, annotations="boxes.json", images=tmp_path / "films")
    assert dataset.cases()[1].image == tmp_path / "films/7.png"
    assert dataset.sources() == (tmp_path / "boxes.json",) and not dataset.notes
