"""COCO files as annotation tools write them: categories, marks, turned boxes, layouts, names and labels."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.coco import Coco

CASES = Path(__file__).parents[3] / "cases"

BASE: dict[str, Any] = {
    "categories": [{"id": 1, "name": "Mass"}],
    "images": [{"id": 1, "file_name": "a.png", "height": 60, "width": 80}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [10, 20, 40, 8]}],
}


def make(root: Path, *annotations: dict[str, Any], **options: Any) -> Coco:
    """A file of one image; its annotations are `BASE`'s with these changes."""
    document = copy.deepcopy(BASE)
    if annotations:
        document["annotations"] = [{**BASE["annotations"][0], **each} for each in annotations]
    return written(root, document, **options)


def written(root: Path, document: Any, **options: Any) -> Coco:
    (root / "annotations.json").write_text(json.dumps(document), encoding="utf-8")
    (root / "images").mkdir(exist_ok=True)
    return Coco(root, **options)


def mask(dataset: Coco, finding: str = "Mass") -> NDArray[np.bool_]:
    return dataset.cases()[0].regions[finding].mask(60, 80)


def kinds(dataset: Coco) -> list[str]:
    return [note.kind for note in dataset.notes if note.kind != "no_images_folder"]


def categories(*entries: tuple[int, str, str], used: tuple[int, ...]) -> dict[str, Any]:
    box = BASE["annotations"][0]
    return {
        **BASE,
        "categories": [{"id": key, "name": name, "supercategory": group} for key, name, group in entries],
        "annotations": [{**box, "category_id": key, "bbox": [key, key, 9, 9]} for key in used],
    }


def test_an_annotation_twice_counts_once_and_is_noted() -> None:
    dataset = Coco(CASES / "coco-duplicate-annotations")
    assert sum(len(getattr(case.regions["Mass"], "corners", ())) for case in dataset.cases()) == 4
    assert kinds(dataset) == ["duplicate"] * 4 and audit(dataset).boxes == 4


def test_marked_regions_count_and_are_noted() -> None:
    dataset = Coco(CASES / "coco-iscrowd-in-ap")
    found = audit(dataset)
    assert found.boxes == 8 and found.notes == {"crowd": 1} and found.passed
    assert "regions marked iscrowd: 4 in 4 images; they count as regions" in dataset.notes[0].text


@pytest.mark.parametrize(
    ("entry", "mark"),
    [
        ({"iscrowd": True}, "iscrowd"),
        ({"iscrowd": "1"}, "iscrowd"),
        ({"ignore": 1.0}, "ignore"),
        ({"attributes": {"difficult": "true"}}, "difficult"),
        ({"attributes": {"occluded": True}}, "occluded"),
        ({"iscrowd": 1, "bbox": None, "segmentation": {"size": [60, 80], "counts": [0, 4800]}}, "iscrowd"),
        ({"iscrowd": 1, "segmentation": [[1, 1, 9, 1, 9, 9]]}, "iscrowd"),
        ({"iscrowd": 0, "ignore": "0", "attributes": {"occluded": False, "difficult": "false"}}, ""),
        ({"iscrowd": None, "attributes": None}, ""),
    ],
)
def test_marks_in_all_their_forms(tmp_path: Path, entry: dict[str, Any], mark: str) -> None:
    notes = [note for note in make(tmp_path, entry).notes if note.kind == "crowd"]
    assert [note.subject for note in notes] == ([mark] if mark else [])


def test_polygons_by_their_outline_or_as_coco_draws_them() -> None:
    folder = CASES / "coco-polygon-outline"
    assert mask(Coco(folder)).sum() == 121 and mask(Coco(folder, polygons="centres")).sum() == 100


def test_a_project_that_has_the_name_of_its_class() -> None:
    dataset = Coco(CASES / "coco-roboflow-project-name-is-class")
    assert dataset.classes == ("Mass",) and mask(dataset).sum() == 450 and kinds(dataset) == ["unused_category"]


