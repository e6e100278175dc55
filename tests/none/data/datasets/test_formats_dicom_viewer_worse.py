"""Objects of the viewer OHIF that are damaged, cut, or about another film: a sentence, or a note."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from pydicom.dataset import Dataset
from viewer_read import Read, graphic, groups, reader
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects

CANARY = "ZZCANARY"


@pytest.fixture
def read(root: Path, tmp_path: Path) -> Read:
    return reader(root, tmp_path)


def test_a_film_that_is_not_the_one_that_was_drawn_on(tmp_path: Path, read: Read) -> None:
    def smaller(data: Dataset) -> None:
        data.Rows, data.Columns = 24, 24
        data.PixelData = data.PixelData[: 2 * 24 * 24]

    def other(data: Dataset) -> None:
        data.SOPInstanceUID = "2.25.1"
        data.file_meta.MediaStorageSOPInstanceUID = "2.25.1"

    found = audit(read("sr_regions", None, smaller), decode=True)
    assert not found.passed and found.outside and found.clipped  # a report does not say the size of its image
    for what in ("sr_regions", "seg_brush"):
        dataset = read(what, None, other)
        (case,) = dataset.cases()
        assert not case.image.exists() and case.case_id.startswith("2.25.27698046")
        assert [note.kind for note in dataset.notes if "film.dcm" in note.text] == ["not_annotated"]
        assert audit(dataset).images_missing == 1
        (tmp_path / f"annotations/{what}.dcm").unlink()
    with pytest.raises(DataError, match=r"seg_brush.dcm, row 1: the frame is 61 x 43, its image film.dcm is not"):
        read("seg_brush", None, smaller)


def without_label(data: Dataset) -> None:
    items = groups(data)[1].ContentSequence
    groups(data)[1].ContentSequence = [item for item in items if item.ValueType != "TEXT" or "OI" in item.TextValue]


def without_points(data: Dataset) -> None:
    del graphic(groups(data)[1]).GraphicData


def odd(data: Dataset) -> None:
    graphic(groups(data)[1]).GraphicData = [1.0, 2.0, 3.0]


def no_number(data: Dataset) -> None:
    graphic(groups(data)[1]).GraphicData = [float("nan")] * 10


def endless(data: Dataset) -> None:
    graphic(groups(data)[1]).GraphicData = [float("inf")] * 10


def huge(data: Dataset) -> None:
    graphic(groups(data)[3]).GraphicData = [3e38, 3e38, -3e38, -3e38]


def without_image(data: Dataset) -> None:
    del graphic(groups(data)[1]).ContentSequence


def in_space(data: Dataset) -> None:
    graphic(groups(data)[1]).ValueType = "SCOORD3D"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without_points, "row 2: the coordinates of the graphic are no pairs of finite numbers"),
        (odd, "row 2: the coordinates of the graphic are no pairs of finite numbers"),
        (no_number, "row 2: the coordinates of the graphic are no pairs of finite numbers"),
        (endless, "row 2: the coordinates of the graphic are no pairs of finite numbers"),
        (huge, "row 4: "),
        (without_image, "row 2: the graphic of the group does not say on which image it was drawn"),
        (in_space, "row 2: the group is drawn in three dimensions"),
    ],
)
def test_worse_reports_give_a_sentence(change: Any, sentence: str, read: Read) -> None:
    with pytest.raises(DataError, match=rf"sr_regions\.dcm[:,] {sentence}"):
        read("sr_regions", change)


def test_a_region_without_a_label_is_noted(read: Read) -> None:
    dataset = read("sr_regions", without_label)
    assert [(note.kind, note.row) for note in dataset.notes] == [("unknown_class", 2)]
    assert dataset.cases()[0].regions["Effusion"].mask(43, 61).sum() == 13 * 17 and not audit(dataset).passed


@pytest.mark.parametrize("what", ["sr_regions", "seg_brush"])
def test_cut_files_give_a_sentence(what: str, tmp_path: Path, read: Read) -> None:
    def named(data: Dataset) -> None:
        data.PatientName = data.PatientID = CANARY

    read(what, named)
    path = tmp_path / f"annotations/{what}.dcm"
    whole = path.read_bytes()
    for end in (200, 400, 900, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=what) as told:
            DicomObjects(tmp_path)
        assert CANARY not in str(told.value), end


def test_lengths_that_reach_beyond_the_file(tmp_path: Path, read: Read) -> None:
    read("sr_regions")
    path = tmp_path / "annotations/sr_regions.dcm"
    whole = path.read_bytes()
    tag = struct.pack("<HH", 0x0070, 0x0022) + b"FL"
    at = whole.index(tag) + len(tag)
    path.write_bytes(whole[:at] + struct.pack("<H", 0xFFF8) + whole[at + 2 :])
    with pytest.raises(DataError, match=r"sr_regions\.dcm"):
        DicomObjects(tmp_path)
