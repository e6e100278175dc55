"""Datasets in COCO's JSON form."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.formats.coco import Coco

DOCUMENT: dict[str, Any] = {
    "categories": [{"id": 5, "name": "Disc "}, {"id": 2, "name": "Bar"}],
    "images": [
        {"id": 1, "file_name": "a.png", "height": 10, "width": 12, "patient_id": 77},
        {"id": 2, "file_name": "sub/b.png", "labels": {"Bar": 1, "Disc": None}},
        {"id": "x", "file_name": "c.png"},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 5, "bbox": [1, 2, 3, 4]},
        {"id": 2, "image_id": 1, "category_id": 5, "segmentation": [[6, 6, 8, 6, 8, 8, 6, 8]], "bbox": [6, 6, 2, 2]},
        {"id": 3, "image_id": 1, "category_id": 2, "segmentation": {"size": [10, 12], "counts": [11, 2, 107]}},
    ],
}


def make(root: Path, document: Any = DOCUMENT, **options: Any) -> Coco:
    (root / "annotations.json").write_text(json.dumps(document), encoding="utf-8")
    (root / "images").mkdir(exist_ok=True)
    return Coco(root, **options)


def changed(*path: Any, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return document


def test_boxes_polygons_and_run_lengths(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    first, second, third = dataset.cases()
    assert dataset.classes == ("Disc", "Bar") and (dataset.name, dataset.title) == ("coco", "coco")
    assert (first.case_id, first.patient_id, first.size) == ("1", "77", (10, 12))
    expected = np.zeros((10, 12), bool)
    expected[2:6, 1:4] = True
    expected[6:9, 6:9] = True
    np.testing.assert_array_equal(first.regions["Disc"].mask(10, 12), expected)
    bar = first.regions["Bar"].mask(10, 12)
    assert bar.sum() == 2 and bar[1, 1] and bar[2, 1]
    assert first.labels == {"Disc": 1, "Bar": 1}
    assert second.labels == {"Disc": None, "Bar": 1} and second.size is None and not second.regions
    assert second.image == tmp_path / "images/sub/b.png" and second.patient_id is None
    assert third.labels == {"Disc": 0, "Bar": 0} and third.case_id == "x"
    assert not dataset.notes


def test_name_title_and_split_are_free(tmp_path: Path) -> None:
    dataset = make(tmp_path, name="phantoms", split="demo")
    assert (dataset.name, dataset.title) == ("phantoms", "phantoms") and dataset.cases()[0].split == "demo"
    with pytest.raises(ConfigError, match="must be a text"):
        make(tmp_path, name=3)


def test_an_annotated_class_missing_from_labels_is_positive_and_others_unknown(tmp_path: Path) -> None:
    dataset = make(tmp_path, changed("images", 0, "labels", value={"Rib": 1}))
    assert dataset.cases()[0].labels == {"Disc": 1, "Bar": 1}
    assert [(note.kind, note.subject) for note in dataset.notes] == [("unknown_class", "Rib")]
    dataset = make(tmp_path, changed("images", 2, "labels", value={}))
    assert dataset.cases()[2].labels == {"Disc": None, "Bar": None}


def test_an_annotation_of_an_unknown_category_is_noted(tmp_path: Path) -> None:
    dataset = make(tmp_path, changed("annotations", 0, "category_id", value=9))
    assert dataset.cases()[0].regions["Disc"].mask(10, 12).sum() == 9
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("unknown_class", "9", 1)]


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        (changed("annotations", 0, "image_id", value=9), "row 1: .*not in images"),
        (changed("annotations", 0, "image_id", value=None), "row 1: .*needs image_id"),
        (changed("annotations", 0, "bbox", value=None), "row 1: .*neither segmentation nor bbox"),
        (changed("annotations", 0, "bbox", value=[1, 2, -3, 4]), "row 1: .*negative size"),
        (changed("annotations", 0, "bbox", value=[1, 2, 3]), "row 1: .*list of 4 numbers"),
        (changed("annotations", 1, "segmentation", value=[[1, 2, 3, 4]]), "row 2: .*a polygon has 4 numbers"),
        (changed("annotations", 1, "segmentation", value=[[1, 2, 3, 4, 5, None]]), "row 2: .*not a number"),
        (changed("annotations", 1, "segmentation", value="abc"), "row 2: .*neither a list of polygons"),
        (
            changed("annotations", 2, "segmentation", "counts", value=[1, 2]),
            "row 3: .*runs of 3 pixels, its grid of 10 x 12 has 120",
        ),
        (changed("annotations", 2, "segmentation", "counts", value=[121, -1]), "row 3: .*does not fit"),
        (changed("annotations", 2, "segmentation", "counts", value=[1.5]), "row 3: .*whole numbers"),
        (changed("annotations", 2, "segmentation", "counts", value=[119, True]), "row 3: .*whole numbers"),
        (changed("annotations", 2, "segmentation", "size", value=[12, 10]), "row 3: .*its image is not"),
        (changed("images", 0, "file_name", value="../a.png"), "row 1: .*leads out of"),
        (changed("images", 1, "id", value=1), "row 2: .*appears twice"),
        (changed("images", 0, "labels", value={"Bar": 0}), "row 1: .*label of 'Bar' is 0, but the image has a region"),
        (changed("images", 0, "labels", value={"Bar": 2}), "row 1: .*not an object of 1, 0 and null"),
        (changed("images", 2, value={"id": 3, "file_name": "c", "height": 0, "width": 5}), "row 3: .*not a size"),
        (changed("categories", 0, "id", value=2), "row 2: .*appears twice"),
        (changed("categories", 0, "name", value=" "), "row 1: .*is empty"),
        (changed("categories", value=3), "no list 'categories'"),
        ([], "no list 'images'"),
    ],
)
def test_what_does_not_parse_names_file_and_row(tmp_path: Path, document: Any, cause: str) -> None:
    with pytest.raises(DataError, match=rf"annotations\.json.*{cause}"):
        make(tmp_path, document).cases()


def test_a_box_without_area_is_noted(tmp_path: Path) -> None:
    dataset = make(tmp_path, changed("annotations", 0, "bbox", value=[1, 2, 0, 4]))
    assert len(dataset.cases()) == 3
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("degenerate", "Disc", 1)]


@pytest.mark.parametrize(("height", "width"), [(None, None), ("10", "12"), (10.0, 12.0), (None, 12)])
def test_a_run_length_mask_beside_any_form_of_the_images_size(tmp_path: Path, height: Any, width: Any) -> None:
    document = changed("images", 0, "height", value=height)
    document["images"][0]["width"] = width
    case = make(tmp_path, document).cases()[0]
    assert case.regions["Bar"].mask(10, 12).sum() == 2
    assert case.size == (None if height is None else (10, 12))
    document["images"][0].update(height="11", width=12)
    with pytest.raises(DataError, match="the run-length mask is 10 x 12, its image is not"):
        make(tmp_path, document).cases()


def test_a_category_that_means_that_nothing_was_found(tmp_path: Path) -> None:
    document = copy.deepcopy(DOCUMENT)
    document["categories"].append({"id": 9, "name": "No finding"})
    document["annotations"].append({"image_id": "x", "category_id": 9, "bbox": [0, 0, 1, 1]})
    document["images"][1]["labels"]["No finding"] = 0
    dataset = make(tmp_path, document)
    assert dataset.classes == ("Disc", "Bar") and dataset.cases()[2].labels == {"Disc": 0, "Bar": 0}
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("no_finding", "x", 4)]
    assert make(tmp_path, document, nothing="Disc").classes == ("Bar", "No finding")


def test_a_suffix_of_the_images_names(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "images/a_frontal.jpg").touch()
    assert make(tmp_path, suffix="_frontal").cases()[0].image == tmp_path / "images/a_frontal.jpg"
