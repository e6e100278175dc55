"""SIIM-ACR pneumothorax (docs/published-datasets.md §2, §10 item 1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import encode
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.region_shapes import RunText
from xbench_fast.runtime.data.datasets.siim import Siim

ROWS = """1.2.a,-1
1.2.b,0 3 1021 2
1.2.c,1048575 1
1.2.b,1 4
1.2.d, 5 2
"""
FINDING = "Pneumothorax"


def make(root: Path, rows: str = ROWS, header: str = "ImageId, EncodedPixels\n", **options: Any) -> Siim:
    (root / "train-rle.csv").write_text(header + rows, encoding="utf-8", newline="")
    return Siim(root, **options)


def column_major(text: str) -> np.ndarray:
    """Pixel by pixel from the definition: p lies at column p // 1024, row p mod 1024."""
    mask, position = np.zeros((1024, 1024), bool), 0
    numbers = [int(number) for number in text.split()]
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        for p in range(position + gap, position + gap + length):
            mask[p % 1024, p // 1024] = True
        position += gap + length
    return mask


@pytest.mark.parametrize(
    "header", ["ImageId, EncodedPixels\n", "ImageId,EncodedPixels\n", "\ufeffImageId, EncodedPixels\r\n"]
)
@pytest.mark.parametrize("none", ["-1", " -1"])
def test_both_headers_and_both_ways_to_write_none(tmp_path: Path, header: str, none: str) -> None:
    dataset = make(tmp_path, ROWS.replace("a,-1", f"a,{none}"), header)
    assert [(c.case_id, c.labels[FINDING], bool(c.regions)) for c in dataset.cases()] == [
        ("1.2.a", 0, False), ("1.2.b", 1, True), ("1.2.c", 1, True), ("1.2.d", 1, True),
    ]  # fmt: skip
    assert not dataset.notes and dataset.cases()[1].rows == (3, 5) and dataset.cases()[0].size == (1024, 1024)


def test_two_runs_overlapping_rows_and_a_run_to_the_last_pixel(tmp_path: Path) -> None:
    _, b, c, d = make(tmp_path).cases()
    both = b.regions[FINDING].mask(1024, 1024)
    np.testing.assert_array_equal(both, column_major("0 3 1021 2") | column_major("1 4"))
    # Rows 0..2 of column 0 and rows 0..1 of column 1, then rows 1..4 of column 0: seven pixels, never a sum.
    assert both.sum() == 7 and both[:5, 0].all() and both[:2, 1].all() and both.max() == 1
    last = c.regions[FINDING].mask(1024, 1024)
    assert last.sum() == 1 and last[1023, 1023]
    np.testing.assert_array_equal(d.regions[FINDING].mask(1024, 1024), column_major("5 2"))


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 40)), min_size=1, max_size=8))
def test_runs_equal_the_definition(pairs: list[tuple[int, int]]) -> None:
    text = " ".join(f"{gap} {length}" for gap, length in pairs)
    region = RunText((1024, 1024), text, "pairs")
    expected = column_major(text)
    np.testing.assert_array_equal(region.mask(1024, 1024), expected)
    assert region.area == expected.sum()


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("x,", "EncodedPixels is empty"),
        ("x,1 2 3", "3 numbers; it needs pairs"),
        ("x,1048575 2", "does not fit its grid of 1024 x 1024"),
        ("x,9999999999 9999999999", "does not fit"),
        ("x,99999999999 1", "at most 10 digits"),
        ("x,1 -2", "other than whole numbers"),
        ("x,1 2.0", "other than whole numbers"),
        ("x,1 ٣", "other than whole numbers"),
        ("x,none", "other than whole numbers"),
        (",-1", "ImageId is empty"),
        ("1.2.b,-1", "a mask in one row and -1 in another"),
        ("1.2.a,1 2", "a mask in one row and -1 in another"),
        ("x,-1,2", "3 cells"),
        ("../../x,-1", "leads out of the folder"),
    ],
)
def test_a_row_that_does_not_parse_names_file_and_row(tmp_path: Path, row: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"train-rle\.csv, row 7: .*{cause}"):
        make(tmp_path, ROWS + row + "\n").cases()


