"""Objects that the viewer OHIF made of drawings on the invented film (tests/formats/ohif)."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset
from viewer_objects import DRAWN, EMPTY, drawn_mask
from viewer_read import Read, graphic, groups, reader
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit

MARKED = ["Enlarged", "Kyphosis", "Line", "Pneumothorax", "Scoliosis", "Spot", "Tube"]


@pytest.fixture
def read(root: Path, tmp_path: Path) -> Read:
    return reader(root, tmp_path)


@pytest.mark.parametrize("what", ["sr_regions", "sr_cornerstone3d_1", "sr_cornerstone_4"])
def test_regions_are_what_was_drawn(what: str, read: Read) -> None:
    dataset = read(what)
    (case,) = dataset.cases()
    assert set(case.regions) == set(DRAWN)
    for finding in DRAWN:
        np.testing.assert_array_equal(case.regions[finding].mask(43, 61), drawn_mask(finding), err_msg=finding)
    marks = [] if what == "sr_regions" else ["Pneumothorax", "Tube"]
    assert dict(case.labels) == dict.fromkeys([*DRAWN, *marks], 1)
    assert sorted(note.subject for note in dataset.notes) == marks and audit(dataset, decode=True).passed


def test_a_painted_segmentation_is_the_label_map_of_the_viewer(root: Path, read: Read) -> None:
    labels = np.load(root / "tests/formats/ohif/label_map.npz")["labels"]
    dataset = read("seg_brush")
    (case,) = dataset.cases()
    for value, finding in enumerate(("Effusion", "Nodule"), 1):
        np.testing.assert_array_equal(case.regions[finding].mask(43, 61), labels == value)
    assert dict(case.labels) == {"Effusion": 1, "Nodule": 1, EMPTY: 0}
    assert [note.kind for note in dataset.notes] == ["empty_mask"]


def test_frames_that_name_no_image_belong_to_that_of_the_object(root: Path, read: Read) -> None:
    """Which the viewer lists once a segment."""

    def without_derivation(data: Dataset) -> None:
        for frame in data.PerFrameFunctionalGroupsSequence:
            del frame.DerivationImageSequence

    labels = np.load(root / "tests/formats/ohif/label_map.npz")["labels"]
    (case,) = read("seg_brush", without_derivation).cases()
    np.testing.assert_array_equal(case.regions["Nodule"].mask(43, 61), labels == 2)


def test_tools_without_an_area_are_marks(read: Read) -> None:
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
    what: str, row: int, lost: str, kept: str, root: Path, read: Read
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


def test_a_label_of_the_user_replaces_the_finding_of_the_report_that_was_continued(
    read: Read,
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
    assert set(read("sr_continued", invalid="skip", rename=by_code).cases()[0].regions) == set(by_code.values())
    assert set(read("sr_continued", labelled, invalid="skip", rename=by_code).cases()[0].regions) == {"Mass"}

    def of_two_findings(data: Dataset) -> None:
        second = copy.deepcopy(groups(data)[1].ContentSequence[2])
        second.ConceptCodeSequence[0].CodeMeaning = "Mass"
        groups(data)[1].ContentSequence.append(second)

    assert set(read("sr_continued", of_two_findings, invalid="skip").cases()[0].regions) == {"Nodule"}

    def of_another_program(data: Dataset) -> None:
        labelled(data)
        for group in groups(data):
            group.ContentSequence[0].TextValue = "lesion 1"

    # Whose comment is no class, and whose groups may have no graphic.
    dataset = read("sr_continued", of_another_program)
    assert set(dataset.cases()[0].regions) == {"Nodule"}
    assert [(note.kind, note.subject, note.row) for note in dataset.notes] == [("unused_parts", "Pleural effusion", 1)]


def test_a_label_has_the_letters_of_its_language(read: Read) -> None:
    def labelled(data: Dataset) -> None:
        (comment,) = (item for item in groups(data)[3].ContentSequence if item.get("TextValue") == "Mass")
        comment.TextValue = "Gefäß 胸水"

    assert read("sr_regions", labelled).classes == ("Effusion", "Gefäß 胸水", "Nodule", "Opacity")


def test_the_site_of_a_finding_is_a_class_only_in_the_words_of_the_user(read: Read) -> None:
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


def test_a_lost_region_belongs_to_the_images_of_the_folder(read: Read) -> None:
    def of_two_images(data: Dataset) -> None:
        listed = data.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence[0].ReferencedSOPSequence
        other = Dataset()
        other.ReferencedSOPClassUID, other.ReferencedSOPInstanceUID = listed[0].ReferencedSOPClassUID, "2.25.1"
        listed.append(other)

    (case,) = read("sr_lost_region", of_two_images, invalid="skip").cases()
    assert case.labels["Nodule"] == 1 and case.case_id == "film"


def test_the_place_of_a_caption_is_no_graphic(read: Read) -> None:
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


def test_coordinates_on_pixels_that_are_not_square_are_refused(root: Path, read: Read) -> None:
    """The rectangle was drawn at x 7 to 20 and y 20 to 37, and is stored as 4.8 to 13.5 and 29.7 to 55.2."""

    def stretched(data: Dataset) -> None:
        data.ImagerPixelSpacing = [0.3, 0.2]

    with pytest.raises(DataError, match=r"sr_not_square\.dcm, row 1: .* whose pixels are not square; paint a segm"):
        read("sr_not_square", None, stretched)
    (case,) = read("sr_not_square", None, stretched, invalid="skip").cases()
    assert dict(case.labels) == dict.fromkeys(DRAWN, 1) and not case.regions

    def calibrated(data: Dataset) -> None:
        stretched(data)
        data.PixelSpacing = [0.2, 0.2]

    assert read("sr_not_square", None, calibrated).cases()[0].regions  # the viewer goes by the calibrated spacing


def test_painted_pixels_and_earlier_versions_know_no_spacing(root: Path, tmp_path: Path, read: Read) -> None:
    def stretched(data: Dataset) -> None:
        data.ImagerPixelSpacing = [0.3, 0.2]

    (case,) = read("seg_not_square", None, stretched).cases()
    painted = pydicom.dcmread(root / "tests/formats/ohif/seg_not_square.dcm").pixel_array
    for number, finding in enumerate(("Effusion", "Nodule")):
        np.testing.assert_array_equal(case.regions[finding].mask(43, 61), painted[number])
    (tmp_path / "annotations/seg_not_square.dcm").unlink()
    (case,) = read("sr_cornerstone_4", None, stretched).cases()
    np.testing.assert_array_equal(case.regions["Nodule"].mask(43, 61), drawn_mask("Nodule"))
