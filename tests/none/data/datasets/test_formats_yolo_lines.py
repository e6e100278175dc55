"""Forms of YOLO's lines: boxes, confidences, track ids, key points, oriented boxes and polygons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.checking.note_warnings import note_warnings
from xbench_fast.runtime.data.datasets.formats.yolo import Yolo

BOX = "0 0.5 0.5 0.25 0.5"  # 600 pixels of 60 x 80
QUAD = "0 0.4 0.2 0.6 0.2 0.6 0.8 0.4 0.8"  # 576
POSES_2 = "names: [Mass]\nkpt_shape: [2, 2]\n"
POSES_3 = "names: [Mass]\nkpt_shape: [2, 3]\n"


def make(root: Path, *texts: str, yaml: str = "names: [Mass]\n", **options: Any) -> Yolo:
    (root / "labels").mkdir(exist_ok=True)
    (root / "data.yaml").write_text(yaml)
    for number, text in enumerate(texts):
        (root / f"labels/{number}.txt").write_text(text)
    return Yolo(root, **options)


def areas(dataset: Yolo) -> list[int]:
    return [int(case.regions["Mass"].mask(60, 80).sum()) for case in dataset.cases()]


def kinds(dataset: Yolo) -> set[str]:
    return {note.kind for note in dataset.notes} - {"no_images_folder"}


def test_a_track_id_and_key_points_are_no_points_of_a_polygon(root: Path) -> None:
    dataset = Yolo(root / "tests/cases/yolo-track-id-and-keypoints")
    for case in dataset.cases():
        mask = case.regions["Mass"].mask(60, 80)
        assert mask[15:45, 30:50].all() and mask.sum() == 600
    told = [note.text for note in dataset.notes]
    assert told == [
        "lines with a track id, which are not used: 1",
        "lines with key points, which are not used: 1",
    ]
    assert audit(dataset).passed


@pytest.mark.parametrize(
    ("line", "yaml", "options"),
    [
        (BOX, "names: [Mass]", {}),
        (f"{BOX} 0.9", "names: [Mass]", {}),
        (f"{BOX} 1", "names: [Mass]", {}),
        (f"{BOX} 7", "names: [Mass]", {"track_ids": True}),
        (f"{BOX} 0.9 7", "names: [Mass]", {}),
        (f"{BOX} 0.9 2", "names: [Mass]", {}),
        (f"{BOX} 0.9 1", "names: [Mass]", {"track_ids": True}),
        (f"{BOX} 0.9 1", "names: [Mass]", {"lines": "boxes"}),
        (f"{BOX} 0.9 1", POSES_3, {}),
        (f"{BOX} 0.4 0.4 2 0.6 0.6 2", "names: [Mass]", {}),
        (f"{BOX} 0.4 0.4 2 0.6 0.6 1", "names: [Mass]", {}),
        (f"{BOX} 0.4 0.4 1 0.6 0.6 1", "names: [Mass]", {}),
        (f"{BOX} 0.4 0.4 2 0 0 0", "names: [Mass]", {}),
        (f"{BOX} 0.45 0.45 2{' 0 0 0' * 16}", "names: [Mass]", {}),
        (f"{BOX} 0.4 0.4 1 0.6 0.6 1", POSES_3, {}),
        (f"{BOX} 0.4 0.4 0.6 0.6", POSES_2, {}),
        (f"{BOX} 0.4 0.4 0.6 0.6 0.9", POSES_2, {}),
        (f"{BOX} 0.4 0.4 0.6 0.6 0.9 3", POSES_2, {}),
        (f"{BOX} 0.4 0.4 0.6 0.6 3", POSES_2, {"track_ids": True}),
        (f"{BOX} 0.4 0.4 0.97 0.6 0.6 0.93 0.8 4", POSES_3, {}),
        (f"{BOX} 0.4 0.4", "names: [Mass]\nkpt_shape: [1, 2]", {}),
        (f"{BOX} 0.4 0.4 0.6 0.6", POSES_2, {"classes": ["Mass"]}),
        (f"{BOX} 0.4 0.4 0.6 0.6", "names: [Mass]", {"lines": "poses"}),
        (f"{BOX} 0.4 0.4 0.97 0.6 0.6 0.93 0.8", "names: [Mass]", {"lines": "poses"}),
    ],
)
def test_a_box_with_anything_behind_it(tmp_path: Path, line: str, yaml: str, options: dict[str, Any]) -> None:
    dataset = make(tmp_path, line, yaml=yaml, **options)
    assert areas(dataset) == [600] and kinds(dataset) <= {"unused_columns"}
    few = len(line.split()) == 5 or (len(line.split()) == 6 and not options)
    assert ("unused_columns" in kinds(dataset)) is not few


@pytest.mark.parametrize(
    ("line", "area", "options"),
    [
        (QUAD, 576, {}),
        (f"{QUAD} 0.9", 576, {}),
        (f"{QUAD} 0.9 5", 576, {}),
        (f"{QUAD} 0.9 1", 576, {"track_ids": True}),
        (f"{QUAD} 5", 576, {"track_ids": True}),
        ("0 0.5 0.2 0.8 0.8 0.2 0.8", 864, {}),
        ("0 0.5 0.2 0.8 0.8 0.2 0.8 0.4", 864, {}),
        ("0 0.5 0.5 0 0.5 0.4 1", 600, {}),  # no box, which would have no width
        ("0 0 0 1 0 1 1 0 1", 4800, {}),  # the rim is no column of track ids
        (f"{BOX} 0.9 1", 300, {"lines": "polygons"}),
        (f"{BOX} 0.4 0.4", 60, {"lines": "polygons"}),
        (QUAD, 576, {"lines": "polygons", "yaml": POSES_2}),
    ],
)
def test_a_polygon_with_anything_behind_it(tmp_path: Path, line: str, area: int, options: dict[str, Any]) -> None:
    dataset = make(tmp_path, line, **options)
    assert areas(dataset) == [area] and kinds(dataset) <= {"unused_columns"}


def test_all_lines_of_a_dataset_decide_together(tmp_path: Path) -> None:
    """A track id of 1 alone could be a coordinate; beside one of 7 it is none."""
    assert areas(make(tmp_path, f"{BOX} 0.9 1", f"{BOX} 0.9 7")) == [600, 600]
    assert areas(make(tmp_path, BOX, f"{BOX} 0.9 7")) == [600, 600]
    assert areas(make(tmp_path, f"{BOX} 0.9", f"{BOX} 0.9 7")) == [600, 600]
    assert areas(make(tmp_path, BOX, QUAD)) == [600, 576]
    # A triangle elsewhere is no box, so 7 columns are triangles.
    assert areas(make(tmp_path, f"{BOX} 0.4 0.4", "0 0.9 0.9 0.5 0.5 0.1 0.9")) == [60, 768]


@pytest.mark.parametrize(
    ("line", "yaml", "options", "sentence"),
    [
        (f"{BOX} 0.9 1", "", {}, "7 columns can be a polygon of three points, or a box .* the track id 1 in the last"),
        (f"{BOX} 0.9 0", "", {}, "the track id 0 in the last column; set the option track_ids, or lines to polygons"),
        (f"{QUAD} 0.9 1", "", {}, "11 columns can be a polygon of 5 points, or a polygon with its confidence and the"),
        (f"{BOX} 0.9 1\n0 0.9 0.1 0.8 0.2 0.7 0.4 0.9 0.3", "", {}, "row 1: 7 columns can be a polygon of three po"),
        (f"{BOX} 7", "", {}, "6 numbers, so the last one is a confidence, and 7 is not from 0 to 1; where it is a tr"),
        (f"{QUAD} 5", "", {}, "10 numbers, so the last one is a confidence, and 5 is not"),
        (f"{BOX} 7", "", {"lines": "boxes"}, "where it is a track id, set the option track_ids"),
        (f"{BOX} 1.2 7", "", {}, "7 numbers, so the last but one is a confidence, and 1.2 is not from 0 to 1"),
        (f"{BOX} 0.9 7.5", "", {"track_ids": True}, "the last one is a track id, and 7.5 is not a whole number"),
        (
            QUAD,
            "",
            {"lines": "boxes"},
            "9 columns are not a box .5; 6 with a confidence; 7 with a track id too.; state",
        ),
        (QUAD, POSES_3, {}, r"9 columns are not a box .* or a box with 2 key points of 3 numbers \(11 to 13\)"),
        (BOX, "kpt_shape: 17", {"line": QUAD}, r"data\.yaml: kpt_shape is 17, not the number of key points"),
        (QUAD, "kpt_shape: [17, 4]", {}, r"kpt_shape is \[17, 4\], not"),
        (QUAD, "kpt_shape: [true, 2]", {}, r"kpt_shape is \[True, 2\], not"),
        (QUAD, "kpt_shape: [0, 2]", {}, r"kpt_shape is \[0, 2\], not"),
        (
            "0 0.5 0.5 0.9 0.9 2 0.6 0.6",
            "",
            {},
            "8 columns are neither a box .* nor a polygon; state it in the option lines",
        ),
        (f"{BOX} 7", "", {"track_ids": True, "confidence": 0.5}, "the line has no confidence with a track id"),
    ],
)
def test_what_can_be_two_things_is_refused(
    tmp_path: Path, line: str, yaml: str, options: dict[str, Any], sentence: str
) -> None:
    line = options.pop("line", line)
    text = yaml if "names" in yaml else f"names: [Mass]\n{yaml}"
    with pytest.raises(DataError, match=sentence):
        make(tmp_path, line, yaml=text, **options)


def test_a_line_that_only_its_form_makes_likely_fails_the_audit(tmp_path: Path) -> None:
    """Key points in a box, or a polygon whose points lie in the box that its first four numbers would be."""
    poses = make(tmp_path, f"{BOX} 0.4 0.4 0.6 0.6")
    square = make(tmp_path, "0 0.4 0.4 0.6 0.4 0.6 0.6 0.4 0.6")
    closed = make(tmp_path, "0 0.4 0.4 0.6 0.4 0.6 0.6 0.4 0.6 0.4 0.4")
    triangle = make(tmp_path, "0 0.4 0.4 0.6 0.4 0.5 0.6")
    assert [areas(each) for each in (poses, square, closed, triangle)] == [[600], [192], [192], [96]]
    for dataset, told in (
        (poses, "lines of 9 columns: 1, read as boxes with 2 key points; they can be polygons too, so set the option"),
        (square, "lines of 9 columns: 1, read as polygons; they can be boxes with 2 key points too"),
        (triangle, "read as polygons; they can be boxes with a key point too"),
    ):
        (warning,) = note_warnings(dataset.notes).values()
        assert told in warning and not audit(dataset).passed


def test_confidences_are_found_before_track_ids_and_behind_key_points(tmp_path: Path) -> None:
    lines = f"{BOX} 0.3 4\n0 0.2 0.2 0.1 0.1 0.8 5"
    assert areas(make(tmp_path, lines, confidence=0.5)) == [48]
    pose = "0.4 0.4 2 0.6 0.6 2"
    assert make(tmp_path, f"{BOX} {pose} 0.3", confidence=0.5, yaml=POSES_3).cases()[0].labels == {"Mass": 0}
    assert areas(make(tmp_path, f"{BOX} {pose} 0.6", confidence=0.5, yaml=POSES_3)) == [600]


def test_kpt_shape_is_part_of_the_key_and_options_are_checked(tmp_path: Path) -> None:
    dataset = make(tmp_path, QUAD, classes=["Mass"])
    assert dataset.sources() == [tmp_path / "data.yaml", tmp_path / "labels/0.txt"]
    assert make(tmp_path, BOX, classes=["Mass"]).sources() == [tmp_path / "labels/0.txt"]
    with pytest.raises(ConfigError, match="'lines' of the dataset 'yolo' cannot be 'obb'"):
        make(tmp_path, BOX, lines="obb")
    with pytest.raises(ConfigError, match="'track_ids' of the dataset 'yolo' must be true or false"):
        make(tmp_path, BOX, track_ids=1)


@pytest.mark.parametrize("seed", range(6))
def test_key_points_and_polygons_of_many_images_are_told_apart(tmp_path: Path, seed: int) -> None:
    """Random boxes with two key points each, and random outlines around a centre."""
    rng = np.random.default_rng(seed)
    poses, outlines = [], []
    for _ in range(20):
        wide, high = rng.uniform(0.1, 0.5, 2)
        x, y = rng.uniform(wide / 2, 1 - wide / 2), rng.uniform(high / 2, 1 - high / 2)
        points = rng.uniform(-0.5, 0.5, (2, 2)) * (wide, high) + (x, y)
        flags = rng.integers(0, 3, 2)
        behind = " ".join(f"{px:.6f} {py:.6f} {flag}" for (px, py), flag in zip(points, flags, strict=True))
        poses.append(f"0 {x:.6f} {y:.6f} {wide:.6f} {high:.6f} {behind}")
        angles = np.sort(rng.uniform(0, 2 * np.pi, 4 + int(rng.integers(5))))
        ring = np.stack([x + np.cos(angles) * wide / 2, y + np.sin(angles) * high / 2], 1)
        outlines.append("0 " + " ".join(f"{value:.6f}" for value in ring.ravel()))
    assert kinds(make(tmp_path, *poses)) == {"unused_columns"}
    assert kinds(make(tmp_path, *outlines)) <= {"degenerate"}
