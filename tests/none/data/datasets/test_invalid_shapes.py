"""The option `invalid` of the readers of annotation formats: what cannot be read is left out and noted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.formats.file_format import FileFormat

VOC = "<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>"
SHAPE = {"shape_type": "rectangle", "points": [[1, 1], [5, 5]]}
BOX = '<box label="{}" xtl="{}" ytl="1" xbr="9" ybr="9"/>'

# name -> (file, its text with one bad Mass, one good Mass and one good Cyst, the same with a bad one of no class)
FILES: dict[str, tuple[str, str, str]] = {
    "csv": (
        "annotations.csv",
        "image,class,x_min,y_min,x_max,y_max\na.png,Mass,1,1,9,9\na.png,Mass,1,1,x,9\na.png,Cyst,1,1,9,9\n",
        "image,class,x_min,y_min,x_max,y_max\na.png,Mass,1,1,9,9\na.png,,1,1,9,9\nb.png,Cyst,1,1,9,9\n",
    ),
    "voc": (
        "Annotations/a.xml",
        f"<annotation>{VOC.format('Mass', 1)}{VOC.format('Mass', 'x')}{VOC.format('Cyst', 1)}</annotation>",
        f"<annotation>{VOC.format('Mass', 1)}{VOC.format('', 1)}</annotation>",
    ),
    "labelme": (
        "annotations/a.json",
        json.dumps({"shapes": [SHAPE | {"label": "Mass"}, {"label": "Mass", "points": 3}, SHAPE | {"label": "Cyst"}]}),
        json.dumps({"shapes": [SHAPE | {"label": "Mass"}, SHAPE]}),
    ),
    "cvat": (
        "annotations.xml",
        f'<annotations><image name="a.png" width="20" height="20">{BOX.format("Mass", 1)}{BOX.format("Mass", "x")}'
        f'{BOX.format("Cyst", 1)}</image></annotations>',
        f'<annotations><image name="a.png" width="20" height="20">{BOX.format("Mass", 1)}{BOX.format("", 1)}</image>'
        "</annotations>",
    ),
    "yolo": ("labels/a.txt", "0 .5 .5 .1 .1\n0 .5 x .1 .1\n1 .5 .5 .1 .1\n", "0 .5 .5 .1 .1\nx .5 .5 .1 .1\n"),
}  # fmt: skip


def coco(*boxes: tuple[int, list[Any]]) -> str:
    return json.dumps({
        "categories": [{"id": 1, "name": "Mass"}, {"id": 2, "name": "Cyst"}],
        "images": [{"id": 1, "file_name": "a.png"}],
        "annotations": [{"image_id": 1, "category_id": key, "bbox": box} for key, box in boxes],
    })  # fmt: skip


FILES["coco"] = ("annotations.json", coco((1, [1, 1, 8, 8]), (1, [1, 1, -8, 8]), (2, [1, 1, 8, 8])), "")


def make(root: Path, name: str, text: str, **options: Any) -> Dataset:
    file = root / FILES[name][0]
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    (root / "images").mkdir(exist_ok=True)
    Image.new("L", (20, 20)).save(root / "images/a.png")
    if name == "yolo":
        options["classes"] = ["Mass", "Cyst"]
    return DATASETS.load(name)(root, **options)


@pytest.mark.parametrize("name", FILES)
def test_a_class_with_an_unread_region_has_none_and_is_positive(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError):
        make(tmp_path, name, FILES[name][1]).cases()
    dataset = make(tmp_path, name, FILES[name][1], invalid="skip")
    case = dataset.cases()[0]
    assert case.labels == {"Mass": 1, "Cyst": 1} and set(case.regions) == {"Cyst"}
    (note,) = (note for note in dataset.notes if note.kind == "invalid_shape")
    assert note.subject == "Mass" and note.file.name == Path(FILES[name][0]).name and note.text.endswith("left out")
    assert str(note).count(note.file.name) == 1 and (note.row is not None)


@pytest.mark.parametrize("name", sorted(FILES.keys() - {"coco"}))
def test_an_unread_region_of_no_class_leaves_the_image_without_regions(tmp_path: Path, name: str) -> None:
    dataset = make(tmp_path, name, FILES[name][2], invalid="skip", classes=["Mass", "Cyst"])
    case = dataset.cases()[0]
    assert case.labels == {"Mass": 1, "Cyst": None} and not case.regions
    assert [note.kind for note in dataset.notes if note.kind != "no_images_folder"].count("invalid_shape") == 1


def test_a_mask_file_that_cannot_be_read(tmp_path: Path) -> None:
    for folder in ("images", "masks/Mass", "masks/Cyst"):
        (tmp_path / folder).mkdir(parents=True)
    Image.new("L", (20, 20)).save(tmp_path / "images/a.png")
    mask = np.zeros((20, 20), np.uint8)
    mask[3:6, 3:6] = 255
    Image.fromarray(mask).save(tmp_path / "masks/Cyst/a.png")
    (tmp_path / "masks/Mass/a.png").write_bytes(b"no image")
    reader = DATASETS.load("masks")
    options = {"files": "{class}/{image}.png"}
    with pytest.raises(DataError, match="cannot be read"):
        reader(tmp_path, **options).cases()
    dataset = reader(tmp_path, invalid="skip", **options)
    assert dataset.cases()[0].labels == {"Cyst": 1, "Mass": 1} and set(dataset.cases()[0].regions) == {"Cyst"}


def test_the_option_of_every_reader_of_formats() -> None:
    readers = [DATASETS.load(name) for name in DATASETS.names()]
    formats = [reader for reader in readers if issubclass(reader, FileFormat)]
    assert len(formats) >= 9 and all("invalid" in reader.option_help for reader in formats)


def test_another_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be 'ignore'"):
        make(tmp_path, "csv", FILES["csv"][1], invalid="ignore")
