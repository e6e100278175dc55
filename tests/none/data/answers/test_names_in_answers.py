"""Names of images in files of boxes: folders, separators, letter forms and extensions as other tools write them."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from xbench_fast.runtime.data.answers.bad_line import BadLine
from xbench_fast.runtime.data.answers.box_file import ReadOptions
from xbench_fast.runtime.data.answers.questions import Questions
from xbench_fast.runtime.data.answers.read_box_file import read_boxes
from xbench_fast.runtime.data.datasets.case import Case
from xbench_fast.runtime.data.datasets.region_boxes import Boxes

IMAGES = {"1": "images/sub/a.png", "2": "images/other/b.png", "3": "images/other/c.dcm", "4": "images/sub/b.png",
          "5": "images/é.png"}  # fmt: skip


def asked(form: str = "NFC") -> Questions:
    cases = [
        Case(name, Path("/data", unicodedata.normalize(form, image)), {"Mass": 1}, {"Mass": Boxes(((1, 1, 5, 5),))},
             "all", size=(20, 30))
        for name, image in IMAGES.items()
    ]  # fmt: skip
    return Questions(cases, ("Mass",))


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("1", "1"), ("a", "1"), ("a.png", "1"), ("sub/a.png", "1"), ("sub\\a.png", "1"), ("./a.png", "1"),
        ("C:\\data\\images\\sub\\a.png", "1"), ("a.jpg", "1"), ("c", "3"), ("c.png", "3"), ("other/b.png", "2"),
        ("other\\b.jpg", "2"), ("images/sub/b", "4"), ("é.png", "5"), (unicodedata.normalize("NFD", "é.png"), "5"),
        (unicodedata.normalize("NFD", "é"), "5"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_finds_its_case(name: str, case: str, form: str) -> None:
    questions = asked(form)
    assert questions.cases[questions.case(name)].case_id == case


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("b.png", "'b.png' is the file of 2 cases"),
        ("third/b.png", "file of 2 cases"),
        ("d", "has no case 'd'"),
        ("", "no case"),
    ],
)
def test_a_name_of_none_or_of_several(name: str, told: str) -> None:
    with pytest.raises(BadLine, match=told):
        asked().case(name)


def test_every_format_takes_them(tmp_path: Path) -> None:
    lines = [{"xbench_boxes": 1}, {"case": "sub\\a.png", "finding": "Mass", "boxes": [[1, 1, 5, 5]], "frame": "pixels"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    names = {"images": [{"id": 9, "file_name": "sub\\a.png"}, {"id": 8, "file_name": "other\\b.png"}],
             "categories": [{"id": 1, "name": "Mass"}]}  # fmt: skip
    (tmp_path / "names.json").write_text(json.dumps(names))
    boxes = [{"image_id": n, "category_id": 1, "bbox": [1, 1, 4, 4], "score": 0.5} for n in (9, 8)]
    (tmp_path / "results.json").write_text(json.dumps(boxes))
    phrase = {"text": "Mass", "boxes": [{"x_min": 0.1, "y_min": 0.1, "x_max": 0.5, "y_max": 0.5}]}
    (tmp_path / "radfact.json").write_text(json.dumps({"sub\\a.png": [phrase]}))
    coco = ReadOptions(coco=tmp_path / "names.json")
    for file, options, count in (("a.jsonl", None, 1), ("results.json", coco, 2), ("radfact.json", None, 1)):
        found = read_boxes(tmp_path / file, asked(), *([options] if options else []))
        assert len(found.positives.boxes) == count, file
