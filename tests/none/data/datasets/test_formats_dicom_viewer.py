"""Objects that the viewer OHIF made of drawings on the invented film (tests/formats/ohif), and worse ones."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset
from viewer_objects import DRAWN, EMPTY, drawn_mask
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects

CANARY = "ZZCANARY"
MARKED = ["Enlarged", "Kyphosis", "Line", "Pneumothorax", "Scoliosis", "Spot", "Tube"]


@pytest.fixture
def read(root: Path, tmp_path: Path) -> Callable[..., DicomObjects]:
    """Reads one object of the viewer beside the film, each changed first."""

    def reads(what: str, change: Any = None, film: Any = None, /, **options: Any) -> DicomObjects:
        formats = root / "tests/formats"
        for place, path, altered in (
            ("images", formats / "dicom/film.dcm", film),
            ("annotations", formats / f"ohif/{what}.dcm", change),
        ):
            (tmp_path / place).mkdir(exist_ok=True)
            shutil.copy(path, tmp_path / place)
            if altered is not None:
                data = pydicom.dcmread(path)
                altered(data)
                data.save_as(tmp_path / place / path.name)
        return DicomObjects(tmp_path, **options)

    return reads


def groups(data: Dataset) -> list[Dataset]:
    """The measurement groups of a report."""
    part = next(item for item in data.ContentSequence if item.ConceptNameCodeSequence[0].CodeValue == "126010")
    return list(part.ContentSequence)


def graphic(group: Dataset) -> Dataset:
    """The item with the first graphic of a group."""
    measured = next(item for item in group.ContentSequence if item.ValueType == "NUM" and "ContentSequence" in item)
    return measured.ContentSequence[0]


@pytest.mark.parametrize("what", ["sr_regions", "sr_cornerstone3d_1", "sr_cornerstone_4"])
def test_regions_are_what_was_drawn(what: str, read: Callable[..., DicomObjects]) -> None:
    dataset = read(what)
    (case,) = dataset.cases()
    assert set(case.regions) == set(DRAWN)
    for finding in DRAWN:
        np.testing.assert_array_equal(case.regions[finding].mask(43, 61), drawn_mask(finding), err_msg=finding)
    marks = [] if what == "sr_regions" else ["Pneumothorax", "Tube"]
    assert dict(case.labels) == dict.fromkeys([*DRAWN, *marks], 1)
    assert sorted(note.subject for note in dataset.notes) == marks and audit(dataset, decode=True).passed


def test_a_painted_segmentation_is_the_label_map_of_the_viewer(root: Path, read: Callable[..., DicomObjects]) -> None:
    labels = np.load(root / "tests/formats/ohif/label_map.npz")["labels"]
    dataset = read("seg_brush")
    (case,) = dataset.cases()
    for value, finding in enumerate(("Effusion", "Nodule"), 1):
        np.testing.assert_array_equal(case.regions[finding].mask(43, 61), labels == value)
    assert dict(case.labels) == {"Effusion": 1, "Nodule": 1, EMPTY: 0}
    assert [note.kind for note in dataset.notes] == ["empty_mask"]


def test_tools_without_an_area_are_marks(read: Callable[..., DicomObjects]) -> None:
    dataset = read("sr_without_area")
    (case,) = dataset.cases()
    assert dict(case.labels) == dict.fromkeys(MARKED, 1) and not case.regions
    noted = [(note.kind, note.subject, note.row) for note in dataset.notes]
    rows = {"Tube": 1, "Enlarged": 2, "Kyphosis": 3, "Scoliosis": 4, "Pneumothorax": 5, "Spot": 6, "Line": 7}
    axes = [("degenerate", "Enlarged", 2)]  # two: a long and a short one
    assert sorted(noted) == sorted([*(("degenerate", *row) for row in rows.items()), *axes, ("unknown_class", "", 8)])
    assert not audit(dataset).passed  # a circle that nobody labelled


@pytest.mark.parametrize(
    ("what", "row", "lost", "kept"),
    [("sr_lost_region", 2, "Nodule", "Effusion"), ("sr_continued", 1, "Pleural effusion", "Nodule")],
)
def test_a_region_that_the_viewer_did_not_store_is_not_taken_for_absent(
    what: str, row: int, lost: str, kept: str, root: Path, read: Callable[..., DicomObjects]
) -> None:
    sentence = f"{what}.dcm, row {row}: the viewer stored no graphic of what was drawn as '{lost}'; draw it again"
    with pytest.raises(DataError, match=sentence):
        read(what)
    dataset = read(what, invalid="skip")
    (case,) = dataset.cases()
    assert dict(case.labels) == {lost: 1, kept: 1} and set(case.regions) == {kept}
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("invalid_shape", lost, row)]
    drawn = {"Effusion": "Effusion_first", "Nodule": "Nodule"}[kept]
    expected = np.load(root / "tests/formats/expected.npz")[drawn]
    np.testing.assert_array_equal(case.regions[kept].mask(43, 61), expected)


def test_a_label_of_the_user_goes_before_the_finding_of_the_report_that_was_continued(
    read: Callable[..., DicomObjects],
) -> None:
    def labelled(data: Dataset) -> None:
        comment = Dataset()
        comment.RelationshipType, comment.ValueType, comment.TextValue = "CONTAINS", "TEXT", "Mass"
        code = Dataset()
        code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = "121106", "DCM", "Comment"
        comment.ConceptNameCodeSequence = [code]
        groups(data)[1].ContentSequence.append(comment)

    assert set(read("sr_continued", labelled, invalid="skip").cases()[0].regions) == {"Mass"}
    by_code = {"27925004": "Nodule of the report"}
    assert set(read("sr_continued", labelled, invalid="skip", rename=by_code).cases()[0].regions) == set(
        by_code.values()
    )

    def of_another_program(data: Dataset) -> None:
        labelled(data)
        for group in groups(data):
            group.ContentSequence[0].TextValue = "lesion 1"

    dataset = read(
        "sr_continued", of_another_program
    )  # whose comment is no class, and whose groups may have no graphic
    assert set(dataset.cases()[0].regions) == {"Nodule"}
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("unused_parts", "Pleural effusion", 1)]


def test_the_site_of_a_finding_is_a_class_only_in_the_words_of_the_user(read: Callable[..., DicomObjects]) -> None:
    def older(data: Dataset) -> None:
        """Sites as they were coded before 2019; one of them is a place in the body."""
        for group in groups(data):
            sites = [item for item in group.ContentSequence if item.ConceptNameCodeSequence[0].CodeValue == "363698007"]
            for site in sites:
                site.ConceptNameCodeSequence[0].CodeValue = "G-C0E3"
        lung = Dataset()
        lung.CodeValue, lung.CodingSchemeDesignator, lung.CodeMeaning = "39607008", "SCT", "Lung"
        groups(data)[5].ContentSequence[2].ConceptCodeSequence = [lung]

    dataset = read("sr_cornerstone3d_1", older)
    assert set(dataset.cases()[0].labels) == {*DRAWN, "Pneumothorax"}
    assert [(note.kind, note.row) for note in dataset.notes] == [("unknown_class", 6), ("degenerate", 7)]


def test_a_lost_region_belongs_to_the_images_of_the_folder(read: Callable[..., DicomObjects]) -> None:
    def of_two_images(data: Dataset) -> None:
        listed = data.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence[0].ReferencedSOPSequence
        other = Dataset()
        other.ReferencedSOPClassUID, other.ReferencedSOPInstanceUID = listed[0].ReferencedSOPClassUID, "2.25.1"
        listed.append(other)

    (case,) = read("sr_lost_region", of_two_images, invalid="skip").cases()
    assert case.labels["Nodule"] == 1 and case.case_id == "film"


def test_the_place_of_a_caption_is_no_graphic(read: Callable[..., DicomObjects]) -> None:
    def moved(data: Dataset) -> None:
        """As the viewer writes it after its caption was moved."""
        place = Dataset()
        place.RelationshipType, place.ValueType = "CONTAINS", "SCOORD"
        code = Dataset()
        code.CodeValue, code.CodingSchemeDesignator = "TextPosition", "99CS3D"
        code.CodeMeaning = "Text Annotation Position"
        place.ConceptNameCodeSequence = [code]
        place.ContentSequence = graphic(groups(data)[0]).ContentSequence
        place.GraphicType, place.GraphicData = "POINT", [29.97, 19.99]
        groups(data)[0].ContentSequence.append(place)

    dataset = read("sr_regions", moved)
    assert not dataset.notes
    np.testing.assert_array_equal(dataset.cases()[0].regions["Effusion"].mask(43, 61), drawn_mask("Effusion"))


def test_a_film_that_is_not_the_one_that_was_drawn_on(tmp_path: Path, read: Callable[..., DicomObjects]) -> None:
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
def test_worse_reports_give_a_sentence(change: Any, sentence: str, read: Callable[..., DicomObjects]) -> None:
    with pytest.raises(DataError, match=rf"sr_regions\.dcm[:,] {sentence}"):
        read("sr_regions", change)


def test_a_region_without_a_label_is_noted(read: Callable[..., DicomObjects]) -> None:
    dataset = read("sr_regions", without_label)
    assert [(note.kind, note.row) for note in dataset.notes] == [("unknown_class", 2)]
    assert dataset.cases()[0].regions["Effusion"].mask(43, 61).sum() == 13 * 17 and not audit(dataset).passed


@pytest.mark.parametrize("what", ["sr_regions", "seg_brush"])
def test_cut_files_give_a_sentence(what: str, tmp_path: Path, read: Callable[..., DicomObjects]) -> None:
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


def test_lengths_that_reach_beyond_the_file(tmp_path: Path, read: Callable[..., DicomObjects]) -> None:
    read("sr_regions")
    path = tmp_path / "annotations/sr_regions.dcm"
    whole = path.read_bytes()
    tag = struct.pack("<HH", 0x0070, 0x0022) + b"FL"
    at = whole.index(tag) + len(tag)
    path.write_bytes(whole[:at] + struct.pack("<H", 0xFFF8) + whole[at + 2 :])
    with pytest.raises(DataError, match=r"sr_regions\.dcm"):
        DicomObjects(tmp_path)
