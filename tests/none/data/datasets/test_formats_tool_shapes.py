"""Shapes as tools beside the first one write them: X-AnyLabeling, roLabelImg, Roboflow, CVAT and its converters."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.dataset import Dataset
from xbench_fast.runtime.data.datasets.formats.cvat import Cvat
from xbench_fast.runtime.data.datasets.formats.labelme import LabelMe
from xbench_fast.runtime.data.datasets.formats.voc import PascalVoc
from xbench_fast.runtime.data.datasets.formats.yolo import Yolo

HEIGHT, WIDTH = 60, 80
CORNERS = [[10, 20], [40, 20], [40, 35], [10, 35]]
BNDBOX = "<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>40</xmax><ymax>35</ymax></bndbox>"
DEGREES = "<attributes><attribute><name>{}</name><value>{}</value></attribute></attributes>"


def labelme(root: Path, *shapes: dict[str, Any], **more: Any) -> LabelMe:
    document = {"shapes": [{"label": "Mass"} | shape for shape in shapes], "imagePath": "a.png"} | more
    (root / "a.json").write_text(json.dumps(document))
    return LabelMe(root, annotations=".")


def voc(root: Path, content: str, head: str = "", **options: Any) -> PascalVoc:
    (root / "Annotations").mkdir(exist_ok=True)
    text = f"<annotation>{head}<object><name>Mass</name>{content}</object></annotation>"
    (root / "Annotations/a.xml").write_text(text)
    return PascalVoc(root, **options)


def cvat(root: Path, content: str) -> Cvat:
    image = f'<image name="a.png" width="{WIDTH}" height="{HEIGHT}">{content}</image>'
    (root / "annotations.xml").write_text(f"<annotations>{image}</annotations>")
    return Cvat(root)


def drawn(dataset: Dataset) -> NDArray[np.bool_]:
    return dataset.cases()[0].regions["Mass"].mask(HEIGHT, WIDTH)


def told(dataset: Dataset) -> list[tuple[str, str]]:
    dataset.cases()
    return [(note.kind, note.text) for note in dataset.notes if note.kind != "no_images_folder"]


def turned(x: float, y: float, wide: float, high: float, angle: float) -> list[tuple[float, float]]:
    """The corners of a box that is turned by radians, by complex numbers."""
    half = (complex(-wide, -high), complex(wide, -high), complex(wide, high), complex(-wide, high))
    points = [complex(x, y) + corner / 2 * complex(math.cos(angle), math.sin(angle)) for corner in half]
    return [(point.real, point.imag) for point in points]


def test_a_rectangle_of_four_points(root: Path) -> None:
    dataset = LabelMe(root / "tests/cases/labelme-xanylabeling-rectangle")
    mask = drawn(dataset)
    assert mask[20:35, 10:40].all() and mask.sum() == 450 and not dataset.notes and audit(dataset).passed


@pytest.mark.parametrize(
    "shape",
    [
        {"shape_type": "rectangle", "points": CORNERS},
        {"shape_type": "rectangle", "points": [CORNERS[place] for place in (2, 0, 3, 1)]},
        {"shape_type": "rectangle", "points": [*CORNERS, CORNERS[0]]},
        {"shape_type": "rectangle", "points": [[str(x), str(y)] for x, y in CORNERS]},
        {"shape_type": "rectangle", "points": [CORNERS[2], CORNERS[0]], "direction": 0, "attributes": {}},
        {"shape_type": "rectangle", "points": [CORNERS[3], CORNERS[1]], "difficult": False, "score": None},
        {"shape_type": "rotation", "points": CORNERS, "direction": 0},
        {"shape_type": "rotation", "points": CORNERS, "direction": 3 * math.pi / 2},
        {"shape_type": "obb", "points": CORNERS},
    ],
)
def test_one_rectangle_in_every_form_of_labelme(tmp_path: Path, shape: dict[str, Any]) -> None:
    dataset = labelme(tmp_path, shape)
    mask = drawn(dataset)
    assert mask[20:35, 10:40].all() and mask.sum() == 450 and not told(dataset)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ({"shape_type": "rectangle", "points": CORNERS[:3]}, "a rectangle has 3 points, it needs 2 or 4"),
        ({"shape_type": "rotation", "points": CORNERS[:2]}, "a rotation has 2 points, it needs 4"),
        (
            {"shape_type": "rectangle", "points": CORNERS[::2], "direction": 1.5},
            "has 2 points and is turned by 1.5; st",
        ),
        ({"shape_type": "rectangle", "points": CORNERS[::2], "attributes": {"rotation": 30}}, "is turned by 30; state"),
        ({"shape_type": "quadrilateral", "points": CORNERS[:3]}, "the quadrilateral has 3 points, it needs 4"),
        ({"shape_type": "cuboid", "points": CORNERS * 2}, "the shape_type 'cuboid' is not read"),
    ],
)
def test_a_rectangle_that_is_not_known_is_refused(tmp_path: Path, shape: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=rf"a\.json, row 1: .*{sentence}"):
        labelme(tmp_path, shape)


def test_marks_flags_and_angles_that_do_not_fit_are_told(tmp_path: Path) -> None:
    box = {"shape_type": "rectangle", "points": CORNERS}
    other = {"shape_type": "rectangle", "points": [[1, 1], [5, 5]], "flags": {"difficult": True}}
    notes = dict(told(labelme(tmp_path, box | {"difficult": True}, box | {"flags": {"difficult": True}}, other)))
    assert notes["crowd"] == "regions marked difficult: 2 in 1 images; they count as regions"
    ((kind, text),) = told(labelme(tmp_path, box | {"direction": 0.5}))
    assert kind == "disagreement" and "has the direction 0.5, but its points are not turned" in text
    dataset = labelme(tmp_path, box, flags={"mass": True, "reviewed": True, "blurred": False})
    assert dataset.cases()[0].labels == {"Mass": 1}
    assert ("other_flag", "the flag 'reviewed' is true for 1 images and names no class; not used") in told(dataset)
    dataset = labelme(tmp_path, box, flags={"No finding": True})
    assert [kind for kind, _ in told(dataset)] == ["disagreement"]
    with pytest.raises(DataError, match=r"it has no list 'shapes', .*; \[\] says that nothing was found"):
        labelme(tmp_path, shapes=None)


def test_a_flag_of_the_image_that_names_a_class_makes_it_positive(tmp_path: Path) -> None:
    for name, flags in (("a", {"Mass": True}), ("b", {"Mass": False}), ("c", {"Effusion": True, "Rib": True})):
        (tmp_path / f"{name}.json").write_text(json.dumps({"shapes": [], "flags": flags}))
    cases = LabelMe(tmp_path, annotations=".", classes=["Mass", "Effusion"]).cases()
    assert [list(case.labels.values()) for case in cases] == [[1, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize("value", ["90", "90.0", "-90", "270"])
def test_a_rotation_beside_a_box_of_voc_turns_it(tmp_path: Path, value: str) -> None:
    box = "<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>50</xmax><ymax>28</ymax></bndbox>"
    for name in ("rotation", "Rotation"):
        mask = drawn(voc(tmp_path, box + DEGREES.format(name, value)))
        assert mask[4:44, 26:34].all() and mask.sum() == 320
    for untouched in ("", DEGREES.format("rotation", "0.0"), DEGREES.format("rotation", ""), DEGREES.format("a", "9")):
        mask = drawn(voc(tmp_path, box + untouched))
        assert mask[20:28, 10:50].all() and mask.sum() == 320


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (f"{BNDBOX}<angle>0.5</angle>", "the box of 'Mass' has the angle 0.5, whose unit is not known; write an attr"),
        (BNDBOX.replace("</bndbox>", "<rotation>30</rotation></bndbox>"), "has the rotation 30, whose unit is not"),
        (BNDBOX + DEGREES.format("rotation", "left"), "rotation is 'left', not a number"),
        (BNDBOX * 2, "the object 'Mass' has 2 elements bndbox; write an object for each"),
        ("<robndbox><cx>1</cx></robndbox>", "cy of <robndbox> is '', not a number"),
        ("<polygon><x1>1</x1><y1>1</y1></polygon>", "a polygon of 'Mass' has 1 points, it needs 3"),
        ("<polygon/>", "has no bndbox; only boxes are read, also turned ones"),
    ],
)
def test_an_object_of_voc_that_is_not_known_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"a\.xml, row 1: .*{sentence}"):
        voc(tmp_path, content)


def test_polygons_parts_and_marks_of_voc(tmp_path: Path) -> None:
    numbered = "".join(f"<x{n}>{x}</x{n}><y{n}>{y}</y{n}>" for n, (x, y) in enumerate(CORNERS, 1))
    points = "<username/>" + "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in CORNERS)
    for outline in (numbered, points):
        wider = BNDBOX.replace("40", "70")
        mask = drawn(voc(tmp_path, f"{wider}<polygon>{outline}</polygon>"))
        assert mask[20:35, 10:40].all() and mask.sum() == 450
    assert drawn(voc(tmp_path, f"<polygon>{numbered}</polygon>", polygons="outline")).sum() == 496
    assert drawn(voc(tmp_path, f"{BNDBOX}<polygon/>")).sum() == 450
    dataset = voc(tmp_path, f"{BNDBOX}<difficult>1</difficult><truncated>1</truncated><part><name>x</name></part>")
    assert dict(told(dataset)) == {
        "crowd": "regions marked difficult: 1 in 1 images; they count as regions",
        "unused_parts": "parts of objects, which are not used: 1",
    }
    assert not told(voc(tmp_path, f"{BNDBOX}<difficult>0</difficult>"))
    removed = f"{BNDBOX}</object><object><name>Rib</name><deleted>1</deleted>{BNDBOX}"
    assert voc(tmp_path, removed).classes == ("Mass",)
    size = "<size><width>0</width><height>0</height></size>"
    assert voc(tmp_path, BNDBOX, size).cases()[0].size is None


def test_rotations_and_shapes_outside_of_cvat(tmp_path: Path) -> None:
    box = '<box label="Mass" xtl="10" ytl="20" xbr="50" ybr="28"{}>{}</box>'
    turning = '<attribute name="rotation">90.0</attribute>'
    for native, attribute in ((' rotation="90"', ""), ("", turning), (' rotation="90"', turning)):
        mask = drawn(cvat(tmp_path, box.format(native, attribute)))
        assert mask[4:44, 26:34].all() and mask.sum() == 320
    assert drawn(cvat(tmp_path, box.format(' rotation="0"', turning))).sum() == 320
    assert drawn(cvat(tmp_path, box.format(' occluded="1" z_order="2"', '<attribute name="rotation"></attribute>')))[
        20, 10
    ]
    dataset = cvat(tmp_path, box.format("", "") + '<box label="Mass" outside="1" xtl="0" ytl="0" xbr="9" ybr="9"/>')
    assert drawn(dataset).sum() == 320
    assert told(dataset) == [("unused_parts", "shapes that are outside of their image, which are not used: 1")]
    with pytest.raises(DataError, match="row 1: the polygon of 'Mass' has a rotation; only boxes and ellipses can"):
        cvat(tmp_path, '<polygon label="Mass" points="1,1;4,1;4,3" rotation="30"/>')
    with pytest.raises(DataError, match="the attribute rotation is 'up', not a number"):
        cvat(tmp_path, box.format("", '<attribute name="rotation">up</attribute>'))


def test_images_of_one_name_in_two_subsets_of_cvat(tmp_path: Path) -> None:
    image = '<image name="{}" subset="{}" width="80" height="60"><tag label="Mass"/></image>'
    for places, names in (
        ((("a.png", "train"), ("a.png", "test"), ("b.png", "test")), ["train/a", "test/a", "b"]),
        ((("x/a.png", ""), ("a.png", "test")), ["x/a", "a"]),
    ):
        body = "".join(image.format(*place) for place in places)
        (tmp_path / "annotations.xml").write_text(f"<annotations>{body}</annotations>")
        assert [case.case_id for case in Cvat(tmp_path).cases()] == names
    (tmp_path / "annotations.xml").write_text(f"<annotations>{image.format('a.png', 't') * 2}</annotations>")
    with pytest.raises(DataError, match="annotated before"):
        Cvat(tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_every_form_draws_the_same_box(tmp_path: Path, seed: int) -> None:
    """A random box, upright and turned, in the forms of all tools; the oracle asks each centre on its own."""
    rng = np.random.default_rng(seed)
    wide, high = rng.uniform(5, 30, 2).tolist()
    x, y = rng.uniform((20, 20), (60, 40)).tolist()
    for angle in (0.0, float(rng.uniform(-3, 3))):
        corners = turned(x, y, wide, high, angle)
        rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
        place = ((columns - x) + 1j * (rows - y)) * np.exp(-1j * angle)
        expected = (abs(place.real) <= wide / 2) & (abs(place.imag) <= high / 2)
        flat = " ".join(f"{px / WIDTH:.12f} {py / HEIGHT:.12f}" for px, py in corners)
        upright = f"0 {x / WIDTH:.12f} {y / HEIGHT:.12f} {wide / WIDTH:.12f} {high / HEIGHT:.12f}"
        around = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        low_high = "".join(
            f"<{key}>{value!r}</{key}>" for key, value in zip(("xmin", "ymin", "xmax", "ymax"), around, strict=True)
        )
        degrees = DEGREES.format("rotation", repr(math.degrees(angle)))
        centre = f"<cx>{x!r}</cx><cy>{y!r}</cy><w>{wide!r}</w><h>{high!r}</h><angle>{angle!r}</angle>"
        places = " ".join(f'{key}="{value!r}"' for key, value in zip(("xtl", "ytl", "xbr", "ybr"), around, strict=True))
        points = ";".join(f"{px!r},{py!r}" for px, py in corners)
        forms: list[Dataset] = [
            labelme(tmp_path, {"shape_type": "rotation", "points": corners, "direction": angle % (2 * math.pi)}),
            labelme(tmp_path, {"shape_type": "rectangle", "points": [corners[place] for place in (0, 2, 1, 3)]}),
            voc(tmp_path, f"<bndbox>{low_high}</bndbox>{degrees}", origin=0),
            voc(tmp_path, f"<robndbox>{centre}</robndbox>"),
            cvat(tmp_path, f'<box label="Mass" {places} rotation="{math.degrees(angle)!r}"/>'),
            cvat(tmp_path, f'<polygon label="Mass" points="{points}"/>'),
        ]
        lines = [f"0 {flat}", f"0 {flat} 0.9", f"0 {flat} 0.9 7"]
        if not angle:
            lines += [upright, f"{upright} 0.9", f"{upright} 0.9 7", f"{upright} 0 0 0 0 0 2"]
        for number, line in enumerate(lines):
            (tmp_path / str(number)).mkdir(exist_ok=True)
            (tmp_path / f"{number}/a.txt").write_text(line)
            forms.append(Yolo(tmp_path, annotations=str(number), classes=["Mass"], lines="auto"))
        for number, dataset in enumerate(forms):
            np.testing.assert_array_equal(drawn(dataset), expected, err_msg=f"{number} {angle}")
