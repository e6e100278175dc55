"""What files say of a region beside its coordinates: marks, turns, other forms of a box, and ids in two types."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.note_warnings import REPEATED_NOTES, note_warnings
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.formats.box_keys import share
from xbench_fast.runtime.data.datasets.formats.coco import Coco
from xbench_fast.runtime.data.datasets.formats.cvat import Cvat
from xbench_fast.runtime.data.datasets.formats.region_marks import is_set, mark_of
from xbench_fast.runtime.data.datasets.formats.voc import PascalVoc

BASE: dict[str, Any] = {
    "categories": [{"id": 1, "name": "Mass"}],
    "images": [{"id": 1, "file_name": "a.png", "height": 60, "width": 80}],
    "annotations": [],
}
BOX = {"image_id": 1, "category_id": 1, "bbox": [10, 20, 40, 8]}
SIDES = [[10, 20, 50, 20, 50, 28, 10, 28]]
"""The polygon of that box."""


def coco(root: Path, *annotations: dict[str, Any], options: dict[str, Any] | None = None, **top: Any) -> Coco:
    """A file of one image, whose annotations are `BOX` with these changes."""
    document = copy.deepcopy(BASE) | {"annotations": [BOX | each for each in annotations]} | top
    (root / "annotations.json").write_text(json.dumps(document), encoding="utf-8")
    (root / "images").mkdir(exist_ok=True)
    return Coco(root, **(options or {}))


def area(dataset: Dataset) -> int:
    return int(dataset.cases()[0].regions["Mass"].mask(60, 80).sum())


def texts(dataset: Dataset, kind: str) -> list[str]:
    return [note.text for note in dataset.notes if note.kind == kind]


@pytest.mark.parametrize("value", [1, 1.0, True, "1", "true", "Yes", 2, "0.5"])
def test_values_that_set_a_mark(value: object) -> None:
    assert is_set(value)


@pytest.mark.parametrize("value", [0, 0.0, False, "0", "0.00", "false", "No", "none", "nan", "", None, [], {}, [1]])
def test_values_that_set_no_mark(value: object) -> None:
    assert not is_set(value)


@pytest.mark.parametrize(
    ("keys", "mark"),
    [
        ({"iscrowd": 1}, "iscrowd"), ({"isCrowd": 1}, "iscrowd"), ({"is_crowd": 1}, "iscrowd"),
        ({"ignore": 1}, "ignore"), ({"IsGroupOf": "1"}, "isgroupof"), ({"difficult": "1"}, "difficult"),
        ({"occluded": True}, "occluded"), ({"truncated": 0.3}, "truncated"),
        ({"truncated": 1, "iscrowd": 1}, "iscrowd"), ({"iscrowd": "0", "truncated": 1}, "truncated"),
        ({"iscrowd": "0"}, ""), ({"crowded": 1, "bbox": [1]}, ""),
    ],
)  # fmt: skip
def test_the_mark_of_keys(keys: dict[str, object], mark: str) -> None:
    assert mark_of({}, keys) == mark_of(keys) == mark


def test_marked_regions_are_counted_once_in_one_note(tmp_path: Path) -> None:
    other = {"bbox": [1, 1, 5, 5]}
    dataset = coco(tmp_path, {"iscrowd": 1}, {"iscrowd": 1}, other | {"attributes": {"difficult": True}})
    dataset.cases()
    said = "regions marked iscrowd: 1 in 1 images, difficult: 1 in 1 images; they count as regions"
    assert texts(dataset, "crowd") == [said]
    assert said in note_warnings(dataset.notes, REPEATED_NOTES)["crowd"]


def test_marks_of_voc_and_cvat(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "Annotations").mkdir()
    corners = "<bndbox><xmin>{0}</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    objects = [("difficult", 1), ("truncated", 1), ("occluded", 0)]
    shapes = "".join(
        f"<object><name>Mass</name><{mark}>{value}</{mark}>{corners.format(place)}</object>"
        for place, (mark, value) in enumerate(objects, 1)
    )
    (tmp_path / "Annotations/a.xml").write_text(f"<annotation>{shapes}</annotation>")
    dataset = PascalVoc(tmp_path)
    said = "regions marked difficult: 1 in 1 images, truncated: 1 in 1 images; they count as regions"
    assert texts(dataset, "crowd") == [said]
    inner = '<box label="Mass" xtl="1" ytl="1" xbr="9" ybr="9" occluded="1"/>'
    inner += (
        '<box label="Mass" xtl="2" ytl="1" xbr="9" ybr="9" occluded="0"><attribute name="ignore">true</attribute></box>'
    )
    text = f'<annotations><image name="a.png" width="20" height="20">{inner}</image></annotations>'
    (tmp_path / "annotations.xml").write_text(text)
    said = "regions marked ignore: 1 in 1 images, occluded: 1 in 1 images; they count as regions"
    assert texts(Cvat(tmp_path), "crowd") == [said]


@pytest.mark.parametrize(
    "attributes",
    [
        {"rotation": 90}, {"rotation": "-90.0"}, [{"rotation": 90}], [{"name": "rotation", "value": 270}],
        [{"name": "side", "value": "left"}, {"name": "rotation", "value": 90}],
    ],
)  # fmt: skip
def test_attributes_that_turn_a_box(tmp_path: Path, attributes: Any) -> None:
    mask = coco(tmp_path, {"attributes": attributes}).cases()[0].regions["Mass"].mask(60, 80)
    rows, columns = np.nonzero(mask)
    assert mask.sum() == 320 and (rows.min(), rows.max(), columns.min(), columns.max()) == (4, 43, 26, 33)


@pytest.mark.parametrize(
    "keys",
    [
        {"rotation": 90}, {"Rotation": "0.5"}, {"angle": -1}, {"theta": 0.1}, {"rotation_deg": 30},
        {"attributes": {"angle": 30}}, {"attributes": {"Theta": 30}}, {"attributes": [{"name": "Angle", "value": 3}]},
    ],
)  # fmt: skip
def test_turns_of_an_unknown_unit_are_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=r"row 1: the bbox has the key '(?i:rotation|angle|theta).*write a polygon"):
        coco(tmp_path, keys)


@pytest.mark.parametrize(
    "keys", [{"angle": 0}, {"angle": "0.0"}, {"angle": "acute"}, {"angle": None}, {"angle": True}, {"theta": "nan"}]
)
def test_keys_that_turn_nothing(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert area(coco(tmp_path, keys)) == area(coco(tmp_path, {"attributes": keys})) == 320


def test_a_turn_beside_a_polygon_says_nothing_of_it(tmp_path: Path) -> None:
    turned = {"segmentation": [[10, 20, 50, 25, 48, 30, 8, 25]], "bbox": [8, 20, 42, 10]}
    plain = area(coco(tmp_path, turned))
    for keys in ({"attributes": {"rotation": 30}}, {"angle": 30}):
        dataset = coco(tmp_path, turned | keys)
        assert area(dataset) == plain and not texts(dataset, "disagreement")


def test_the_box_before_a_turn_is_not_compared_with_the_polygon_after_it(tmp_path: Path) -> None:
    """The box of 40 x 8 and the outer box of the same one turned by 45 degrees share a quarter of their area."""
    diamond = [[19, 7, 47, 35, 41, 41, 13, 13]]
    turned = {"segmentation": diamond, "attributes": {"rotation": 45}}
    assert not texts(coco(tmp_path, turned), "disagreement")
    assert len(texts(coco(tmp_path, turned | {"attributes": {}}), "disagreement")) == 1


def test_a_quarter_turn_beside_a_polygon_along_the_sides_is_noted(tmp_path: Path) -> None:
    dataset = coco(tmp_path, {"segmentation": SIDES, "attributes": {"rotation": 90}})
    assert area(dataset) == 41 * 9
    (text,) = texts(dataset, "disagreement")
    assert "attributes.rotation of 'Mass' is 90" in text and "taken as turned already" in text
    for half in (0, 180, 360):
        assert not texts(coco(tmp_path, {"segmentation": SIDES, "attributes": {"rotation": half}}), "disagreement")


@pytest.mark.parametrize(
    ("keys", "options", "cause"),
    [
        ({"bbox_mode": 0}, {}, "x1, y1, x2, y2 in pixels"), ({"bbox_mode": 4}, {}, "a turned box"),
        ({"bbox_mode": 1}, {"boxes": "corners"}, "x, y, width, height in pixels"),
        ({"bbox_mode": "XYXY"}, {}, "'XYXY'"),
        ({"bbox_mode": 3}, {}, "in fractions"), ({"bbox_mode": 2}, {"unit": "fractions"}, "x1, y1"),
        ({"rbbox": [1, 2, 3, 4, 5]}, {}, "'rbbox' is a turned box"), ({"bbox": [1, 2, 3, 4, 30]}, {}, "5 numbers"),
    ],
)  # fmt: skip
def test_boxes_of_another_form_are_refused(
    tmp_path: Path, keys: dict[str, Any], options: dict[str, Any], cause: str
) -> None:
    with pytest.raises(DataError, match=rf"row 1: .*{cause}"):
        coco(tmp_path, keys, options=options)


def test_a_mode_that_the_options_say_too(tmp_path: Path) -> None:
    assert area(coco(tmp_path, {"bbox_mode": 1, "rbbox": []})) == 320
    assert area(coco(tmp_path, {"bbox_mode": 0, "bbox": [10, 20, 50, 28]}, options={"boxes": "corners"})) == 320
    parts, corners = {"bbox_mode": 3, "bbox": [0.5, 0.5, 0.25, 0.5]}, {"bbox_mode": 2, "bbox": [0.5, 0.5, 0.75, 1]}
    assert area(coco(tmp_path, parts, options={"unit": "fractions"})) == 20 * 30
    assert area(coco(tmp_path, corners, options={"unit": "fractions", "boxes": "corners"})) == 20 * 30


@pytest.mark.parametrize(
    ("box", "options", "noted"),
    [
        ([10, 20, 40, 8], {}, False), ([10.6, 20.4, 41, 8], {}, False), ([60, 40, 10, 10], {}, True),
        ([10, 20, 50, 28], {}, True), ([10, 20, 50, 28], {"boxes": "corners"}, False), ([1, 2, 4, 0.8], {}, True),
        ([10, 20, 40], {}, False), (None, {}, False),
    ],
)  # fmt: skip
def test_a_bbox_that_is_not_around_its_segmentation_is_noted(
    tmp_path: Path, box: Any, options: dict[str, Any], noted: bool
) -> None:
    dataset = coco(tmp_path, {"segmentation": SIDES, "bbox": box}, options=options)
    assert area(dataset) == 41 * 9
    assert [text.startswith("bbox and segmentation") for text in texts(dataset, "disagreement")] == [True] * noted


def test_a_thin_polygon_may_miss_its_bbox_by_a_pixel_and_one_in_fractions_may_not(tmp_path: Path) -> None:
    line = {"segmentation": [[10, 20, 50, 20, 50, 20.4, 10, 20.4]], "bbox": [10, 20, 40, 1]}
    assert not texts(coco(tmp_path, line), "disagreement")
    parts = {"segmentation": [[0.1, 0.1, 0.3, 0.1, 0.3, 0.3, 0.1, 0.3]], "bbox": [0.5, 0.5, 0.2, 0.2]}
    assert len(texts(coco(tmp_path, parts, options={"unit": "fractions"}), "disagreement")) == 1


def test_the_share_of_two_boxes() -> None:
    assert share((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3) and share((0, 0, 1, 1), (2, 2, 3, 3)) == 0
    assert share((0, 0, 2, 2), (1, 0, 3, 2), 1) == pytest.approx(12 / 20) and share((1, 1, 1, 1), (1, 1, 1, 1)) == 1


def test_ids_as_numbers_and_as_texts_are_one(tmp_path: Path) -> None:
    assert area(coco(tmp_path, {"category_id": "1", "image_id": "1"})) == 320
    with pytest.raises(DataError, match="row 2: the category 1 'Cyst' is empty or appears twice"):
        coco(tmp_path, categories=[{"id": 1, "name": "Mass"}, {"id": "1", "name": "Cyst"}])
    named = [{"id": "01", "file_name": "a.png"}, {"id": 1, "file_name": "b.png"}]
    assert [case.case_id for case in coco(tmp_path, images=named).cases()] == ["01", "1"]


def test_an_annotation_without_a_category_is_refused_or_makes_its_image_unknown(tmp_path: Path) -> None:
    for given in (None, [1], True):
        with pytest.raises(DataError, match="row 2: the entry of annotations needs image_id and category_id"):
            coco(tmp_path, {}, {"category_id": given})
    dataset = coco(tmp_path, {"category_id": None}, options={"invalid": "skip"})
    assert dataset.cases()[0].labels == {"Mass": None}
    assert "needs image_id and category_id" in note_warnings(dataset.notes, REPEATED_NOTES)["invalid_shape"]


def test_two_used_categories_of_one_name_are_one_class_and_noted(tmp_path: Path) -> None:
    categories = [{"id": 1, "name": "Mass"}, {"id": 2, "name": "Mass"}]
    dataset = coco(tmp_path, {}, {"category_id": 2, "bbox": [60, 40, 3, 3]}, categories=categories)
    assert area(dataset) == 329 and dataset.classes == ("Mass",)
    assert texts(dataset, "spelling") == ["several categories are called 'Mass'; they are one class"]
