"""Damaged and hostile annotation files: whatever stands in them, a reader raises DataError and nothing else.

XBENCH_FUZZ multiplies the number of inputs (default 1).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import encode
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.chexlocalize import CheXlocalize
from xbench_fast.runtime.data.datasets.chexlocalize_shapes import read_polygons
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.dataset_registry import DATASETS
from xbench_fast.runtime.data.datasets.region_shapes import Polygons, Rle, RunText

EXAMPLES = 25 * int(os.environ.get("XBENCH_FUZZ", "1"))
KEY = "patient1_study1_view1_frontal"
OBSERVED = (
    "Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,"
    "Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
)
VINDR = "image_id,rad_id,class_name,x_min,y_min,x_max,y_max\na,R1,ILD,1,2,3,4\na,R2,ILD,1,2,4,4\nb,R1,No finding,,,,\n"
MS_CXR = (
    "dicom_id,category_name,label_text,path,x,y,w,h,image_width,image_height,split\n"
    'a,Edema,"left, and right",files/p10/p10000001/s1/a.jpg,1,2,3,4,12,10,train\n'
    "a,Edema,another,files/p10/p10000001/s1/a.jpg,1,2,3,4,12,10,train\n"
)
COCO: dict[str, Any] = {
    "categories": [{"id": 1, "name": "Disc"}],
    "images": [{"id": 1, "file_name": "a.png", "height": 10, "width": 12, "labels": {"Disc": 1}}],
    "annotations": [
        {"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]},
        {"image_id": 1, "category_id": 1, "segmentation": {"size": [10, 12], "counts": [11, 2, 107]}},
        {"image_id": 1, "category_id": 1, "segmentation": [[1, 1, 5, 1, 5, 5]]},
        {"image_id": 1, "category_id": 1, "segmentation": {"size": [10, 12], "counts": "03e3"}},
    ],
}
# name -> (reader, options, the annotation files of a small valid dataset)
WORLDS: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "rsna": (
        "rsna", {"list": "list.csv"},
        {"stage_2_train_labels.csv": "patientId,x,y,width,height,Target\na,1.0,2.0,3.0,4.0,1\nb,,,,,0\n",
         "stage_2_detailed_class_info.csv": "patientId,class\na,Lung Opacity\nb,Normal\n",
         "list.csv": "ID,img_path,boxes,classes\na,/x/y/z.dcm,1;2;3;4,1\nb,,nan,0\n"},
    ),
    "siim": ("siim", {"unit": "row"}, {"train-rle.csv": "ImageId, EncodedPixels\na, -1\nb,0 3 1021 2\nb,1 4\n"}),
    "covid_rural": ("covid_rural", {"list": "list.csv"}, {"list.csv": "filepath\na_b\nc_d\n"}),
    "chestxray14": (
        "chestxray14", {},
        {"BBox_List_2017.csv": "Image Index,Finding Label,Bbox [x,y,w,h],,,\n1_0.png,Mass,1.5,2,3,4\n"
         "1_0.png,Infiltrate,1,2,3,4\n",
         "Data_Entry_2017.csv": "Image Index,Finding Labels,a\n1_0.png,Mass|Infiltration,1\n"},
    ),
    "chestxdet10": (
        "chestxdet10", {}, {"test.json": '[{"file_name": "1.png", "syms": ["Mass"], "boxes": [[1, 2, 3, 4]]}]'},
    ),
    "chexlocalize": (
        "chexlocalize", {"crosscheck": "pixels"},
        {"CheXpert/test_labels.csv": f"Path,{OBSERVED}\ntest/patient1/study1/view1_frontal.jpg{',1.0' * 13}\n",
         "CheXlocalize/gt_segmentations_test.json": json.dumps({KEY: {"Edema": {"size": [10, 12], "counts": "03e3"}}}),
         "CheXlocalize/gt_annotations_test.json": json.dumps(
             {KEY: {"img_size": [10, 12], "Edema": [[[0, 0], [0, 2], [0, 1]]]}})},
    ),
    "vindr": (
        "vindr", {"split": "train", "readers": "pixels"},
        {"annotations_train.csv": VINDR, "image_labels_train.csv": "image_id,rad_id,ILD\na,R1,1\na,R2,0\n"},
    ),
    "vindr_kaggle": (
        "vindr_kaggle", {"readers": "fused", "sizes": "train_meta.csv"},
        {"train.csv": VINDR, "train_meta.csv": "image_id,dim0,dim1\na,10,12\nb,10,12\n"},
    ),
    "coco": ("coco", {}, {"annotations.json": json.dumps(COCO)}),
    "csv": (
        "csv", {"labels": "labels.csv"},
        {"annotations.csv": "image,class,x,y,width,height,image_width,image_height\n"
         "a.png,Mass,1,2,3,4,12,10\nb.png,,,,,,,\n",
         "labels.csv": "image,Mass\na.png,1\nb.png,0\n"},
    ),
    "yolo": (
        "yolo", {},
        {"labels/a.txt": "0 0.2 0.2 0.1 0.1\n0 .1 .1 .4 .1 .4 .5 0.9\n", "classes.txt": "Mass\n"},
    ),
    "voc": (
        "voc", {},
        {"Annotations/a.xml": "<annotation><filename>a.png</filename><size><width>12</width><height>10</height></size>"
         "<object><name>Mass</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax><ymax>5</ymax></bndbox></object>"
         "</annotation>"},
    ),
    "labelme": (
        "labelme", {},
        {"annotations/a.json": json.dumps({"imageHeight": 10, "imageWidth": 12, "imagePath": "a.png", "shapes": [
            {"label": "Mass", "shape_type": "circle", "points": [[3, 4], [5, 5]]},
            {"label": "Mass", "points": [[3, 4], [5, 5], [3, 9]]}, {"label": "Rib", "shape_type": "mask", "points":
             [[3, 4], [4, 5]], "mask": base64.b64encode(encode(np.eye(2, dtype=np.uint8), "PNG")).decode()}]})},
    ),
    "cvat": (
        "cvat", {},
        {"annotations.xml": '<annotations><image name="a.png" width="12" height="10"><polygon label="Mass" '
         'points="1,1;4,1;4,3"/><mask label="Rib" rle="0, 1, 2, 3" left="2" top="3" width="3" height="2"/><ellipse '
         'label="Mass" cx="5" cy="5" rx="3" ry="2" rotation="9"/></image></annotations>'},
    ),
    "mscxr": ("mscxr", {}, {"MS_CXR_Local_Alignment_v1.1.0.csv": MS_CXR}),
    "mscxr json": ("mscxr", {}, {"MS_CXR_Local_Alignment_v1.1.0.json": json.dumps(COCO | {
        "categories": [{"id": 1, "name": "Edema"}], "annotations": [{
            "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "label_text": "a,b", "width": 12, "height": 9}]})}),
    "padchest_gr": (
        "padchest_gr", {},
        {"grounded_reports_20240819.json": json.dumps([{"StudyID": "1", "ImageID": "a.png", "findings": [
            {"sentence_en": "A.", "abnormal": True, "boxes": [[0.1, 0.2, 0.3, 0.4]], "labels": ["x"]},
            {"sentence_en": "B.", "abnormal": False}]}]),
         "master_table.csv": "StudyID,ImageID,PatientID,label,label_group,split\n1,a.png,P,x,X,train\n"},
    ),
    "masks": (
        "masks", {"values": "values.csv"}, {"values.csv": "label,r,g,b\nbackground,0,0,0\nMass,1,1,1\nRib,9,9,9\n"},
    ),
}  # fmt: skip
WORDS = [
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b",", b'"', b"-1", b"1e999", b"nan", b"inf", b"-0",
    b"99999999999999999999", b"1" * 5000,
    b"../", b"/etc/passwd", b"\\", b"{", b"[", b"]", b"}", b":", b"null", b"true", b'"\\ud800"', b"1e300",
    b"0 1", b"\xe2\x80\xae", b"1" * 400, b"\xc3\xa4" * 200, b"[" * 3000, b"|", b"1_0", b"0x1", b".5", b"-7",
]  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    base, numbers = tmp_path_factory.mktemp("worlds"), count()
    return lambda: base / str(next(numbers))


def build(name: str, root: Path) -> None:
    for place, text in WORLDS[name][2].items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    if name == "masks":
        (root / "masks").mkdir()
        (root / "masks/a.png").write_bytes(encode(np.eye(30, dtype=np.uint8), "PNG"))
    if name == "covid_rural":
        (root / "pngs_masks").mkdir()
        (root / "pngs_masks/a_b.png").write_bytes(encode(np.eye(4, dtype=np.uint8), "PNG"))


def use(name: str, root: Path) -> Dataset:
    """Everything an evaluation and the audit do with a dataset but reading images."""
    reader, options, _ = WORLDS[name]
    dataset: Dataset = DATASETS.load(reader)(root, **options)
    found = audit(dataset)
    json.dumps(found.to_json())
    for note in dataset.notes:
        str(note).encode()
    dataset.sources()
    for case in dataset.cases():
        str(case.image).encode()
        assert case.image.resolve().is_relative_to(root.resolve())
        for region in case.regions.values():
            region.mask(*(case.size or (30, 30)))
    return dataset


@pytest.mark.parametrize("name", WORLDS)
def test_every_small_world_is_valid(name: str, tmp_path: Path) -> None:
    build(name, tmp_path)
    dataset = use(name, tmp_path)
    assert dataset.cases() and any(case.regions for case in dataset.cases())
    assert {note.kind for note in dataset.notes} <= {"no_images_folder"}


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[int, float, float, bytes]]:
    """(file, place, length, replacement) of a few edits, as fractions."""
    part = st.floats(0, 1, width=16)
    word = st.one_of(st.sampled_from(WORDS), st.binary(max_size=3))
    return draw(st.lists(st.tuples(st.integers(0, 2), part, part, word), min_size=1, max_size=4))


@pytest.mark.parametrize("name", WORLDS)
def test_edited_files(name: str, places: Callable[[], Path]) -> None:
    root = places()
    build(name, root)
    files = [root / place for place in WORLDS[name][2]]
    whole = [file.read_bytes() for file in files]

    @settings(max_examples=EXAMPLES, database=None)
    @given(edits())
    def edited(changes: list[tuple[int, float, float, bytes]]) -> None:
        contents = list(whole)
        for number, place, length, word in changes:
            data = contents[number % len(files)]
            start = int(place * len(data))
            stop = start + int(length * length * 12)
            contents[number % len(files)] = data[:start] + word + data[stop:]
        for file, data in zip(files, contents, strict=True):
            file.write_bytes(data)
        try:
            use(name, root)
        except DataError as error:
            assert str(error).encode() and len(str(error)) < 20_000

    edited()


NAMES = [
    KEY, "img_size", "Edema", "counts", "size", "file_name", "syms", "boxes", "images", "annotations", "categories",
    "id", "name", "bbox", "segmentation", "image_id", "category_id", "labels",
    "shapes", "points", "label", "mask",
]  # fmt: skip
texts = st.one_of(st.text(max_size=5), st.sampled_from(NAMES))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=5)),
    max_leaves=12,
)


@pytest.mark.parametrize("name", ["chestxdet10", "chexlocalize", "coco", "labelme"])
def test_any_json_in_place_of_a_part(name: str, places: Callable[[], Path]) -> None:
    """A random value in place of a random part of a valid file."""
    root = places()
    build(name, root)
    file = [root / place for place in WORLDS[name][2] if place.endswith(".json")][-1 if name == "coco" else 0]
    valid = json.loads(file.read_text())

    def replaced(node: Any, path: list[int], value: Any) -> Any:
        if not path or not isinstance(node, dict | list) or not node:
            return value
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = keys[path[0] % len(keys)]
        copy: Any = dict(node) if isinstance(node, dict) else list(node)
        copy[key] = replaced(node[key], path[1:], value)
        return copy

    @settings(max_examples=EXAMPLES, database=None)
    @given(st.lists(st.integers(0, 9), max_size=6), json_values)
    def anything(path: list[int], value: Any) -> None:
        file.write_text(json.dumps(replaced(valid, path, value)))
        try:
            use(name, root)
        except DataError as error:
            assert str(error).encode()

    anything()


@settings(max_examples=4 * EXAMPLES)
@given(
    st.one_of(st.text(max_size=30), st.text("0123456789 -.", max_size=40), st.text("0PQo`abc31e", max_size=20)),
    st.sampled_from(["pairs", "coco"]),
)
def test_any_run_length_text(text: str, coding: Any) -> None:
    try:
        region = RunText((30, 40), text, coding)
    except DataError:
        return
    mask = region.mask(30, 40)
    assert mask.shape == (30, 40) and mask.sum() == region.area
    if coding == "coco":
        np.testing.assert_array_equal(Rle.from_string((30, 40), text).mask(30, 40), mask)


def test_absurd_sizes_do_not_fill_the_memory() -> None:
    for size in ((10**6, 10**6), (0, 4), (-1, 4), (40_000, 2)):
        for make in (lambda s: RunText(s, "", "coco"), lambda s: Rle(s, ()), lambda s: Polygons(()).mask(*s)):
            with pytest.raises(DataError, match="cannot be drawn on a grid"):
                make(size)
    with pytest.raises(DataError, match="does not fit"):
        Rle((4, 4), (10**30,))


def test_files_of_many_rows(tmp_path: Path) -> None:
    """10,000 rows about one film: nothing may grow with the square of the rows."""
    number = 10_000
    (tmp_path / "CheXlocalize").mkdir()
    rows = {
        "stage_2_train_labels.csv": ("patientId,x,y,width,height,Target", "a,{0},2,3,4,1"),
        "train-rle.csv": ("ImageId, EncodedPixels", "a,{0} 1"),
        "BBox_List_2017.csv": ("Image Index,Finding Label,Bbox [x,y,w,h],,,", "1_0.png,Mass,{0},2,3,4"),
        "annotations_train.csv": ("image_id,rad_id,class_name,x_min,y_min,x_max,y_max", "a,R1,ILD,{0},2,{0}9,4"),
        "annotations.csv": ("image,class,x,y,width,height", "a.png,Mass,{0},2,3,4"),
    }
    for name, (header, row) in rows.items():
        (tmp_path / name).write_text("\n".join([header, *(row.format(i) for i in range(1, number + 1))]))
    options = {"vindr": {"split": "train"}}
    for name in ("rsna", "siim", "chestxray14", "vindr", "csv"):
        (case,) = DATASETS.load(name)(tmp_path, **options.get(name, {})).cases()
        assert len(case.rows) == number, name
    entry = {"file_name": "a.png", "syms": ["Mass"] * number, "boxes": [[1, 2, 3, 4]] * number}
    (tmp_path / "test.json").write_text(json.dumps([entry]))
    assert len(DATASETS.load("chestxdet10")(tmp_path).cases()) == 1
    (tmp_path / "polygons.json").write_text(json.dumps({KEY: {"Edema": [[[1, 2], [3, 4], [5, 6]]] * number}}))
    shapes = read_polygons(tmp_path / "polygons.json", CheXlocalize._keys, ("Edema",), [])
    assert list(shapes.regions) == [KEY]
