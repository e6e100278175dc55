"""The diagnosis of a wrong frame (docs/boxes.md §5)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_files import CLASSES, written
from xbench_fast.runtime.data.answers.frame_check import frame_check, out_of_view
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

W, H = 2544, 3056


def world(count: int = 40) -> Questions:
    """Images with two boxes of one finding each, in the left half."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(count):
        x, y = rng.uniform(50, W / 2 - 700, 2), rng.uniform(50, H - 800, 2)
        boxes = tuple((a, b, a + rng.uniform(300, 600), b + rng.uniform(300, 600)) for a, b in zip(x, y, strict=True))
        cases.append(Case(f"{number}", Path(f"{number}.png"), {"Mass": 1}, {"Mass": Boxes(boxes)}, "test", size=(H, W)))
    return Questions(cases, CLASSES)


def told(folder: Path, change: Any, questions: Questions | None = None, **header: Any) -> str:
    """What is said of a file whose boxes are `change` of the true ones, float64 [2, 4]."""
    questions = questions or world()
    lines = [
        {"case": case.case_id, "finding": "Mass", "boxes": change(np.array(case.regions["Mass"].corners)).tolist()}  # type: ignore[attr-defined]
        for case in questions.cases
    ]
    file = read_boxes(written(folder / "f.jsonl", {"xbench_boxes": 1, **header}, *lines), questions)
    return frame_check(file, questions)


SIZE = np.array([W, H, W, H])


@pytest.mark.parametrize(
    ("frame", "change", "name"),
    [
        ("pixels", lambda b: b, ""),
        ("pixels", lambda b: b[:, [1, 0, 3, 2]], "swapped axes"),
        ("pixels", lambda b: np.stack([W - b[:, 2], b[:, 1], W - b[:, 0], b[:, 3]], 1), "mirrored"),
        ("pixels", lambda b: b / SIZE * 1000, "frame permille"),
        ("pixels", lambda b: b / SIZE * 100, "frame percent"),
        ("pixels", lambda b: b / SIZE * 448, r"frame resized with view \[448, 448\]"),
        ("pixels", lambda b: b / SIZE * [896, 1092, 896, 1092], r"view \{min_pixels: 3136, max_pixels: 1003520\}"),
        ("pixels", lambda b: np.concatenate([b[:, :2], b[:, 2:] - b[:, :2]], 1), "order xywh"),
        ("permille", lambda b: b / SIZE * 1000, ""),
        ("permille", lambda b: b, "frame pixels"),
        ("permille", lambda b: (b / SIZE * 1000)[:, [1, 0, 3, 2]], "swapped axes"),
        ("percent", lambda b: b / SIZE, "frame unit"),
    ],
)  # fmt: skip
def test_the_frame_that_fits_is_named(frame: str, change: Any, name: str, tmp_path: Path) -> None:
    said = told(tmp_path, change, frame=frame)
    assert bool(said) == bool(name) and "\n" not in said
    if name:
        assert said.startswith("f.jsonl: read as ") and "in 40 answers" in said
        assert re.search(name, said)


def test_an_order_that_was_stated_in_error_is_named(tmp_path: Path) -> None:
    assert "order xyxy" in told(tmp_path, lambda b: b, frame="pixels", order="xywh")


def swapped_and_shrunk(side: float) -> Any:
    """Boxes with swapped axes whose sides are `side` times as long: IoU side x side where the axes are swapped back."""
    return lambda b: np.concatenate([b[:, :2], b[:, :2] + (b[:, 2:] - b[:, :2]) * side], 1)[:, [1, 0, 3, 2]]


def test_another_frame_must_reach_a_fifth(tmp_path: Path) -> None:
    assert told(tmp_path, swapped_and_shrunk(0.44), frame="pixels") == ""
    assert "instead of 0.0" in told(tmp_path, swapped_and_shrunk(0.46), frame="pixels")


@pytest.mark.parametrize(("mirrored", "named"), [(24, False), (32, True)])
def test_another_frame_must_fit_twice_as_well(mirrored: int, named: bool, tmp_path: Path) -> None:
    """The first of 40 answers are mirrored; the true boxes lie in the left half."""
    left = iter(range(40))
    change = lambda b: np.stack([W - b[:, 2], b[:, 1], W - b[:, 0], b[:, 3]], 1) if next(left) < mirrored else b  # noqa: E731
    assert bool(told(tmp_path, change, frame="pixels")) == named


def test_boxes_of_no_union_are_left_out(tmp_path: Path) -> None:
    questions = world(3)
    boxes = {"Mass": Boxes(())}
    cases = [Case(case.case_id, case.image, case.labels, boxes, "test", size=(H, W)) for case in questions.cases]
    assert told(tmp_path, lambda b: np.array([[1, 2, 3, 4]]), Questions(cases, CLASSES), frame="pixels") == ""


def test_what_a_crop_does_not_see(tmp_path: Path) -> None:
    """The centre square of 2544 x 3056 is rows 256 to 2800."""
    boxes = [(0, 0, 99, 500), (0, 0, 99, 514), (0, 300, 99, 400), (0, 2700, 99, 3000)]
    cases = [
        Case(f"{place}", Path(), {"Mass": 1}, {"Mass": Boxes((box,))}, "test", size=(H, W))
        for place, box in enumerate(boxes)
    ]
    questions = Questions(cases, CLASSES)
    lines = [{"case": case.case_id, "finding": "Mass", "boxes": [[5, 5, 20, 20]]} for case in cases]
    header = {"xbench_boxes": 1, "frame": "crop", "view": [518, 518]}
    file = read_boxes(written(tmp_path / "f.jsonl", header, *lines), questions).positives
    assert out_of_view(file, questions).tolist() == [True, False, False, True]
    header = {"xbench_boxes": 1, "frame": "pixels"}
    file = read_boxes(written(tmp_path / "f.jsonl", header, *lines), questions).positives
    assert not out_of_view(file, questions).any()


def test_the_fixtures_that_must_be_named(reference_files: Path) -> None:
    """Files over the official ChestX-Det10 test list."""
    from xbench_fast.runtime.data.datasets.chestxdet10 import ChestXDet10

    dataset = ChestXDet10(reference_files / "data/annotations/chestxdet10")
    questions = Questions(dataset.cases(), dataset.classes, ("chestxdet10",))
    found = {}
    for path in sorted((reference_files / "boxes/predictions").glob("*.jsonl")):
        file = read_boxes(path, questions)
        assert len(file.positives) == 966 and not file.rejected
        found[path.stem] = frame_check(file, questions)
    said = {name: text for name, text in found.items() if text}
    assert set(said) == {"swapped_xy", "mirrored"}
    assert "swapped axes" in said["swapped_xy"] and "mirrored" in said["mirrored"]