@pytest.mark.parametrize(
    ("entries", "used", "classes", "noted"),
    [
        ([(0, "chest", "none"), (1, "Mass", "chest"), (2, "Cyst", "chest")], (1,), ("Mass", "Cyst"), ["0"]),
        ([(0, "project", "none"), (1, "Mass", "lesions")], (1,), ("Mass",), ["0"]),
        ([(0, "Mass", "none"), (1, "Cyst", "none")], (0, 1), ("Mass", "Cyst"), []),
        ([(3, "Opacity", ""), (4, "Mass", "opacity")], (4,), ("Mass",), ["3"]),
        ([(3, "Opacity", ""), (4, "Mass", "opacity")], (3, 4), ("Opacity", "Mass"), []),
        ([(1, "Mass", "Mass"), (2, "Cyst", "Cyst")], (1,), ("Mass", "Cyst"), []),
        ([(1, "mass", ""), (2, "Mass", "")], (2,), ("Mass",), ["1"]),
        ([(1, "Mass", ""), (2, "mass", "")], (), ("Mass",), ["2"]),
        ([(0, "Mass", "none")], (0,), ("Mass",), []),
        ([(1, "Mass", "none"), (2, "Cyst", "none")], (1,), ("Mass", "Cyst"), []),
        ([(0, "Mass", "none")], (), ("Mass",), []),
    ],
)
def test_categories_that_are_no_classes(
    tmp_path: Path, entries: Any, used: tuple[int, ...], classes: tuple[str, ...], noted: list[str]
) -> None:
    dataset = written(tmp_path, categories(*entries, used=used))
    assert dataset.classes == classes
    texts = [note.text for note in dataset.notes if note.kind == "unused_category"]
    assert [text.split("'")[0].split()[-1] for text in texts] == noted


def test_two_used_categories_of_one_spelling_are_one_class(tmp_path: Path) -> None:
    document = categories((1, "Pleural effusion", ""), (30, "Pleural_Effusion", ""), used=(1, 30))
    dataset = written(tmp_path, document)
    assert dataset.classes == ("Pleural effusion",) and mask(dataset, "Pleural effusion").sum() == 2 * 81
    assert kinds(dataset) == ["spelling"]


def test_the_turned_box_of_cvat() -> None:
    drawn = mask(Coco(CASES / "coco-rotated-box-of-cvat"))
    rows, columns = np.nonzero(drawn)
    assert drawn.sum() == 320 and (columns.min(), columns.max(), rows.min(), rows.max()) == (26, 33, 4, 43)


UNTURNED = [[10, 20, 50, 20, 50, 28, 10, 28]]


@pytest.mark.parametrize(
    ("entry", "pixels"),
    [
        ({"attributes": {"rotation": 180}}, 320),
        ({"attributes": {"rotation": 0.0}}, 320),
        ({"attributes": {"rotation": None}}, 320),
        ({"attributes": {"rotation": "90.0"}, "segmentation": [[]]}, 320),
        ({"attributes": {"rotation": 90}, "segmentation": UNTURNED}, 41 * 9),
        ({"attributes": {"rotation": 90}, "segmentation": [[10, 10, 20, 10, 20, 20, 10, 20]]}, 121),
        ({"attributes": {"rotation": 90}, "segmentation": {"size": [60, 80], "counts": [4795, 5]}}, 5),
    ],
)
def test_rotations(tmp_path: Path, entry: dict[str, Any], pixels: int) -> None:
    assert mask(make(tmp_path, entry)).sum() == pixels


def test_a_turned_box_and_its_polygon_are_turned_alike(tmp_path: Path) -> None:
    turned = mask(make(tmp_path, {"attributes": {"rotation": 30}}))
    np.testing.assert_array_equal(
        turned, mask(make(tmp_path, {"attributes": {"rotation": 30}, "segmentation": UNTURNED}))
    )


@pytest.mark.parametrize(
    ("entry", "options", "cause"),
    [
        ({"bbox": [30, 24, 40, 8, 0.5]}, {}, "turned box of 5 numbers"),
        ({"bbox": [True, 2, 3, 4]}, {}, "bbox is True, not a number"),
        ({"rotation": 30}, {}, "has the key 'rotation', whose unit"),
        ({"attributes": {"rotation": "much"}}, {}, "attributes.rotation is 'much', not a number"),
        ({"attributes": {"rotation": 30}, "bbox": [0.1, 0.1, 0.2, 0.2]}, {"unit": "fractions"}, "two different sides"),
        ({"segmentation": [1, 1, 9, 1, 9, 9]}, {}, r"neither a list of polygons \[\[x1"),
        ({"segmentation": [[1, 1, 9, 1, 9]]}, {}, "a polygon has 5 numbers"),
        ({"segmentation": [[[1, 1], [9, 1], [9, 9], [1, 9], [1, 8], [2, 2]]]}, {}, "not a number"),
        ({"segmentation": [[1, 1, 9, 1, 9, 9]]}, {"unit": "fractions"}, "the coordinate 9, but the option unit"),
        ({"segmentation": {"size": [60, 80]}}, {}, "whole numbers"),
        ({"bbox": [1, 2, float("nan"), 4]}, {}, "not a finite number"),
        ({"bbox": [1, 2, 3, "4,5"]}, {}, "not a number"),
        ({"bbox": [], "segmentation": []}, {}, "neither segmentation nor bbox"),
    ],
)
def test_shapes_that_are_refused(tmp_path: Path, entry: dict[str, Any], options: Any, cause: str) -> None:
    with pytest.raises(DataError, match=rf"annotations\.json, row 1: .*{cause}"):
        make(tmp_path, entry, **options)


