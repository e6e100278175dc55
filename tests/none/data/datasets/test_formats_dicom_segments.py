"""DICOM Segmentations: segments without a frame, what an object refers to, and values that are not stated."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from xbench_fast.engines.errors import DataError
from xbench_fast.runtime.data.datasets.checking.audit import audit
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_objects import DicomObjects

Change = Callable[[Any], None]


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "tests/formats/dicom"


def opened(folder: Path, world: Path, what: str, change: Change, /, **options: Any) -> DicomObjects:
    """The object `what`, altered by `change`, beside its radiograph and another one."""
    for place in ("images", "annotations"):
        (world / place).mkdir(parents=True)
    film = pydicom.dcmread(folder / "film.dcm")
    film.save_as(world / "images/a.dcm")
    film.SOPInstanceUID = film.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    film.save_as(world / "images/b.dcm")
    data = pydicom.dcmread(folder / f"{what}.dcm")
    change(data)
    data.save_as(world / "annotations/seg", enforce_file_format=True)
    return DicomObjects(world, **options)


def third_segment(data: Any) -> None:
    """A segment that is described and has no frame: it was looked for, and not there."""
    other = copy.deepcopy(data.SegmentSequence[0])
    other.SegmentNumber, other.SegmentLabel = 3, "Pneumothorax"
    data.SegmentSequence.append(other)


def second_image(data: Any) -> None:
    """The object refers to another image too, without a frame of it."""
    images = data.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    other = copy.deepcopy(images[0])
    other.ReferencedSOPInstanceUID = "1.2.3"
    images.append(other)


def no_frames(data: Any) -> None:
    data.NumberOfFrames = 0
    del data.PixelData, data.PerFrameFunctionalGroupsSequence


def empty_frame(data: Any) -> None:
    pixels = data.pixel_array.copy()
    pixels[1] = 0
    bits = np.packbits(pixels.reshape(-1).astype(np.uint8), bitorder="little").tobytes()
    data.PixelData = bits + b"\0" * (len(bits) % 2)


def test_a_segment_without_a_frame_is_a_class_that_was_not_there(folder: Path, tmp_path: Path) -> None:
    dataset = opened(folder, tmp_path, "seg_binary", third_segment)
    (case,) = dataset.cases()
    assert dataset.classes == ("Effusion", "Nodule", "Pneumothorax")
    assert case.labels == {"Effusion": 1, "Nodule": 1, "Pneumothorax": 0}
    assert [(n.kind, n.subject, n.text) for n in dataset.notes if n.kind != "not_annotated"] == [
        ("empty_mask", "Pneumothorax", "the segment 3 has no pixel; taken as negative")
    ]
    shutil.rmtree(tmp_path / "images")
    shutil.rmtree(tmp_path / "annotations")
    renamed = opened(folder, tmp_path, "seg_binary", third_segment, rename={"Pneumothorax": "Air"}, classes=["Air"])
    assert renamed.classes == ("Air",) and renamed.cases()[0].labels == {"Air": 0}


def test_a_frame_without_a_pixel_is_a_class_that_was_not_there(folder: Path, tmp_path: Path) -> None:
    dataset = opened(folder, tmp_path, "seg_binary", empty_frame)
    assert dataset.cases()[0].labels == {"Effusion": 1, "Nodule": 0}
    assert [note.subject for note in dataset.notes if note.kind == "empty_mask"] == ["Nodule"]


def test_an_image_without_a_frame_is_negative(folder: Path, tmp_path: Path) -> None:
    first, second = sorted(opened(folder, tmp_path, "seg_binary", second_image).cases(), key=lambda case: case.case_id)
    assert (first.case_id, set(first.labels.values()), set(first.regions)) == ("a", {1}, {"Effusion", "Nodule"})
    assert (second.case_id, second.labels, second.regions) == ("b", {"Effusion": 0, "Nodule": 0}, {})


def test_an_object_without_frames_says_that_nothing_was_found(folder: Path, tmp_path: Path) -> None:
    dataset = opened(folder, tmp_path, "seg_binary", no_frames)
    (case,) = dataset.cases()
    assert (case.case_id, case.labels) == ("a", {"Effusion": 0, "Nodule": 0}) and not case.regions
    assert [note.kind for note in dataset.notes].count("empty_mask") == 2 and audit(dataset).passed


def numbered_twice(data: Any) -> None:
    data.SegmentSequence[1].SegmentNumber = 1


def without_name(data: Any) -> None:
    third_segment(data)
    del data.SegmentSequence[2].SegmentLabel, data.SegmentSequence[2].SegmentedPropertyTypeCodeSequence


def other_label(data: Any) -> None:
    values = np.zeros((43, 61), np.uint8)
    values[3:5, 4:9], values[9, 9] = 1, 7
    data.SegmentationType, data.NumberOfFrames = "LABELMAP", 1
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit = 7
    data.PixelData = values.tobytes() + b"\0"


def without_maximum(data: Any) -> None:
    del data.MaximumFractionalValue


def low_maximum(data: Any) -> None:
    data.MaximumFractionalValue = 200


def signed(data: Any) -> None:
    data.PixelRepresentation, data.MaximumFractionalValue = 1, 200
    data.PixelData = b"\xc8" * len(data.PixelData)


def fractions_of_bits(data: Any) -> None:
    data.SegmentationType, data.MaximumFractionalValue = "FRACTIONAL", 255


def padded_frames(data: Any) -> None:
    """Each frame begins with a byte, as some programs write them."""
    bits = np.ones((2, 43 * 61), np.uint8)
    data.PixelData = np.packbits(bits, axis=1, bitorder="little").tobytes()


def padded_by_ones(data: Any) -> None:
    """The byte that makes their number even."""
    data.Rows, data.Columns, data.NumberOfFrames = 41, 24, 1
    data.PixelData = bytes(41 * 24 // 8) + b"\x01"


def two_numbers(data: Any) -> None:
    data.SegmentSequence[0].SegmentNumber = [1, 2]


def no_number(data: Any) -> None:
    del data.SegmentSequence[0].SegmentNumber


def empty_reference(data: Any) -> None:
    group = data.PerFrameFunctionalGroupsSequence[1].SegmentIdentificationSequence[0]
    group.ReferencedSegmentNumber = None


def two_references(data: Any) -> None:
    group = data.PerFrameFunctionalGroupsSequence[1].SegmentIdentificationSequence[0]
    group.ReferencedSegmentNumber = [1, 2]


def unchanged(data: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("what", "change", "options", "sentence"),
    [
        ("seg_binary", numbered_twice, {}, "the segment 1 is described twice"),
        ("seg_binary", without_name, {}, "the segment 3 has neither label nor type"),
        ("seg_binary", other_label, {}, "row 1: the frame holds the segment 7, which is not described"),
        ("seg_fractional", without_maximum, {"threshold": 0.5}, "fractions, and it does not state MaximumFractional"),
        ("seg_fractional", low_maximum, {"threshold": 0.5}, r"the frame holds the value \d+, more than its Max.* 200"),
        ("seg_fractional", signed, {"threshold": 0.5}, "row 1: the frame holds values below 0, .* PixelRepresentation"),
        ("seg_binary", fractions_of_bits, {"threshold": 0.5}, "are fractions up to 255 in BitsAllocated 1"),
        ("seg_binary", padded_frames, {}, "its PixelData has bits set beyond its last pixel; frames follow each other"),
        ("seg_binary", padded_by_ones, {}, "its PixelData has bits set beyond its last pixel"),
        ("seg_binary", two_numbers, {}, "its SegmentNumber is not one whole number"),
        ("seg_binary", no_number, {}, "it lacks the tag SegmentNumber"),
        ("seg_binary", empty_reference, {}, "row 2: it lacks the tag ReferencedSegmentNumber"),
        ("seg_binary", two_references, {}, "row 2: its ReferencedSegmentNumber is not one whole number"),
        ("seg_fractional", unchanged, {"threshold": 128}, "are fractions up to 1; the option threshold is 128"),
        ("seg_fractional", unchanged, {"threshold": 0}, "are fractions up to 1; the option threshold is 0"),
    ],
)
def test_segments_that_cannot_serve(
    folder: Path, tmp_path: Path, what: str, change: Change, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DataError, match=rf"annotations/seg.*{sentence}"):
        opened(folder, tmp_path, what, change, **options)


def test_a_frame_that_is_all_inside_is_noted(folder: Path, tmp_path: Path) -> None:
    def full(data: Any) -> None:
        data.PixelData = b"\xff" * 655 + b"\x3f"  # 2 frames of 43 x 61 bits

    dataset = opened(folder, tmp_path, "seg_binary", full)
    notes = [note for note in dataset.notes if note.kind == "inverted"]
    assert [(note.subject, note.row) for note in notes] == [("Effusion", 1), ("Nodule", 2)]
    assert "the region is the whole image" in notes[0].text and not audit(dataset).passed


def test_a_frame_of_two_images_is_noted(folder: Path, tmp_path: Path) -> None:
    def second(data: Any, *, step: bool) -> None:
        steps = data.PerFrameFunctionalGroupsSequence[1].DerivationImageSequence
        other = copy.deepcopy(steps[0])
        other.SourceImageSequence[0].ReferencedSOPInstanceUID = "1.2.3"
        for sequence, item in ((steps, other), (steps[0].SourceImageSequence, other.SourceImageSequence[0])):
            if (sequence is steps) == step:
                sequence.append(item)
        first = data.PerFrameFunctionalGroupsSequence[0].DerivationImageSequence[0].SourceImageSequence
        first.append(copy.deepcopy(first[0]))  # the same image again says nothing new

    for step in (True, False):
        dataset = opened(folder, tmp_path / str(step), "seg_binary", partial(second, step=step))
        assert [(note.subject, note.row, note.text) for note in dataset.notes if note.kind == "disagreement"] == [
            ("Nodule", 2, "the frame names 2 images as its source; its region is of the first")
        ]
        assert dataset.cases()[0].labels == {"Effusion": 1, "Nodule": 1}


def test_a_sign_without_values_below_0_changes_nothing(folder: Path, tmp_path: Path) -> None:
    def low(data: Any) -> None:
        data.PixelRepresentation, data.MaximumFractionalValue = 1, 100
        data.PixelData = bytes(value // 3 for value in data.PixelData)

    assert opened(folder, tmp_path, "seg_fractional", low, threshold=0.5).cases()[0].labels == {"Nodule": 1}