def test_repeated_rows_and_empty_masks_are_noted(tmp_path: Path) -> None:
    dataset = make(tmp_path, ROWS + "1.2.a,-1\n1.2.d,5 2\n1.2.e,4 0\n")
    assert [(n.kind, n.row) for n in dataset.notes] == [("duplicate", 7), ("duplicate", 8), ("degenerate", 9)]
    assert dataset.cases()[3].regions[FINDING].mask(1024, 1024).sum() == 2


def test_both_trees_are_found_by_file_stem(tmp_path: Path) -> None:
    for place in (
        "dicom-images-train/s1/r1/1.2.a.dcm",
        "dicom-images-train/s2/r2/1.2.b.dcm",
        "stage_2_images/1.2.c.dcm",
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    dataset = make(tmp_path)
    images = [case.image.relative_to(tmp_path).as_posix() for case in dataset.cases()]
    assert images[:3] == [
        "dicom-images-train/s1/r1/1.2.a.dcm",
        "dicom-images-train/s2/r2/1.2.b.dcm",
        "stage_2_images/1.2.c.dcm",
    ]
    assert images[3] == "dicom-images-train/1.2.d.dcm" and audit(dataset).images_missing == 1
    (tmp_path / "stage_2_images/1.2.a.dcm").touch()
    assert [n.kind for n in make(tmp_path).notes] == ["duplicate"]


def test_hidden_files_are_no_images(tmp_path: Path) -> None:
    for place in "xy":
        (tmp_path / "dicom-images-train" / place).mkdir(parents=True)
        (tmp_path / "dicom-images-train" / place / ".dcm").touch()
    (tmp_path / "dicom-images-train/1.2.a.DCM").touch()
    dataset = make(tmp_path)
    assert dataset.cases()[0].image.name == "1.2.a.DCM" and not dataset.notes
    assert audit(dataset).images_missing == 3


def test_links_to_folders_are_followed_once(tmp_path: Path) -> None:
    images, far = tmp_path / "dicom-images-train", tmp_path / "far"
    for place in (images / "z", far / "inner"):
        place.mkdir(parents=True)
    for place in (images / "z/1.2.a.dcm", far / "inner/1.2.b.dcm"):
        place.touch()
    for name, target in (("part1", far), ("again", far / "inner"), ("b_loop", images), ("a_copy", images / "z")):
        (images / name).symlink_to(target)
    (far / "inner/back").symlink_to(images)
    (images / "nowhere").symlink_to(tmp_path / "none")
    dataset = make(tmp_path)
    found = {case.case_id: case.image for case in dataset.cases()}
    assert found["1.2.a"] == images / "z/1.2.a.dcm" and found["1.2.b"].is_file()
    assert not dataset.notes and audit(dataset).images_missing == 2


def test_a_row_is_a_case_with_the_whole_images_region(tmp_path: Path) -> None:
    dataset = make(tmp_path, unit="row")
    cases = dataset.cases()
    assert [c.case_id for c in cases] == ["1.2.a#1", "1.2.b#1", "1.2.c#1", "1.2.b#2", "1.2.d#1"]
    assert cases[1].regions[FINDING].mask(1024, 1024).sum() == cases[3].regions[FINDING].mask(1024, 1024).sum() == 7
    assert [c.rows for c in cases] == [(2,), (3,), (4,), (5,), (6,)]
    # Rows of one image must be drawn together when images are resampled.
    assert cases[1].patient_id == cases[3].patient_id == "1.2.b"


def test_a_row_wise_list(tmp_path: Path) -> None:
    rows = "1.2.b, 1 4\n1.2.a, -1\n1.2.b, 0 3 1021 2\n1.2.b, 1 4\n9.9, -1\n1.2.c, -1\n"
    (tmp_path / "test.csv").write_text("ImageId,EncodedPixels\n" + rows)
    paper = make(tmp_path, list="test.csv", split="paper")
    assert paper.unit == "row" and paper.split == "paper"
    assert [c.case_id for c in paper.cases()] == ["1.2.b#1", "1.2.a#1", "1.2.b#2", "1.2.b#3", "9.9#1", "1.2.c#1"]
    assert [c.labels[FINDING] for c in paper.cases()] == [1, 0, 1, 1, None, 1]
    # Each counts with all rows of its image, also those of another split.
    assert paper.cases()[0].regions[FINDING].mask(1024, 1024).sum() == 7
    assert [(n.kind, n.row) for n in paper.notes] == [("not_annotated", 6), ("disagreement", 7)]
    images = make(tmp_path, list="test.csv")
    assert [c.case_id for c in images.cases()] == ["1.2.b", "1.2.a", "9.9", "1.2.c"] and images.unit == "image"
    assert paper.sources() == [tmp_path / "train-rle.csv", tmp_path / "test.csv"]


def test_several_annotation_files_are_one(tmp_path: Path) -> None:
    for name, rows in (("train.csv", "b,0 3\na,-1\n"), ("test.csv", "b,10 1\n")):
        (tmp_path / name).write_text("ImageId,EncodedPixels\n" + rows)
    dataset = Siim(tmp_path, annotations=["train.csv", "test.csv"], list="test.csv", split="paper")
    assert dataset.cases()[0].regions[FINDING].mask(1024, 1024).sum() == 4
    for wrong in ([], [3], 3):
        with pytest.raises(ConfigError, match="annotations"):
            Siim(tmp_path, annotations=wrong).cases()


def test_mask_files_instead_of_runs(tmp_path: Path) -> None:
    (tmp_path / "processed_images").mkdir()
    (tmp_path / "processed_masks").mkdir()
    drawn = np.zeros((1024, 1024), np.uint8)
    drawn[4:8, 5:7] = 1
    (tmp_path / "processed_masks/1.2.b.png").write_bytes(encode(drawn, "PNG"))
    (tmp_path / "processed_images/1.2.b.png").write_bytes(encode(drawn, "PNG"))
    with pytest.raises(DataError, match=r"The mask .*1\.2\.c\.png does not exist; correct the option masks"):
        make(tmp_path, masks="processed_masks").cases()
    for name in "cd":
        (tmp_path / f"processed_masks/1.2.{name}.png").write_bytes(encode(drawn * 255, "PNG"))
    (tmp_path / "processed_masks/9.png").write_bytes(encode(drawn, "PNG"))
    (tmp_path / "processed_masks/._9.png").write_bytes(b"")
    dataset = make(tmp_path, masks="processed_masks")
    case = dataset.cases()[1]
    assert [(n.kind, n.text) for n in dataset.notes if n.kind == "other_file"] == [
        ("other_file", "files of no image, which are not used: 1")
    ]
    assert case.image == tmp_path / "processed_images/1.2.b.png" and case.regions[FINDING].mask(1024, 1024).sum() == 8
    assert tmp_path / "processed_masks/1.2.b.png" in dataset.sources()
    with pytest.raises(DataError, match="mask of 1024 x 1024 cannot be drawn on 9 x 9"):
        case.regions[FINDING].mask(9, 9)
    (tmp_path / "processed_masks/1.2.c.png").write_bytes(encode(drawn[:9, :9], "PNG"))
    with pytest.raises(DataError, match=r"1\.2\.c\.png is 9 x 9, not 1024 x 1024; the image and its annotation"):
        make(tmp_path, masks="processed_masks").cases()


def test_stage_2_comes_first_and_a_list_needs_its_file(tmp_path: Path) -> None:
    assert make(tmp_path).annotations == [tmp_path / "train-rle.csv"]
    (tmp_path / "stage_2_train.csv").write_text("ImageId,EncodedPixels\nq,-1\n")
    assert [c.case_id for c in make(tmp_path).cases()] == ["q"]
    with pytest.raises(ConfigError, match="needs the option list=FILE"):
        make(tmp_path, split="paper")
    with pytest.raises(ConfigError, match="leave one of the two out"):
        make(tmp_path, split="all", list="test.csv")
    assert "MAVL" in Siim.card