def test_polygons_in_fractions(tmp_path: Path) -> None:
    entry = {"segmentation": [[0.125, 0.5, 0.25, 0.5, 0.25, 0.75, 0.125, 0.75]]}
    assert mask(make(tmp_path, entry, unit="fractions", polygons="centres")).sum() == 10 * 15


def test_a_file_name_of_windows() -> None:
    folder = CASES / "coco-windows-path"
    dataset = Coco(folder)
    assert dataset.cases()[0].image == folder / "images/sub/a.png" and mask(dataset).sum() == 450 and not dataset.notes


def test_a_key_twice_is_refused() -> None:
    with pytest.raises(DataError, match="the key 'annotations' appears twice"):
        Coco(CASES / "json-key-twice")


def test_two_entries_of_one_image_are_noted_and_fail_the_audit(tmp_path: Path) -> None:
    images = [BASE["images"][0], {**BASE["images"][0], "id": 2, "file_name": "./a.png"}]
    dataset = written(tmp_path, {**BASE, "images": images})
    assert "same_image" in kinds(dataset)


@pytest.mark.parametrize(
    ("given", "patient"),
    [
        (77, "77"),
        (77.0, "77"),
        (" p1 ", "p1"),
        (None, None),
        ("", None),
        (float("nan"), None),
        ("nan", None),
        (0, "0"),
    ],
)
def test_patients(tmp_path: Path, given: Any, patient: str | None) -> None:
    document = {**BASE, "images": [{**BASE["images"][0], "patient_id": given}]}
    assert written(tmp_path, document).cases()[0].patient_id == patient


@pytest.mark.parametrize("given", [True, ["p"], {"id": 3}])
def test_what_is_no_patient_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(DataError, match=r"row 1: the patient is .*not a text or a number"):
        written(tmp_path, {**BASE, "images": [{**BASE["images"][0], "patient_id": given}]})


def test_ids_of_tables_that_were_written_as_json(tmp_path: Path) -> None:
    document = {**BASE, "annotations": [{"image_id": 1.0, "category_id": 1.0, "bbox": [1, 1, 2, 2]}]}
    dataset = written(tmp_path, document)
    assert dataset.cases()[0].case_id == "1" and mask(dataset).sum() == 4


@pytest.mark.parametrize(
    ("label", "policy", "value"),
    [
        (-1, "ignore", None),
        (-1.0, "positive", 1),
        (-1, "negative", 0),
        (float("nan"), "positive", None),
        (1.0, "ignore", 1),
    ],
)
def test_labels(tmp_path: Path, label: Any, policy: str, value: int | None) -> None:
    document = {**BASE, "images": [{**BASE["images"][0], "labels": {"mass": label}}], "annotations": []}
    assert written(tmp_path, document, uncertain=policy).cases()[0].labels == {"Mass": value}


def test_an_uncertain_label_beside_a_region_is_positive_and_noted(tmp_path: Path) -> None:
    document = {**BASE, "images": [{**BASE["images"][0], "labels": {"Mass": -1}}]}
    dataset = written(tmp_path, document, uncertain="negative")
    assert dataset.cases()[0].labels == {"Mass": 1} and "disagreement" in kinds(dataset)


def test_two_spellings_with_two_labels_are_refused(tmp_path: Path) -> None:
    document = {**BASE, "images": [{**BASE["images"][0], "labels": {"Mass": 1, "mass": 0}}]}
    with pytest.raises(DataError, match="row 1: 'mass' and 'Mass' are one class, but have different labels"):
        written(tmp_path, document)


@pytest.mark.parametrize(
    "place", ["_annotations.coco.json", "train/_annotations.coco.json", "valid/_annotations.coco.json"]
)
def test_the_layout_of_roboflow(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(BASE))
    (file.parent / "a.png").write_bytes(b"")
    for options in ({}, {"annotations": place}):
        dataset = Coco(tmp_path, **options)
        assert dataset.cases()[0].image == file.parent / "a.png" and not dataset.notes
        assert audit(dataset).unannotated_files == 0


def test_the_layout_of_cvat(tmp_path: Path) -> None:
    for folder in ("annotations", "images"):
        (tmp_path / folder).mkdir()
    (tmp_path / "annotations/instances_default.json").write_text(json.dumps(BASE))
    assert Coco(tmp_path).cases()[0].image == tmp_path / "images/a.png"


def test_of_several_files_one_is_chosen_by_the_user(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "_annotations.coco.json").write_text(json.dumps(BASE))
    with pytest.raises(DataError, match=r"has train/_annot.*, test/_annot.*; choose one with the option annotations"):
        Coco(tmp_path)
    (tmp_path / "annotations.json").write_text(json.dumps(BASE))
    assert Coco(tmp_path).annotations == tmp_path / "annotations.json"
