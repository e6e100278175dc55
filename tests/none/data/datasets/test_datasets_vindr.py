"""VinDr-CXR of PhysioNet and of Kaggle (docs/published-datasets.md §7, §10 item 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import dicom, encode
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.pixels import direct_source
from xbench_fast.runtime.data.datasets.readers.reader_consensus import merge
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.vindr import Vindr, VindrKaggle
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.evaluation.decoded_case import decode_case

TEST = """image_id,class_name,x_min,y_min,x_max,y_max
00a,Nodule/Mass,10.5,20,30,40
00a,Nodule/Mass,25,35,999,50
0b1,No finding,,,,
00a,Cardiomegaly,1,2,3,4
"""
# Columns in another order than PhysioNet's: they are found by name.
TRAIN = """rad_id,class_name,image_id,x_min,x_max,y_min,y_max
R1,ILD,a,0,10,0,10
R2,ILD,a,5,15,0,10
R3,No finding,a,,,,
R1,Edema,a,0,4,0,4
R2,Nodule/Mass,a,0,4,0,4
R1,No finding,b,,,,
R2,No finding,b,,,,
R3,ILD,b,0,1,0,1
"""


def labels_csv(dataset: type[Vindr], rows: dict[str, set[str]], other: str = "Other diseases") -> str:
    """Rows of "image" or "image,reader" with their positive classes; global labels included."""
    columns = (*dataset.classes, "COPD", other, "No finding")
    head = "image_id,rad_id" if any("," in key for key in rows) else "image_id"
    lines = [f"{key}," + ",".join(str(int(c in on)) for c in columns) for key, on in rows.items()]
    return "\n".join([",".join((head, *columns)), *lines])


def make(root: Path, text: str = TEST, labels: str | None = None, split: str = "test", **options: Any) -> Vindr:
    for folder in ("annotations", split):
        (root / folder).mkdir(exist_ok=True)
    (root / f"annotations/annotations_{split}.csv").write_text(text)
    if labels is not None:
        (root / f"annotations/image_labels_{split}.csv").write_text(labels)
    return Vindr(root, split=split, **options)


def test_consensus_no_finding_rows_and_a_box_partly_outside(tmp_path: Path) -> None:
    dataset = make(tmp_path)
    first, second = dataset.cases()
    assert (first.case_id, first.image, first.rows) == ("00a", tmp_path / "test/00a.dicom", (2, 3, 5))
    assert set(first.regions) == {"Nodule/Mass", "Cardiomegaly"} and first.size is None
    mask = first.regions["Nodule/Mass"].mask(60, 100)
    assert mask.sum() == 20 * 20 + 75 * 15 - 5 * 5 and mask[20, 10] and mask[49, 99]
    assert {c for c, v in first.labels.items() if v} == {"Nodule/Mass", "Cardiomegaly"} and len(first.labels) == 22
    assert set(second.labels.values()) == {0} and not second.regions and not dataset.notes
    assert "PhysioNet" in dataset.card and dataset.image_folders() == (tmp_path / "test",)


def test_labels_come_from_the_label_file(tmp_path: Path) -> None:
    labels = labels_csv(
        Vindr, {"00a": {"Nodule/Mass", "ILD", "COPD"}, "0b1": {"No finding"}, "0c2": {"Edema"}}, "Other disease"
    )
    dataset = make(tmp_path, labels=labels)
    first, second, third = dataset.cases()
    assert {c for c, v in first.labels.items() if v} == {"Nodule/Mass", "ILD"}
    assert set(second.labels.values()) == {0} and third.labels["Edema"] == 1 and third.case_id == "0c2"
    assert [(n.kind, n.row) for n in dataset.notes] == [("disagreement", 2)]  # a box of Cardiomegaly, labelled 0
    dataset = make(tmp_path, labels=labels.replace("Edema", "Oedema"))
    assert dataset.cases()[0].labels["Edema"] == 0 and dataset.notes[0].subject == "Oedema"
    dataset = make(tmp_path, labels=labels_csv(Vindr, {"0b1": set()}))
    assert dataset.cases()[0].labels == {
        c: 1 if c in ("Nodule/Mass", "Cardiomegaly") else None for c in dataset.classes
    }


@pytest.mark.parametrize(
    ("rule", "found", "pixels"),
    [
        ("majority", {"ILD"}, 150),
        ("any", {"ILD", "Edema", "Nodule/Mass"}, 150),
        ("pixels", {"ILD"}, 50),
        ("fused", set(), 0),
    ],
)
def test_readers_of_the_training_set(tmp_path: Path, rule: str, found: set[str], pixels: int) -> None:
    first, second = make(tmp_path, TRAIN, split="train", readers=rule).cases()
    assert set(first.regions) == found
    if pixels:
        assert first.regions["ILD"].mask(20, 20).sum() == pixels
    assert {c for c, v in first.labels.items() if v} == (found if rule == "any" else {"ILD"})
    assert set(second.regions) == ({"ILD"} if rule == "any" else set())


def test_the_label_of_the_training_set_is_the_majoritys(tmp_path: Path) -> None:
    rows = {"a,R1": {"ILD", "Edema"}, "a,R2": {"ILD"}, "a,R3": set(), "b,R1": set(), "b,R2": set(), "b,R3": {"ILD"}}
    dataset = make(tmp_path, TRAIN, labels_csv(Vindr, rows), "train")
    assert [{c for c, v in case.labels.items() if v} for case in dataset.cases()] == [{"ILD"}, set()]
    assert not dataset.notes
    with pytest.raises(ConfigError, match="known are majority, any, pixels, fused"):
        make(tmp_path, TRAIN, split="train", readers="best")


def test_fused_boxes_are_means_of_boxes_that_agree() -> None:
    boxes = {
        "R1": {(0.0, 0.0, 10.0, 10.0): None, (50.0, 50.0, 60.0, 60.0): None},
        "R2": {(1.0, 0.0, 11.0, 10.0): None},
        "R3": {(2.0, 0.0, 12.0, 10.0): None, (80.0, 80.0, 81.0, 81.0): None},
    }
    region = merge(boxes, "fused", 3)
    assert region == Boxes(((1.0, 0.0, 11.0, 10.0),))
    with pytest.raises(DataError, match="too many to fuse"):
        merge({r: {(float(i), 0.0, i + 1.0, 1.0): None for i in range(600)} for r in "ab"}, "fused", 2)


@settings(max_examples=50)
@given(st.lists(st.lists(st.tuples(*[st.integers(0, 12)] * 4), max_size=3), min_size=1, max_size=4), st.integers(0, 2))
def test_rules_equal_their_words(drawn: list[list[tuple[int, ...]]], silent: int) -> None:
    """Pixel by pixel: who covers it, and how many readers name the class."""
    boxes = {}
    for i, mine in enumerate(drawn):
        corners = [(min(a, c), min(b, d), max(a, c) + 1, max(b, d) + 1) for a, b, c, d in mine]
        if corners:
            boxes[f"R{i}"] = {tuple(map(float, box)): None for box in corners}
    if not boxes:
        return
    readers = len(boxes) + silent
    cover = np.zeros((len(boxes), 14, 14), bool)
    for layer, mine in zip(cover, boxes.values(), strict=True):
        for x1, y1, x2, y2 in mine:
            layer[int(y1) : int(y2), int(x1) : int(x2)] = True
    enough = 2 * len(boxes) > readers
    expected = {
        "any": cover.any(0),
        "majority": cover.any(0) & enough,
        "pixels": cover.sum(0) * 2 > readers,
    }
    for rule, mask in expected.items():
        region = merge(boxes, rule, readers)
        got = np.zeros((14, 14), bool) if region is None else region.mask(14, 14)
        np.testing.assert_array_equal(got, mask, err_msg=rule)


def test_kaggle_is_a_dataset_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    header = "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"
    rows = "k,ILD,5,R8,0,0,4,4\nk,ILD,5,R9,2,0,6,4\nk,No finding,14,R10,,,,\nk,Rib fracture,15,R10,1,1,2,2\n"
    (tmp_path / "train.csv").write_text(header + rows)
    dataset = VindrKaggle(tmp_path)
    case = dataset.cases()[0]
    assert len(dataset.classes) == 14 and case.labels["ILD"] == 1 and case.regions["ILD"].mask(4, 9).sum() == 24
    assert case.image == tmp_path / "train/k.dicom" and case.split == "train"
    assert [(n.kind, n.subject) for n in dataset.notes] == [("unknown_class", "Rib fracture")]
    with pytest.raises(ConfigError, match="no option 'split'"):
        VindrKaggle(tmp_path, split="test")


def test_files_beside_the_images(tmp_path: Path) -> None:
    make(tmp_path)
    for source, target in (("annotations/annotations_test.csv", "test/annotations_test.csv"),):
        (tmp_path / source).rename(tmp_path / target)
    dataset = Vindr(tmp_path)
    assert len(dataset.cases()) == 2 and dataset.image_folders() == ()


def test_a_monochrome1_film_of_12_bits_is_windowed_first_and_inverted_once(tmp_path: Path) -> None:
    stored = np.linspace(0, 4095, 64 * 80).astype(np.uint16).reshape(64, 80)
    make(tmp_path, TEST.replace("00a", "f").replace("0b1", "g"))
    data = dicom(stored, bits=12, photometric="MONOCHROME1", WindowCenter=1000, WindowWidth=1200)
    (tmp_path / "test/f.dicom").write_bytes(data)
    dataset = Vindr(tmp_path)
    grey = read_grey(dataset.cases()[0].image)
    # Air is 0 stored and white in MONOCHROME1, so it must be bright here; above the window all is black.
    assert grey.shape == (64, 80) and grey[0, 0] == 255 and grey[-1, -1] == 0
    windowed = np.clip((stored.astype(float) - 999.5) / 1199 + 0.5, 0, 1)
    np.testing.assert_allclose(grey, (1 - windowed) * 255, atol=0.51)
    found = audit(dataset, decode=True, threads=1)
    assert (found.images_missing, found.pairs, found.degenerate, found.unannotated_files) == (1, 2, 0, 0)


def copies(root: Path, suffix: str = ".png", **options: Any) -> Vindr:
    """Two films of 100 x 60 in the annotation, copied at half their size."""
    make(root, "image_id,class_name,x_min,y_min,x_max,y_max\na,ILD,10,20,90,50\na,Edema,2,2,9,9\nb,ILD,1,1,8,8\n")
    half = np.arange(30 * 50, dtype=np.uint16).astype(np.uint8).reshape(30, 50)
    for name in "ab":
        data = dicom(half) if suffix == ".dicom" else encode(half, "PNG" if suffix == ".png" else "JPEG")
        (root / f"test/{name}{suffix}").write_bytes(data)
    (root / "train_meta.csv").write_text("image_id,dim0,dim1\na,60,100\nb,60,100\nother,3,3\n")
    return Vindr(root, **options)


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jpeg"])
def test_boxes_of_native_size_are_not_drawn_on_a_resized_copy(tmp_path: Path, suffix: str) -> None:
    dataset = copies(tmp_path, suffix)
    found = audit(dataset, decode=True, threads=1)
    assert found.misfits == 1 and not found.passed and found.pairs == 3
    assert "a: a box of 'ILD' reaches 40 pixels beyond 50 x 30; the image seems to be resized" in found.misfit_regions
    geometry = Geometry("squash", 32, 32, "bicubic")
    with pytest.raises(DataError, match=r"'ILD' in .*a\.\w+ cannot be drawn: .* 40 pixels beyond .* option sizes"):
        decode_case(dataset.cases()[0], direct_source(geometry), geometry, ["ILD"])
    assert decode_case(dataset.cases()[1], direct_source(geometry), geometry, ["ILD"]).status == "ok"


def test_with_the_native_sizes_a_resized_copy_is_as_good(tmp_path: Path) -> None:
    dataset = copies(tmp_path, sizes="train_meta.csv")
    first = dataset.cases()[0]
    assert first.size == (60, 100) and dataset.sources()[-1] == tmp_path / "train_meta.csv"
    expected = np.zeros((60, 100), bool)
    expected[20:50, 10:90] = True
    np.testing.assert_array_equal(first.regions["ILD"].mask(60, 100), expected)
    found = audit(dataset, decode=True, threads=1)
    assert found.misfits == 0 and found.passed and found.size_differs == 2
    geometry = Geometry("squash", 32, 32, "bicubic")
    assert decode_case(first, direct_source(geometry), geometry, ["ILD"]).size == (60, 100)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("image_id,dim0,dim1\na,60,100\n", "it has no size for the image 'b'"),
        ("image_id,dim0,dim1\na,0,100\nb,1,1\n", "row 2: the size 0 x 100 is not in whole pixels"),
        ("image_id,dim0,dim1\na,1.5,100\nb,1,1\n", "not in whole pixels"),
        ("image_id,dim0,dim1\na,x,100\nb,1,1\n", "not a number"),
        ("image_id,dim0,dim1\na,1,1\na,1,2\nb,1,1\n", "row 3: 'a' has another size"),
        ("image_id,height\na,1\n", "row 1: the header needs dim0, dim1 or image_height, image_width"),
        ("image_id,image_height,image_width\na,60,80\nb,60,100\n", None),
    ],
)
def test_the_file_of_sizes_is_checked(tmp_path: Path, text: str, cause: str | None) -> None:
    dataset = copies(tmp_path, sizes="mine.csv")
    (tmp_path / "mine.csv").write_text(text)
    if cause is not None:
        with pytest.raises(DataError, match=rf"mine\.csv.*{cause}"):
            dataset.cases()
        return
    found = audit(dataset)
    assert found.misfits == 1 and not found.passed and "reaches 10 pixels beyond 80 x 60" in found.misfit_regions[0]


@pytest.mark.parametrize("rule", ["majority", "pixels", "fused"])
def test_every_rule_of_readers_refuses_a_resized_copy(tmp_path: Path, rule: str) -> None:
    rows = "".join(f"R{n},ILD,a,0,30,0,10\n" for n in (1, 2, 3))
    dataset = make(tmp_path, "rad_id,class_name,image_id,x_min,x_max,y_min,y_max\n" + rows, split="train", readers=rule)
    (tmp_path / "train/a.png").write_bytes(encode(np.eye(20, dtype=np.uint8), "PNG"))
    region = dataset.cases()[0].regions["ILD"]
    assert region.mask(10, 28).all()  # two pixels are rounding
    with pytest.raises(DataError, match="reaches 3 pixels beyond an image of 27 x 10"):
        region.mask(10, 27)
    assert audit(dataset, decode=True, threads=1).misfits == 1


def test_a_native_film_is_drawn_whatever_its_boxes_and_the_audit_tells(tmp_path: Path) -> None:
    dataset = copies(tmp_path, ".dicom")
    geometry = Geometry("squash", 32, 32, "bicubic")
    assert decode_case(dataset.cases()[0], direct_source(geometry), geometry, ["ILD"]).masks
    found = audit(dataset, decode=True, threads=1)
    assert found.misfits == 1 and not found.passed


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("x,ILD,,,,", "not a number"),
        ("x,ILD,5,5,4,9", "ends before it begins"),
        ("x,No finding,1,1,2,2", "'No finding' and a box"),
        (",ILD,1,1,2,2", "image_id is empty"),
        ("../x,ILD,1,1,2,2", "leads out of"),
        ("x,ILD,1,1,2,1e999", "not a finite number"),
    ],
)
def test_a_row_that_does_not_parse_names_file_and_row(tmp_path: Path, row: str, cause: str) -> None:
    with pytest.raises(DataError, match=rf"annotations_test\.csv, row 6: .*{cause}"):
        make(tmp_path, TEST + row + "\n").cases()


def test_odd_rows_are_noted_and_labels_checked(tmp_path: Path) -> None:
    dataset = make(tmp_path, TEST + "00a,Cardiomegaly,1,2,3,4\n00a,ILD,1,2,1,4\n00a,Cat,1,1,2,2\n00a,COPD,,,,\n")
    assert [(n.kind, n.row) for n in dataset.notes] == [("duplicate", 6), ("degenerate", 7), ("unknown_class", 8)]
    good = labels_csv(Vindr, {"00a": set()})
    for labels, cause in ((good + "\n00a" + ",1" * 25, "another label"), (good.replace(",0", ",2"), "not 0 or 1")):
        with pytest.raises(DataError, match=cause):
            make(tmp_path, labels=labels).cases()
    with pytest.raises(DataError, match="the header lacks rad_id"):
        make(tmp_path, TEST, split="train").cases()


@pytest.mark.parametrize(("right", "joined"), [(4.0, False), (3.999, True), (4.001, False)])
def test_boxes_that_overlap_by_exactly_a_half_are_two_findings(right: float, joined: bool) -> None:
    """(0, 3) and (1, 4) share 2 of 4: boxes are joined above 0.5, not at it."""
    found = merge({"a": {(0.0, 0.0, 3.0, 1.0): None}, "b": {(1.0, 0.0, right, 1.0): None}}, "fused", 2)
    assert (found is not None) is joined
