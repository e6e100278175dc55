"""Pascal VOC, LabelMe and CVAT: what their files can say, and files that cannot serve."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.cvat import Cvat
from xbench_fast.runtime.data.datasets.formats.labelme import LabelMe
from xbench_fast.runtime.data.datasets.formats.voc import PascalVoc

BOX = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>4</xmax><ymax>5</ymax></bndbox>"
OBJECT = f"<object><name>Mass</name>{BOX}</object>"


def voc(root: Path, body: str = OBJECT, **options: Any) -> PascalVoc:
    (root / "Annotations").mkdir(exist_ok=True)
    (root / "images").mkdir(exist_ok=True)
    size = "<size><width>12</width><height>10</height></size>"
    (root / "Annotations/a.xml").write_text(f"<annotation>\n<filename>b.png</filename>{size}\n{body}</annotation>")
    return PascalVoc(root, **options)


def labelme(root: Path, *shapes: object, **more: Any) -> LabelMe:
    (root / "images").mkdir(exist_ok=True)
    document = {"shapes": shapes, "imageHeight": 10, "imageWidth": 12, "imagePath": "..\\x\\b.png", **more}
    (root / "images/a.json").write_text(json.dumps(document))
    return LabelMe(root)


def drawn(kind: str, *points: list[float], **more: Any) -> dict[str, Any]:
    return {"label": "Mass", "shape_type": kind, "points": points, **more}


def cvat(root: Path, body: str, head: str = "", **options: Any) -> Cvat:
    (root / "images").mkdir(exist_ok=True)
    image = f'<image id="0" name="p/a.png" width="12" height="10">\n{body}</image>'
    (root / "annotations.xml").write_text(f"<annotations>{head}\n{image}</annotations>")
    return Cvat(root, **options)


def mask(dataset: PascalVoc | LabelMe | Cvat) -> Any:
    return dataset.cases()[0].regions["Mass"].mask(10, 12)


def test_corners_of_voc_count_from_one_or_zero(tmp_path: Path) -> None:
    (one,) = voc(tmp_path).cases()
    assert one.size == (10, 12) and one.regions["Mass"].mask(10, 12)[1:5, :4].all()
    assert mask(voc(tmp_path)).sum() == 16 and mask(voc(tmp_path, origin=0)).sum() == 9
    assert not voc(tmp_path).notes[1:]
    zero = OBJECT.replace("<xmin>1", "<xmin>0")
    dataset = voc(tmp_path, zero)
    assert [(note.kind, note.row) for note in dataset.notes] == [("disagreement", 3)]
    assert "if this tool counts from 0, set the option origin to 0" in dataset.notes[0].text
    assert not voc(tmp_path, zero, origin=0).notes
    with pytest.raises(ConfigError, match="'origin' of the dataset 'voc' must be 1 or 0, not 2"):
        voc(tmp_path, origin=2)


def test_an_image_is_found_by_its_file_and_else_by_what_the_annotation_calls_it(tmp_path: Path) -> None:
    for dataset in (voc, labelme):
        root = tmp_path / dataset.__name__
        root.mkdir()
        (root / "images").mkdir()
        (root / "images/b.png").write_bytes(encode(np.eye(10, dtype=np.uint8), "PNG"))
        made = voc(root) if dataset is voc else labelme(root, drawn("rectangle", [1, 1], [5, 5]))
        assert made.cases()[0].image == root / "images/b.png"
        (root / "images/a.png").write_bytes(encode(np.eye(10, dtype=np.uint8), "PNG"))
        made = voc(root) if dataset is voc else labelme(root, drawn("rectangle", [1, 1], [5, 5]))
        assert made.cases()[0].image == root / "images/a.png"
        assert [note.kind for note in made.notes] == ["disagreement", "not_annotated"]
        assert "but names b.png inside, which is there too; a.png is used" in made.notes[0].text


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("<object><name>Mass</name></object>", "row 3: the object 'Mass' has no bndbox; only boxes are read"),
        (f"<object>{BOX}</object>", "row 3: the object has no name"),
        (OBJECT.replace("<xmin>1", "<xmin>one"), "row 3: xmin of <bndbox> is 'one', not a number"),
        (OBJECT.replace("<xmin>1", "<xmin>9"), r"row 3: the box \[8, 1, 4, 5\] of 'Mass' ends before it begins"),
        ("<object>", r"a\.xml is not an XML file: mismatched tag: line 3"),
        ("<!DOCTYPE a>", r"a\.xml: it has a document type, which is not read; remove"),
        ("\0", "its text is neither UTF-8 nor UTF-16"),
        ("<size/>", r"<annotation> has <size> twice"),
    ],
)
def test_a_file_of_voc_that_cannot_serve(tmp_path: Path, body: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        voc(tmp_path, body)


def test_other_xml_and_its_root(tmp_path: Path) -> None:
    voc(tmp_path)
    (tmp_path / "Annotations/a.xml").write_text("<html><p/></html>")
    with pytest.raises(DataError, match=r"a\.xml, row 1: it begins with <html>, not with <annotation>"):
        PascalVoc(tmp_path)
    (tmp_path / "Annotations/a.xml").write_text("<?xml version='1.0' encoding='x-no'?><annotation/>")
    with pytest.raises(DataError, match="is not an XML file: unknown encoding"):
        PascalVoc(tmp_path)
    (tmp_path / "Annotations/a.xml").write_text(
        "<annotation><size><width>1e9</width><height>9</height></size></annotation>"
    )
    with pytest.raises(DataError, match=r"a\.xml: A region cannot be drawn on a grid of 9 x 1000000000"):
        PascalVoc(tmp_path)


def test_every_shape_of_labelme(tmp_path: Path) -> None:
    png = base64.b64encode(encode(np.array([[0, 255], [255, 255]], np.uint8), "PNG")).decode()
    four = [[1, 1], [4, 1], [4, 3], [1, 3]]
    for shape, area in (
        (drawn("rectangle", [4, 3], [1, 1]), 6),
        (drawn("polygon", *four), 12),  # LabelMe's own masks hold the outline too
        ({"label": "Mass", "points": four}, 12),
        (drawn("oriented_rectangle", *four), 12),
        (drawn("circle", [5, 5], [5, 7]), 12),
        (drawn("mask", [3, 4], [4, 5], mask=png), 3),
    ):
        dataset = labelme(tmp_path, shape)
        assert mask(dataset).sum() == area and not dataset.notes, shape
    dataset = labelme(tmp_path, drawn("line", [1, 1], [4, 4]), drawn("point", [1, 1]))
    (case,) = dataset.cases()
    assert case.labels == {"Mass": 1} and not case.regions
    assert [note.kind for note in dataset.notes] == ["degenerate", "degenerate"]


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ({"points": []}, "row 1: the shape has no label"),
        (drawn("cube", [1, 1]), "row 1: the shape_type 'cube' is not read"),
        (drawn("circle", [1, 1]), "row 1: a circle has 1 points, it needs 2"),
        (drawn("polygon", [1, 1], [2, 2]), "row 1: a polygon of 'Mass' has 2 points, it needs 3"),
        (drawn("polygon", [1, 1], [2, 2], [1e9, 1]), "row 1: A polygon has a point more than 65536 pixels away"),
        (drawn("polygon", [1], [2, 2]), "row 1: points is not a list of pairs"),
        (drawn("rectangle", [1, 1], ["x", 2]), "row 1: a point is 'x', not a number"),
        (drawn("mask", [3, 4], [4, 5]), "row 1: the mask of 'Mass' needs its PNG in the key mask"),
        (drawn("mask", [3, 4], [4, 5], mask="??"), "row 1: the mask of 'Mass' cannot be read: "),
        (drawn("mask", [3, 4], [4, 5], mask="aaaa"), "row 1: the mask of 'Mass' cannot be read: it is not a PNG file"),
    ],
)
def test_a_shape_of_labelme_that_cannot_be_read(tmp_path: Path, shape: object, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"a\.json, {sentence}"):
        labelme(tmp_path, shape)


def test_masks_that_do_not_fit_and_other_json(tmp_path: Path) -> None:
    png = base64.b64encode(encode(np.ones((2, 2), np.uint8), "PNG")).decode()
    with pytest.raises(DataError, match=r"row 1: the mask of 'Mass' is 2 x 2, its points say 3 x 2"):
        labelme(tmp_path, drawn("mask", [3, 4], [5, 5], mask=png))
    with pytest.raises(DataError, match=r"row 1: the mask of 2 x 2 at 11, 9 leaves its image of 12 x 10"):
        labelme(tmp_path, drawn("mask", [11, 9], [12, 10], mask=png))
    with pytest.raises(DataError, match="height 0 and width 12 are not a size"):
        labelme(tmp_path, imageHeight=0)
    (tmp_path / "images/a.json").write_text("[]")
    with pytest.raises(DataError, match="it has no list 'shapes', so it is not LabelMe's form"):
        LabelMe(tmp_path)


def test_every_shape_of_cvat(tmp_path: Path) -> None:
    for body, area in (
        ('<box label="Mass" xtl="1.4" ytl="2.6" xbr="4.4" ybr="4.6"/>', 6),
        ('<box label="Mass" xtl="1" ytl="4" xbr="7" ybr="6" rotation="90.0"/>', 12),
        ('<polygon label="Mass" points="1,1;4,1;4,3;1,3"/>', 6),
        ('<ellipse label="Mass" cx="5" cy="5" rx="2" ry="2"/>', 12),
        ('<ellipse label="Mass" cx="5" cy="5" rx="3" ry="0.6" rotation="90"/>', 8),
        ('<mask label="Mass" rle="0, 1, 2, 3" left="2" top="3" width="3" height="2"/>', 4),
    ):
        dataset = cvat(tmp_path, body)
        assert mask(dataset).sum() == area and not dataset.notes, body
        assert dataset.cases()[0].case_id == "p/a" and dataset.cases()[0].rows == (2,)
    turned = mask(cvat(tmp_path, '<box label="Mass" xtl="1" ytl="4" xbr="7" ybr="6" rotation="90.0"/>'))
    assert turned[2:8, 3:5].all()
    for shape in (
        'box label="Mass" xtl="1" ytl="4" xbr="7" ybr="6"',
        'ellipse label="Mass" cx="4" cy="5" rx="3" ry="1"',
    ):
        down = mask(cvat(tmp_path, f'<{shape} rotation="45"/>'))  # from x towards y: clockwise
        assert down[6, 5] and down[3, 2] and not down[3, 5] and not down[6, 2]
    runs = mask(cvat(tmp_path, '<mask label="Mass" rle="0, 1, 2, 3" left="2" top="3" width="3" height="2"/>'))
    assert runs[3, 2] and runs[4, 2:5].all()


def test_labels_tags_and_shapes_without_an_area_of_cvat(tmp_path: Path) -> None:
    names = "".join(f"<label><name>{name}</name></label>" for name in ("Rib", "Mass", "Normal"))
    head = f"<meta><job><labels>{names}</labels></job></meta>"
    dataset = cvat(tmp_path, '<tag label="Mass"/><points label="Rib" points="1,1"/>', head)
    (case,) = dataset.cases()
    assert dataset.classes == ("Rib", "Mass") and case.labels == {"Rib": 1, "Mass": 1} and not case.regions
    assert [note.kind for note in dataset.notes] == ["degenerate"]
    (case,) = cvat(tmp_path, '<tag label="Normal"/>', head, classes=["Mass"]).cases()
    assert case.labels == {"Mass": 0}
    found = audit(cvat(tmp_path, '<tag label="Rib"/>', head, classes=["Mass"]))
    assert found.unknown_classes == {"Rib": 1} and not found.passed


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('<box label="Mass" xtl="1" ytl="1" xbr="4"/>', r"row 3: ybr of <box> is '', not a number"),
        ('<box xtl="1"/>', "row 3: <box> has no label"),
        ('<cuboid label="Mass"/>', "row 3: <cuboid> is not read; boxes, polygons"),
        ('<polygon label="Mass" points="1 1;2,2"/>', "row 3: the points of <polygon> are not of the form"),
        ('<ellipse label="Mass" cx="1" cy="1" rx="-1" ry="1"/>', "row 3: an ellipse of 'Mass' has a negative radius"),
        ('<mask label="Mass" rle="1, 2" left="0" top="0" width="2" height="2"/>', "do not fill its 2 x 2 pixels"),
        ('<mask label="Mass" rle="4" left="11" top="0" width="2" height="2"/>', "leaves its image of 12 x 10"),
        ('<mask label="Mass" rle="a" left="0" top="0" width="2" height="2"/>', "do not fill"),
    ],
)
def test_a_shape_of_cvat_that_cannot_be_read(tmp_path: Path, body: str, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"annotations\.xml, row 3.*{sentence.removeprefix('row 3')}"):
        cvat(tmp_path, body)


def test_files_of_cvat_that_cannot_serve(tmp_path: Path) -> None:
    tag = '<tag label="Mass"/>'
    with pytest.raises(DataError, match=r"it has tracks of a video; export the task as .CVAT for images 1\.1."):
        cvat(tmp_path, tag, "<track id='0'/>")
    with pytest.raises(DataError, match=r"the image 'p/a\.jpg' was annotated before"):
        cvat(tmp_path, f'{tag}</image><image name="p/a.jpg" width="12" height="10">')
    with pytest.raises(DataError, match="row 1: the size of the image is 0 x 10"):
        cvat(tmp_path, tag, '<image name="p/b.png" width="0" height="10"/>')
    with pytest.raises(DataError, match="leads out of the folder"):
        cvat(tmp_path, tag, '<image name="../b.png" width="2" height="10"/>').cases()


def test_boxes_of_larger_images_are_told_and_mended(tmp_path: Path) -> None:
    """Four images of 20 x 20 that are copies of 100 x 100; LabelMe states the size, where one asks it to."""
    (tmp_path / "images").mkdir()
    for number in range(4):
        (tmp_path / f"images/{number}.png").write_bytes(encode(np.eye(20, dtype=np.uint8), "PNG"))
        shapes = [drawn("rectangle", [40, 5 * number], [90, 60])]
        (tmp_path / f"images/{number}.json").write_text(json.dumps({"shapes": shapes}))
    found = audit(LabelMe(tmp_path))
    assert (
        not found.passed and "state the size of the annotated images in imageHeight and imageWidth" in found.warnings[0]
    )
    for file in (tmp_path / "images").glob("*.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "imageHeight": 100, "imageWidth": 100}))
    assert audit(LabelMe(tmp_path)).passed
