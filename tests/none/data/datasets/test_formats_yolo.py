"""YOLO's text files: names of classes, forms of lines, and files that cannot serve."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import encode
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.yolo import Yolo


def make(root: Path, text: str = "", **options: Any) -> Yolo:
    (root / "labels").mkdir(exist_ok=True)
    (root / "labels/a.txt").write_text(text)
    (root / "images").mkdir(exist_ok=True)
    return Yolo(root, **({"classes": ["Mass", "Rib"]} | options))


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("data.yaml", "names: [Mass, 'Rib fracture']\n", ("Mass", "Rib fracture")),
        ("data.yaml", "names:\n  1: Rib\n  0: Mass\n", ("Mass", "Rib")),
        ("classes.txt", "Mass\nRib\n\n", ("Mass", "Rib")),
        ("labels/classes.txt", "Mass\nRib", ("Mass", "Rib")),
        ("obj.names", "Mass\r\nRib\r\n", ("Mass", "Rib")),
        ("mine.txt", "Mass\n", ("Mass",)),
    ],
)
def test_the_names_of_the_classes(tmp_path: Path, file: str, text: str, names: tuple[str, ...]) -> None:
    (tmp_path / "labels").mkdir()
    (tmp_path / file).write_text(text)
    given = {"classes": file} if file == "mine.txt" else {"classes": None}
    dataset = make(tmp_path, "0 0.5 0.5 0.5 0.5", **given)
    assert dataset.classes == names and [case.case_id for case in dataset.cases()] == ["a"]
    assert dataset.sources() == [tmp_path / file, tmp_path / "labels/a.txt"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("names: 3", r"data\.yaml: it has no list 'names'"),
        ("- a", "no list 'names'"),
        ("names: [[a]]", "no list 'names'"),
        ("names: [", r"is not a YAML file"),
        ("names: {a: b}", "not a table of numbers"),
    ],
)
def test_names_that_cannot_be_read(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=sentence):
        make(tmp_path, classes=None)


def test_what_is_missing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"names no classes: there is no data\.yaml.*; give the option classes"):
        make(tmp_path, classes=None)
    (tmp_path / "data.yaml").write_text("names: [a]")
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        DataError, match=r"needs pyyaml, which is not installed; install xbench-fast\[formats\], or give"
    ):
        make(tmp_path, classes=None)
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"folder .*nowhere of the annotations does not exist; correct"):
        make(tmp_path, annotations="nowhere")
    with pytest.raises(DataError, match=r"folder .*images has no file that ends with \.txt"):
        make(tmp_path, annotations="images")
    with pytest.raises(ConfigError, match=r"'confidence' .* must be from 0 to 1, not 2"):
        make(tmp_path, confidence=2)


def test_a_decimal_just_below_a_whole_pixel_is_that_pixel(tmp_path: Path) -> None:
    """(7 + 20) / 2 / 61 and 13 / 61 with six decimals give 6.99996."""
    (case,) = make(tmp_path, "0 0.221311 0.662791 0.213115 0.395349").cases()
    mask = case.regions["Mass"].mask(43, 61)
    assert mask[20:37, 7:20].all() and mask.sum() == 13 * 17


def test_a_thin_box_covers_one_pixel_and_a_box_at_the_rim_is_cut(tmp_path: Path) -> None:
    (case,) = make(tmp_path, "0 0.525 0.5 0.01 0.2\n1 1.0 0.5 0.2 1.0").cases()
    thin, rim = case.regions["Mass"].mask(10, 10), case.regions["Rib"].mask(10, 10)
    assert thin[4:6, 5].all() and thin.sum() == 2
    assert rim[:, 9].all() and rim.sum() == 10


def test_forms_of_lines(tmp_path: Path) -> None:
    corners = "0.1 0.1 0.6 0.1 0.6 0.6 0.1 0.6"
    lines = (f"0 {corners}", f"0 {corners} 0.9", "0 0.35 0.35 0.5 0.5 0.9", "0.0 0.35 0.35 0.5 0.5")
    for line in lines:
        (case,) = make(tmp_path, line).cases()
        mask = case.regions["Mass"].mask(10, 10)
        assert mask[1:6, 1:6].all() and mask.sum() == 25, line


def test_confidence_classes_and_repeated_lines_are_counted(tmp_path: Path) -> None:
    text = (
        "0 0.5 0.5 0.2 0.2 0.3\n0 0.5 0.5 0.4 0.4 0.8\n0 0.5 0.5 0.4 0.4 0.8\n7 0.5 0.5 0.1 0.1 0.9\n1 .5 .5 0 .1 .9\n"
    )
    dataset = make(tmp_path, text, confidence=0.5)
    (case,) = dataset.cases()
    assert case.regions["Mass"].mask(10, 10).sum() == 16 and case.labels == {"Mass": 1, "Rib": 1}
    told = [(note.kind, note.row, note.text) for note in dataset.notes]
    assert told == [
        ("degenerate", 5, "the box [0.5, 0.45, 0.5, 0.55] of 'Rib' has no area"),
        ("unknown_class", 4, "'class 7' is not among the classes of the dataset; not used"),
        ("low_confidence", None, "regions with a confidence below 0.5, which are not used: 1"),
        ("duplicate", 3, "this region of 'Mass' was listed before"),
    ]
    assert not audit(make(tmp_path, text)).passed


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("0 0.5 0.5 0.1", "4 numbers; a box has 5"),
        ("0 0.5 0.5 0.1 wide", "a coordinate is 'wide', not a number"),
        ("0 0.5 0.5 0.1 nan", "not a finite number"),
        ("0 0.5 0.5 -0.1 0.1", "ends before it begins"),
        ("0 30 20 10 10", "a coordinate is more than 2; they are fractions"),
        ("0 0.5 0.5 0.1 0.1 7", r"the last one is a confidence, and 7 is not from 0 to 1"),
        ("-1 0.5 0.5 0.1 0.1", "the class -1 is not a whole number"),
        ("Mass 0.5 0.5 0.1 0.1", "the class is 'Mass', not a number"),
        ("\0", "the class is"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(DataError, match=rf"a\.txt, row 2: .*{sentence}"):
        make(tmp_path, f"0 0.5 0.5 0.1 0.1\n{line}\n")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "labels/a.txt").write_bytes(b"\xff\xfe0")
    with pytest.raises(DataError, match=r"a\.txt cannot be read: its text is not UTF-8"):
        Yolo(tmp_path, classes=["Mass"])


def test_regions_that_leave_their_image_are_counted(tmp_path: Path) -> None:
    dataset = make(tmp_path, "0 1.1 0.2 1.4 0.2 1.3 0.4\n1 0.8 0.2 1.4 0.2 0.9 0.4")
    (tmp_path / "images/a.png").write_bytes(encode(np.eye(20, dtype=np.uint8), "PNG"))
    found = audit(dataset)
    assert (found.outside, found.clipped, found.passed) == (1, 1, False)
    assert found.outside_regions == ("a: the region of 'Mass' at [22, 4, 28, 8] and an image of 20 x 20",)
