"""Layouts of folders that tools write, names of images that differ in case, and files that belong to no one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from xbench_fast.engines.errors import DataError
from xbench_fast.engines.user_files import entries, tree
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.file_rows import Note
from xbench_fast.runtime.data.datasets.formats.named_images import NamedImages
from xbench_fast.runtime.data.datasets.source.image_index import ImageFolder, ImageTree

BOX = "<bndbox><xmin>11</xmin><ymin>16</ymin><xmax>30</xmax><ymax>45</ymax></bndbox>"
CONTENT = {
    ".txt": "0 0.25 0.5 0.25 0.5",
    ".json": json.dumps(
        {"shapes": [{"label": "Mass", "shape_type": "rectangle", "points": [[10, 15], [30, 45]]}], "imagePath": None}
    ),
    ".xml": f"<annotation><object><name>Mass</name>{BOX}</object></annotation>",
    ".yaml": "names: [Mass]",
    ".names": "Mass\r\n",
    ".labels": "Mass\n",
}
PNG = encode(np.eye(60, 80, dtype=np.uint8), "PNG")


def put(root: Path, files: Iterable[str]) -> None:
    """Each file with the content of its kind, or what stands behind "="."""
    for item in files:
        name, equals, text = item.partition("=")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image = path.suffix.lower() in (".png", ".jpg")
        path.write_bytes(PNG if image else (text if equals else CONTENT[path.suffix]).encode())


def opened(root: Path, reader: str, **options: Any) -> Dataset:
    found = DATASETS.load(reader)(root, **options)
    assert isinstance(found, Dataset)
    return found


@pytest.mark.parametrize(
    ("reader", "files", "cases", "notes"),
    [
        ("yolo", "train/labels/a.txt train/images/a.jpg data.yaml README.txt=hello", "a train/images/a.jpg", ""),
        ("yolo", "labels/t/a.txt images/t/a.png data.yaml", "t/a images/t/a.png", ""),
        ("yolo", "a.txt a.png obj.names README.txt=hello", "a a.png", "other_file"),
        ("yolo", "train/a.txt train/a.png train/_darknet.labels", "a train/a.png", ""),
        ("yolo", "images/a.txt images/a.PNG chest.yaml images/b.txt=x", "a images/a.PNG", "other_file"),
        ("yolo", "obj_train_data/a.txt obj_train_data/a.png obj.names train.txt=a", "a obj_train_data/a.png", ""),
        ("labelme", "a.json a.png annotations.json={\"images\":[]}", "a a.png", "other_file"),
        ("labelme", "images/a.json images/a.png", "a images/a.png", ""),
        ("labelme", "annotations/a.json images/a.png annotations/b.json=[]", "a images/a.png", "other_file"),
        ("labelme", "annotations/README=x images/a.json images/a.png", "a images/a.png", ""),
        ("labelme", "a.json a.png images/small.jpg", "a a.png", "not_annotated"),
        ("labelme", "day1/a.json day1/a.png", "a day1/a.png", ""),
        ("voc", "a.xml a.png", "a a.png", ""),
        ("voc", "JPEGImages/a.xml JPEGImages/a.png", "a JPEGImages/a.png", ""),
        ("voc", "annotations/a.xml images/a.png", "a images/a.png", ""),
        ("voc", "VOC2007/Annotations/a.xml VOC2007/JPEGImages/a.png", "a VOC2007/JPEGImages/a.png", ""),
        ("voc", "Annotations/a.xml Annotations/a.png", "a Annotations/a.png", ""),
    ],
)  # fmt: skip
def test_layouts_of_tools(tmp_path: Path, reader: str, files: str, cases: str, notes: str) -> None:
    put(tmp_path, files.split())
    dataset = opened(tmp_path, reader)
    (case,) = dataset.cases()
    assert f"{case.case_id} {case.image.relative_to(tmp_path)}" == cases
    mask = case.regions["Mass"].mask(60, 80)
    assert mask[15:45, 10:30].all() and mask.sum() == 600
    assert [note.kind for note in dataset.notes] == notes.split() and audit(dataset).passed
    assert not {str(path) for path in dataset.sources()} & set(audit(dataset).unannotated)


@pytest.mark.parametrize(
    ("reader", "forms", "option", "image"),
    [
        ("yolo", ["{}/labels/a.txt", "{}/images/a.png", "data.yaml"], "test/labels", "test/images/a.png"),
        ("voc", ["{}/a.xml", "{}/a.png"], "test", "test/a.png"),
        ("labelme", ["{}/a.json", "{}/a.png"], "test", "test/a.png"),
    ],
)
def test_several_parts_are_never_one_dataset(
    tmp_path: Path, reader: str, forms: list[str], option: str, image: str
) -> None:
    put(tmp_path, [form.format(part) for form in forms for part in ("train", "valid", "test")])
    with pytest.raises(
        DataError, match=r"several folders: test.*, train.*, valid.*; name one of them in the option an"
    ):
        opened(tmp_path, reader)
    (case,) = opened(tmp_path, reader, annotations=option).cases()
    assert case.image == tmp_path / image and case.case_id == "a"


def test_the_images_of_a_part_and_those_that_one_names(tmp_path: Path) -> None:
    put(tmp_path, ["labels/val/a.txt", "labels/train/a.txt", "images/val/a.png", "images/train/a.png", "data.yaml"])
    (case,) = opened(tmp_path, "yolo", annotations="labels/val").cases()
    assert case.image == tmp_path / "images/val/a.png"
    (case,) = opened(tmp_path, "yolo", annotations="labels/val", images="images/train").cases()
    assert case.image == tmp_path / "images/train/a.png"
    assert len(opened(tmp_path, "yolo").cases()) == 2


@pytest.mark.parametrize("reader", ["yolo", "voc", "labelme"])
def test_a_root_without_annotations_is_one_sentence(tmp_path: Path, reader: str) -> None:
    put(tmp_path, ["images/a.png", "data.yaml", "train.txt=images/a.png"])
    with pytest.raises(DataError, match=r"The folder .* of the annotations does not exist; correct the root"):
        opened(tmp_path, reader)


@pytest.mark.parametrize("text", ["names: {'0': Mass, '1': Rib}", "names: {0: Mass, '1': Rib}\nnc: 2"])
def test_numbers_of_classes_in_quotes(tmp_path: Path, text: str) -> None:
    put(tmp_path, ["labels/a.txt=1 0.5 0.5 0.1 0.1", "images/a.png", f"data.yaml={text}"])
    dataset = opened(tmp_path, "yolo")
    assert dataset.classes == ("Mass", "Rib") and set(dataset.cases()[0].regions) == {"Rib"} and not dataset.notes


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("names: [No, Mass]", "write Yes, No, on and off in quotes"),
        ("names: {0: Mass, '0': Rib}", "the table 'names' has a number twice"),
        ("names: {-1: Mass}", "'names' has the key -1, and is not a table of numbers"),
        ("names: {true: Mass}", "'names' has the key True"),
        ("names: {1.0: Mass}", "'names' has the key 1.0"),
    ],
)
def test_names_that_say_two_things(tmp_path: Path, text: str, sentence: str) -> None:
    put(tmp_path, ["labels/a.txt", f"data.yaml={text}"])
    with pytest.raises(DataError, match=sentence):
        opened(tmp_path, "yolo")


def test_a_number_of_classes_that_is_not_that_of_the_names_is_told(tmp_path: Path) -> None:
    put(tmp_path, ["labels/a.txt", "images/a.png", "data.yaml=names: [Mass]\nnc: 2"])
    assert [note.text for note in opened(tmp_path, "yolo").notes] == ["nc is 2, but 'names' has 1 names"]


def test_names_that_differ_in_case_are_found_and_told(tmp_path: Path) -> None:
    put(tmp_path, ["labels/A.txt", "labels/p1/B.txt", "images/a.PNG", "images/P1/b.png", "data.yaml"])
    dataset = opened(tmp_path, "yolo")
    assert [case.image.relative_to(tmp_path / "images").as_posix() for case in dataset.cases()] == ["a.PNG", "P1/b.png"]
    assert [(note.kind, note.text) for note in dataset.notes] == [
        ("fallback", "'A' is the image a.PNG, whose name differs in upper and lower case"),
        ("fallback", "'p1/B' is the image b.png, whose name differs in upper and lower case"),
    ]
    assert audit(dataset).passed and not audit(dataset).unannotated


def test_a_name_that_several_images_have_in_other_cases_is_missing(tmp_path: Path) -> None:
    put(tmp_path, ["labels/AB.txt", "images/aB.png", "images/Ab.png", "data.yaml"])
    assert opened(tmp_path, "yolo").cases()[0].image == tmp_path / "images/AB.png"
    put(tmp_path, ["labels/P.txt", "images/x/p.png", "images/y/p.png"])
    assert not opened(tmp_path, "yolo").cases()[1].image.exists()
    (tmp_path / "labels/P.txt").unlink()
    put(tmp_path, ["images/AB.png"])
    dataset = opened(tmp_path, "yolo")
    assert dataset.cases()[0].image.exists() and [note.kind for note in dataset.notes] == ["not_annotated"]


def test_every_index_of_images_finds_names_in_another_case(tmp_path: Path) -> None:
    put(tmp_path, ["sub/Caf\u00e9 1.PNG", "Top.png"])
    file = tmp_path / "list.csv"
    for name, image in (("CAF\u00c9 1", "sub/Caf\u00e9 1.PNG"), ("TOP.PNG", "Top.png"), ("top", "Top.png")):
        notes: list[Note] = []
        assert NamedImages(tmp_path, "", notes).find(name, file, 2) == tmp_path / image
        assert [(note.kind, note.row) for note in notes] == [("fallback", 2)]
    notes = []
    assert NamedImages(tmp_path, "", notes).find("other", file, 2, "C:\\x\\TOP.png") == tmp_path / "Top.png"
    folder = ImageFolder(tmp_path, notes)
    assert folder.path("top.png", file, 3) == folder.find("TOP", (".jpg", ".png"), file, 4) == tmp_path / "Top.png"
    below = ImageTree([tmp_path], (".png",), notes)
    assert below.find("cafe\u0301 1", file, 5) == tmp_path / "sub/Caf\u00e9 1.PNG"
    assert below.find("none", file, 6) == tmp_path / "none.png" == folder.path("none.png", file, 6)
    assert [(note.kind, note.row) for note in notes] == [("fallback", row) for row in (2, 3, 4, 5)]


def test_one_image_with_two_annotations_is_told(tmp_path: Path) -> None:
    for reader, end in (("yolo", "txt"), ("labelme", "json"), ("voc", "xml")):
        root = tmp_path / reader
        put(root, [f"Annotations/a.{end}", f"Annotations/sub/a.{end}", "images/a.png", "data.yaml"])
        dataset = opened(root, reader, annotations="Annotations")
        assert "same_image" in [note.kind for note in dataset.notes] and not audit(dataset).passed
        (root / f"Annotations/sub/a.{end}").rename(root / f"Annotations/a.{end.upper()}")
        with pytest.raises(DataError, match="the image 'a' was annotated before; name it once"):
            opened(root, reader, annotations="Annotations")


HIDDEN = (".ipynb_checkpoints", ".thumbnails", ".Trash-1000", "__MACOSX", "@eaDir", "#recycle")


@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize(
    ("reader", "options", "annotation"),
    [
        ("yolo", {}, "labels/a.txt"),
        ("voc", {}, "Annotations/a.xml"),
        ("labelme", {}, "annotations/a.json"),
        ("masks", {}, "masks/Mass/a.png"),
    ],
)
def test_hidden_folders_and_files_are_no_users(
    tmp_path: Path, reader: str, options: dict[str, str], annotation: str, hidden: str
) -> None:
    top, _, name = annotation.partition("/")
    broken = "a-checkpoint" + annotation[annotation.rindex(".") :]
    for folder in (f"{top}/{hidden}", f"{top}/sub/{hidden}/deep"):
        put(tmp_path, [f"{folder}/{broken}=broken", f"{folder}/{name}=broken", f"{folder}/a.png"])
    put(tmp_path, [annotation, f"{top}/._{name.rpartition('/')[2]}=broken", f"{top}/Thumbs.db=x", "data.yaml"])
    put(tmp_path, ["images/a.png", f"images/{hidden}/a.png", "images/._a.png", "images/.DS_Store=x", f"{hidden}/b.png"])
    dataset = opened(tmp_path, reader, **options)
    (case,) = dataset.cases()
    found = audit(dataset)
    assert dataset.classes == ("Mass",) and case.image == tmp_path / "images/a.png" and not dataset.notes
    assert found.unannotated_files == 0 and found.passed


@pytest.mark.parametrize(
    ("name", "reader", "cases"), [("voc", "voc", 3), ("voc-trash", "voc", 1), ("masks", "masks", 1)]
)
def test_hidden_checkpoints(root: Path, name: str, reader: str, cases: int) -> None:
    dataset = opened(root / "tests/cases/folder-hidden-checkpoints" / name, reader)
    assert len(dataset.cases()) == cases and dataset.classes == ("Mass",)
    assert not dataset.notes and audit(dataset).passed and not audit(dataset).unannotated


def test_folders_are_listed_without_what_programs_put_there(tmp_path: Path) -> None:
    put(tmp_path, ["b/x.png", "a.png", ".hidden/y.png", "b/.DS_Store=x", "b/@eaDir/z.png", "desktop.ini=x"])
    assert entries(tmp_path) == [tmp_path / "a.png", tmp_path / "b"]
    assert entries(tmp_path / "none") == entries(tmp_path / "a.png") == []
    assert list(tree(tmp_path)) == [tmp_path / "a.png", tmp_path / "b/x.png"]
