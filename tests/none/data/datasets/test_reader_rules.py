"""Rules of all readers: one place opens, lists and parses files, and what holds for one format holds for all."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from xbench_fast.runtime.data import datasets
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.file_format import FileFormat

ROOM = Path(datasets.__file__).parent
ONE_PLACE = ("source", "masks")
"""Rooms that open files: texts and lists of files, and masks."""

READERS = {"dicom_files.py", "nifti.py"}
"""Files that open what is no text, by the library of the format."""

KNOWN = {
    "attributes/lookup.py": {"open"},  # DICOM headers
    "checking/same_content.py": {"open"},  # bytes of images, for their hashes
    "formats/xml_tree.py": {"read_bytes"},  # the parser of XML decodes the text itself
}
"""What else may open or list files, by file."""

CALLS = {"open", "walk", "rglob", "glob", "iterdir", "read_text", "read_bytes", "listdir", "scandir"}
MODULES = {"json", "yaml", "csv"}


def opening(file: Path) -> set[str]:
    """The calls of a file that open, list or parse files: names of functions, and modules of parsers."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute):
            module = called.value.id if isinstance(called.value, ast.Name) else ""
            found |= {called.attr} & CALLS if module != "Image" else set()
            found |= {module} & MODULES
        elif isinstance(called, ast.Name):
            # The readers' own `read_text` is that of `source`.
            found |= {called.id} & {"open"}
    return found


def test_one_place_opens_lists_and_parses_files() -> None:
    found = {}
    for file in ROOM.rglob("*.py"):
        name = file.relative_to(ROOM).as_posix()
        if name.split("/")[0] not in ONE_PLACE and file.name not in READERS and (calls := opening(file)):
            found[name] = calls
    assert not {name: calls for name, calls in found.items() if not calls <= KNOWN.get(name, set())}


def test_the_rule_sees_what_opens_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import json\nopen('a')\njson.load(f)\npath.rglob('*')\nread_text(file)\nImage.open(file)\n")
    assert opening(file) == {"open", "json", "rglob"}


def test_readers_of_formats_stand_on_one_base() -> None:
    readers = [DATASETS.load(name) for name in DATASETS.names()]
    assert all(issubclass(each, FileFormat) for each in readers if ".formats." in each.__module__)
    assert len([each for each in readers if ".formats." in each.__module__]) >= 9


# A box of a class in the image "sub/a", as each format writes it; the file's name below the root has the image's place.
XML = "<object><name>{}</name><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>8</xmax><ymax>9</ymax></bndbox></object>"
CVAT = '<box label="{}" xtl="1" ytl="2" xbr="8" ybr="9"/>'


def _csv(image: str, *classes: str) -> dict[str, str]:
    rows = "".join(f"{image}.png,{each},1,2,8,9\n" for each in classes)
    return {"annotations.csv": f"image,class,x_min,y_min,x_max,y_max\n{rows}"}


def _coco(image: str, *classes: str) -> dict[str, str]:
    names = sorted({*classes})
    boxes = [{"image_id": 1, "category_id": names.index(each) + 1, "bbox": [1, 2, 7, 7]} for each in classes]
    categories = [{"id": key, "name": name} for key, name in enumerate(names, 1)]
    images = [{"id": 1, "file_name": f"{image}.png"}]
    return {"annotations.json": json.dumps({"images": images, "categories": categories, "annotations": boxes})}


def _cvat(image: str, *classes: str) -> dict[str, str]:
    boxes = "".join(map(CVAT.format, classes))
    text = f'<image name="{image}.png" width="20" height="20">{boxes}</image>'
    return {"annotations.xml": f"<annotations>{text}</annotations>"}


def _voc(image: str, *classes: str) -> dict[str, str]:
    boxes = "".join(map(XML.format, classes))
    return {"Annotations/note.xml": f"<annotation><filename>{image}.png</filename>{boxes}</annotation>"}


def _labelme(image: str, *classes: str) -> dict[str, str]:
    shapes = [{"label": each, "shape_type": "rectangle", "points": [[1, 2], [8, 9]]} for each in classes]
    return {"annotations/note.json": json.dumps({"imagePath": f"{image}.png", "shapes": shapes})}


def _yolo(image: str, *classes: str) -> dict[str, str]:
    names = list(dict.fromkeys(classes))
    lines = "".join(f"{names.index(each)} 0.225 0.275 0.35 0.35\n" for each in classes)
    return {"labels/sub/a.txt": lines, "data.yaml": json.dumps({"names": names})}


WRITERS: dict[str, Callable[..., dict[str, str]]] = {
    "csv": _csv, "coco": _coco, "cvat": _cvat, "voc": _voc, "labelme": _labelme, "yolo": _yolo,
}  # fmt: skip


def made(root: Path, name: str, image: str, *classes: str) -> Dataset:
    for place, text in WRITERS[name](image, *classes).items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text, encoding="utf-8")
    for folder in ("images/sub", "images/.cache", "images/__MACOSX"):
        (root / folder).mkdir(parents=True)
        Image.new("L", (20, 20)).save(root / folder / "a.png")
    return DATASETS.load(name)(root)


def test_the_table_has_every_reader_of_boxes() -> None:
    formats = {name for name in DATASETS.names() if issubclass(DATASETS.load(name), FileFormat)}
    assert formats - WRITERS.keys() == {"masks", "nifti", "dicom"}


@pytest.mark.parametrize("name", WRITERS)
def test_an_annotation_twice_counts_once_and_is_noted(tmp_path: Path, name: str) -> None:
    dataset = made(tmp_path, name, "sub/a", "Mass", "Mass")
    (case,) = dataset.cases()
    assert case.regions["Mass"].mask(20, 20).sum() == 49 and [note.kind for note in dataset.notes] == ["duplicate"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_name_of_windows_is_found_and_hidden_folders_are_not_looked_at(tmp_path: Path, name: str) -> None:
    dataset = made(tmp_path, name, "sub\\a", "Mass")
    (case,) = dataset.cases()
    assert case.image == tmp_path / "images/sub/a.png" and not dataset.notes


@pytest.mark.parametrize("name", WRITERS)
def test_a_class_in_two_spellings_is_one(tmp_path: Path, name: str) -> None:
    dataset = made(tmp_path, name, "sub/a", "Pleural effusion", "pleural_Effusion")
    (case,) = dataset.cases()
    assert len(dataset.classes) == 1 and set(case.labels.values()) == {1}
    assert {note.kind for note in dataset.notes} == {"spelling", "duplicate"}
