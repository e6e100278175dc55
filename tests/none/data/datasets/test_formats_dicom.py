"""Annotations in DICOM: masks, graphics, what is refused, and that no patient is named."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from make_images import encode
from numpy.typing import NDArray
from xbench_fast.engines.errors import ConfigError, DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects
from xbench_fast.runtime.data.datasets.region_shapes import Ellipse

CANARY = "ZZCANARY"
SCT = {"rename": {"Pleural effusion": "Effusion"}}
BY_CODE = {"rename": {"60046008": "Effusion"}}


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "tests/formats/dicom"


@pytest.fixture(scope="module")
def expected(root: Path) -> Mapping[str, NDArray[np.bool_]]:
    return dict(np.load(root / "tests/formats/expected.npz"))


def opened(folder: Path, world: Path, what: str, change: Any = None, /, **options: Any) -> DicomObjects:
    """The object `what` beside the radiograph; `change` alters it first."""
    for place in ("images", "annotations"):
        (world / place).mkdir(exist_ok=True)
    shutil.copy(folder / "film.dcm", world / "images/IM0001")  # many archives write no extension
    data = pydicom.dcmread(folder / f"{what}.dcm")
    if change is not None:
        change(data)
    data.save_as(world / "annotations" / what, enforce_file_format=True)
    return DicomObjects(world, **options)


@pytest.mark.parametrize(
    ("what", "options", "masks"),
    [
        ("seg_binary", {}, {"Effusion": "Effusion", "Nodule": "Nodule"}),  # frame 2 begins inside of a byte
        ("seg_binary_without_frame_of_reference", {}, {"Effusion": "Effusion", "Nodule": "Nodule"}),
        ("sr_tid1500", SCT, {"Effusion": "Effusion", "Mass": "Mass", "Nodule": "Nodule"}),
        ("sr_tid1500", BY_CODE, {"Effusion": "Effusion", "Mass": "Mass", "Nodule": "Nodule"}),
        ("gsps_display_units", {"graphics": "Effusion"}, {"Effusion": "Effusion_first"}),
        ("gsps_display_units", {"graphics": {"FINDINGS": "Effusion"}}, {"Effusion": "Effusion_first"}),
    ],
)
def test_the_masks_are_those_of_a_loop_over_pixels(
    folder: Path, tmp_path: Path, expected: Mapping[str, NDArray[np.bool_]], what: str, options: Any, masks: Any
) -> None:
    dataset = opened(folder, tmp_path, what, **options)
    (case,) = dataset.cases()
    assert case.case_id == "IM0001" and case.image == tmp_path / "images/IM0001" and not dataset.notes
    assert {finding: case.labels[finding] for finding in masks} == dict.fromkeys(case.regions, 1)
    for finding, key in masks.items():
        np.testing.assert_array_equal(case.regions[finding].mask(43, 61), expected[key], err_msg=finding)
    found = audit(dataset, decode=True)
    assert found.passed and found.images_present == 1 and found.unannotated_files == 0


def test_all_graphics_of_a_presentation_state_are_of_the_class_that_one_names(
    folder: Path, tmp_path: Path, expected: Mapping[str, NDArray[np.bool_]]
) -> None:
    (case,) = opened(folder, tmp_path, "gsps", graphics="Opacity").cases()
    union = expected["Effusion_first"] | expected["Nodule"] | expected["Mass"]
    np.testing.assert_array_equal(case.regions["Opacity"].mask(43, 61), union)


def test_values_from_a_threshold_on(folder: Path, tmp_path: Path) -> None:
    soft = np.load(folder.parent / "expected_maps.npz")["soft"]
    for threshold in (0.25, 0.5):
        maps = opened(folder, tmp_path / "", "parametric_map", threshold=threshold, maps="Nodule")
        np.testing.assert_array_equal(maps.cases()[0].regions["Nodule"].mask(43, 61), soft >= threshold)
    (tmp_path / "annotations/parametric_map").unlink()
    segment = opened(folder, tmp_path, "seg_fractional", threshold=0.5).cases()[0].regions["Nodule"].mask(43, 61)
    assert (segment != (soft >= 0.5)).sum() == 0 and segment.sum() == 316

    def scaled(data: Any) -> None:
        rule = data.SharedFunctionalGroupsSequence[0].RealWorldValueMappingSequence[0]
        rule.RealWorldValueSlope, rule.RealWorldValueIntercept = 2.0, 1.0

    (tmp_path / "annotations/seg_fractional").unlink()
    maps = opened(folder, tmp_path, "parametric_map", scaled, threshold=2.0, maps="Nodule")
    np.testing.assert_array_equal(maps.cases()[0].regions["Nodule"].mask(43, 61), soft >= 0.5)


def test_a_label_map_and_a_segment_without_a_label(folder: Path, tmp_path: Path) -> None:
    def labelled(data: Any) -> None:
        values = np.zeros((43, 61), np.uint8)
        values[3:5, 4:9], values[9, 9] = 1, 2
        data.SegmentationType, data.NumberOfFrames = "LABELMAP", 1
        data.BitsAllocated = data.BitsStored = 8
        data.HighBit = 7
        data.PixelData = values.tobytes() + b"\0"
        data.PerFrameFunctionalGroupsSequence = data.PerFrameFunctionalGroupsSequence[:1]
        del data.SegmentSequence[0].SegmentLabel

    (case,) = opened(folder, tmp_path, "seg_binary", labelled).cases()
    assert {name: region.mask(43, 61).sum() for name, region in case.regions.items()} == {
        "Nodule": 1,
        "Pleural effusion": 10,
    }


def test_an_image_that_was_looked_at_is_negative(folder: Path, tmp_path: Path) -> None:
    def nothing(data: Any) -> None:
        data.ContentSequence = [item for item in data.ContentSequence if item.ValueType != "CONTAINER"]

    (case,) = opened(folder, tmp_path, "sr_tid1500", nothing, classes=["Mass"]).cases()
    assert case.labels == {"Mass": 0} and not case.regions

    def empty(data: Any) -> None:
        data.PixelData = bytes(len(data.PixelData))

    (tmp_path / "annotations/sr_tid1500").unlink()
    (case,) = opened(folder, tmp_path, "seg_binary", empty, classes=["Mass"]).cases()
    assert case.labels == {"Mass": 0}


def test_images_are_found_by_their_uid_also_as_png(folder: Path, tmp_path: Path) -> None:
    opened(folder, tmp_path, "seg_binary")
    (tmp_path / "images/IM0001").unlink()
    uid = str(pydicom.dcmread(folder / "film.dcm").SOPInstanceUID)
    missing = DicomObjects(tmp_path).cases()[0].image
    assert missing == tmp_path / f"images/{uid}.dcm" and not missing.exists()
    (tmp_path / f"images/{uid}.png").write_bytes(encode(np.eye(43, 61, dtype=np.uint8), "PNG"))
    (tmp_path / "images/other.png").write_bytes(encode(np.eye(43, 61, dtype=np.uint8), "PNG"))
    dataset = DicomObjects(tmp_path)
    (case,) = dataset.cases()
    assert case.image.name == f"{uid}.png" and case.patient_id is None
    assert "other.png" in dataset.notes[0].text and dataset.notes[0].kind == "not_annotated"
    (tmp_path / f"images/{uid}.png").write_bytes(encode(np.eye(44, 61, dtype=np.uint8), "PNG"))
    with pytest.raises(DataError, match=r"seg_binary, row 1: the frame is 61 x 43, its image .* is not"):
        DicomObjects(tmp_path)


def test_objects_beside_their_images(folder: Path, tmp_path: Path) -> None:
    for name in ("film", "seg_binary"):
        shutil.copy(folder / f"{name}.dcm", tmp_path)
    dataset = DicomObjects(tmp_path, annotations=".", images=".")
    assert [case.case_id for case in dataset.cases()] == ["film"] and not dataset.notes
    assert dataset.sources() == [tmp_path / "seg_binary.dcm"]


def set_graphic(data: Any, kind: str, *values: float) -> None:
    """Puts a graphic in place of the first one."""
    item = data.GraphicAnnotationSequence[0].GraphicObjectSequence[0]
    item.GraphicType, item.GraphicData, item.NumberOfGraphicPoints = kind, list(values), len(values) // 2
    data.GraphicAnnotationSequence[0].GraphicObjectSequence = [item]


def test_kinds_of_graphics(folder: Path, tmp_path: Path) -> None:
    def drawn(kind: str, *values: float) -> DicomObjects:
        return opened(folder, tmp_path, "gsps", lambda data: set_graphic(data, kind, *values), graphics="Mass")

    mask = drawn("ELLIPSE", 10, 20, 20, 20, 15, 18, 15, 22).cases()[0].regions["Mass"].mask(43, 61)
    y, x = (axis + 0.5 for axis in np.mgrid[:43, :61])
    np.testing.assert_array_equal(mask, ((x - 15) / 5) ** 2 + ((y - 20) / 2) ** 2 <= 1)
    upright = drawn("ELLIPSE", 20, 10, 20, 20, 18, 15, 22, 15).cases()[0].regions["Mass"].mask(43, 61)
    np.testing.assert_array_equal(upright, ((y - 15) / 5) ** 2 + ((x - 20) / 2) ** 2 <= 1)
    for kind, values in (
        ("POINT", (1, 1)),
        ("POLYLINE", (1, 1, 5, 1, 5, 5, 1, 5)),
        ("INTERPOLATED", (1, 1, 5, 1, 1, 1)),
    ):
        dataset = drawn(kind, *map(float, values))
        (case,) = dataset.cases()
        assert case.labels == {"Mass": 1} and not case.regions
        assert [note.kind for note in dataset.notes] == ["degenerate"], kind

    def of_the_series(data: Any) -> None:
        del data.GraphicAnnotationSequence[0].ReferencedImageSequence
        set_graphic(data, "CIRCLE", 5.0, 5.0, 8.0, 9.0)

    (case,) = opened(folder, tmp_path, "gsps", of_the_series, graphics="Mass").cases()
    assert case.regions["Mass"] == Ellipse(5, 5, 5, 5)
    with pytest.raises(DataError, match=r"gsps, row 1: a graphic CIRCLE of 3 points is not read"):
        drawn("CIRCLE", 1, 1, 2, 2, 3, 3)


def test_what_has_no_class_is_counted(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"names a class.*name the class of its graphics in the option graphics; .*: 1\."
    ):
        opened(folder, tmp_path, "gsps")
    dataset = opened(folder, tmp_path, "seg_binary")
    assert [(note.kind, note.file.name) for note in dataset.notes] == [("other_file", "gsps")]
    dataset = opened(folder, tmp_path, "seg_binary", graphics={"LUNG": "Mass"})
    assert [note.kind for note in dataset.notes] == ["unknown_class"] * 3 and not audit(dataset).passed
    (tmp_path / "annotations/gsps").unlink()

    def other(data: Any) -> None:
        data.ContentTemplateSequence[0].TemplateIdentifier = "4000"

    dataset = opened(folder, tmp_path, "sr_tid1500", other)
    assert "another template than 1500" in dataset.notes[0].text and set(dataset.cases()[0].regions) == {
        "Effusion",
        "Nodule",
    }


def solid(data: Any) -> None:
    def change(items: Any) -> None:
        for item in items:
            if item.get("ValueType") == "SCOORD":
                item.ValueType = "SCOORD3D"
            change(item.get("ContentSequence") or ())

    change(data.ContentSequence)


def turned(data: Any) -> None:
    data.ImageRotation = 90


def no_area(data: Any) -> None:
    del data.DisplayedAreaSelectionSequence


def unknown_segment(data: Any) -> None:
    data.SegmentSequence = data.SegmentSequence[:1]


def without_source(data: Any) -> None:
    for frame in data.PerFrameFunctionalGroupsSequence:
        del frame.DerivationImageSequence
    del data.ReferencedSeriesSequence


def cut(data: Any) -> None:
    data.PixelData = data.PixelData[:20]


def huge(data: Any) -> None:
    data.Rows = data.Columns = 60_000


@pytest.mark.parametrize(
    ("what", "change", "options", "sentence"),
    [
        (
            "rtstruct_to_refuse",
            None,
            {},
            "an RT Structure Set is drawn in millimetres .*; export its contours",
        ),
        ("seg_fractional", None, {}, "its segments are fractions; set the option threshold"),
        ("parametric_map", None, {"maps": "Mass"}, "it is a parametric map; set the option threshold"),
        ("sr_tid1500", solid, {}, "row 1: the group is drawn in three dimensions"),
        ("gsps_display_units", turned, {"graphics": "Mass"}, "row 1: the graphic is placed on a display that turns"),
        ("gsps_display_units", no_area, {"graphics": "Mass"}, "row 1: .* no displayed area is stated"),
        ("seg_binary", unknown_segment, {}, "row 2: the frame is of the segment 2, which is not described"),
        ("seg_binary", without_source, {}, "row 1: the frame does not say to which of 0 images it belongs"),
        ("seg_binary", cut, {}, "its PixelData has 20 bytes instead of 656, it is truncated"),
        ("seg_binary", huge, {}, "A region cannot be drawn on a grid of 60000 x 60000"),
    ],
)
def test_objects_that_cannot_serve(
    folder: Path, tmp_path: Path, what: str, change: Any, options: Any, sentence: str
) -> None:
    with pytest.raises(DataError, match=rf"{what}[:,] .*{sentence}|{what}, {sentence}"):
        opened(folder, tmp_path, what, change, **options)


def test_files_that_cannot_be_read_name_no_patient(folder: Path, tmp_path: Path) -> None:
    def named(data: Any) -> None:
        data.PatientName, data.PatientID = f"{CANARY}^ZZ", CANARY
        data.Rows = 0

    with pytest.raises(DataError) as told:
        opened(folder, tmp_path, "seg_binary", named)
    assert CANARY not in str(told.value)
    whole = (tmp_path / "annotations/seg_binary").read_bytes()
    for end in (133, 150, 400, len(whole) // 2):
        (tmp_path / "annotations/seg_binary").write_bytes(whole[:end])
        with pytest.raises(DataError) as told:
            DicomObjects(tmp_path)
        assert "seg_binary" in str(told.value) and CANARY not in str(told.value), end


def test_a_patient_is_known_by_a_hash(folder: Path, tmp_path: Path) -> None:
    (case,) = opened(folder, tmp_path, "seg_binary").cases()
    assert case.patient_id == "8891de11c419"
    assert "PHANTOM" not in repr(case)


def test_folders_and_options_that_cannot_serve(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="annotations of the annotations does not exist"):
        DicomObjects(tmp_path)
    with pytest.raises(DataError, match="holds no DICOM object that annotates an image"):
        (tmp_path / "annotations").mkdir()
        shutil.copy(folder / "film.dcm", tmp_path / "annotations")
        DicomObjects(tmp_path)
    for options, sentence in (
        ({"threshold": "half"}, "'threshold' .* must be a number"),
        ({"graphics": 3}, "'graphics' .* must be a table of texts"),
        ({"rename": {"a": 3}}, "'rename' .* must be a table of texts"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            opened(folder, tmp_path, "seg_binary", **options)
