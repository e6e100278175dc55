"""Masks in DICOM: Segmentations, and Parametric Maps above a threshold (docs/formats.md §9.10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ......engines.errors import ImageError
from ....images.dicom.elements import DataSet
from ....images.dicom.pixel_frames import mask_frames
from ...file_rows import fail
from ..shapes import plausible
from .dicom_files import items, text_of, uid_of

_MOST_FRAMES = 2_000  # frames are decoded together: the limit bounds the memory of one object


@dataclass(frozen=True)
class MaskFrame:
    """A frame [height, width] of one class, which is known by several names, on the image with a UID.

    Its region are the values above 0, or from `threshold` on. images: how many images it names as its source, of which
    the UID is the first image's.
    """

    names: tuple[str, ...]
    uid: str
    values: NDArray[Any]
    number: int
    threshold: float | None = None
    images: int = 1


def segment_names(data: DataSet, file: Path) -> dict[int, tuple[str, ...]]:
    """Number -> names of the segments that a Segmentation describes, whether or not a frame is of them.

    Without 0, which is the background of a label map. Raises DataError where a number is described twice.
    """
    segments: dict[int, tuple[str, ...]] = {}
    for item in items(data, "SegmentSequence"):
        number = DataSet(item, data.syntax).integer("SegmentNumber")
        if number in segments:
            raise fail(file, None, f"the segment {number} is described twice")
        segments[number] = _names(item)
    return {number: names for number, names in segments.items() if number}


def referenced_images(data: DataSet) -> list[str]:
    """The UIDs of all images that an object refers to, with or without a frame."""
    series = items(data, "ReferencedSeriesSequence")
    listed = [
        uid_of(item, "ReferencedSOPInstanceUID")
        for part in series
        for item in items(part, "ReferencedInstanceSequence")
    ]
    return list(dict.fromkeys(listed))


def segment_frames(
    data: DataSet, file: Path, segments: Mapping[int, tuple[str, ...]], threshold: float | None
) -> Iterator[MaskFrame]:
    """The frames of a Segmentation of the `segment_names`. Raises DataError; also for fractions without a threshold."""
    segmentation_type = text_of(data, "SegmentationType")
    if segmentation_type not in ("BINARY", "FRACTIONAL", "LABELMAP"):
        raise fail(file, None, "its segmentation type is none of BINARY, FRACTIONAL and LABELMAP")
    most = _most(data, file, threshold) if segmentation_type == "FRACTIONAL" else 1.0
    # Nothing was found: some programs then write no frame.
    frames: Iterable[NDArray[Any]] = [] if data.get("NumberOfFrames") == 0 else _frames(data, file)
    for index, frame in enumerate(frames):
        uid, images = _source(data, index, file)
        if frame.min(initial=0) < 0:
            problem = "the frame holds values below 0, which a Segmentation cannot have"
            raise fail(file, index + 1, f"{problem}; its PixelRepresentation must be 0")
        if segmentation_type == "LABELMAP":
            unknown = np.setdiff1d(frame, [0, *segments])
            if unknown.size:
                raise fail(file, index + 1, f"the frame holds the segment {unknown[0]}, which is not described")
            for number, names in segments.items():
                yield MaskFrame(names, uid, frame == number, index + 1, images=images)
            continue
        number = _segment_number(data, index, file)
        if number not in segments:
            raise fail(file, index + 1, f"the frame is of the segment {number}, which is not described")
        if segmentation_type == "BINARY":
            yield MaskFrame(segments[number], uid, frame, index + 1, images=images)
            continue
        if frame.max() > most:
            problem = f"the frame holds the value {frame.max()}, more than its MaximumFractionalValue {most:g}"
            raise fail(file, index + 1, problem)
        yield MaskFrame(segments[number], uid, frame / most, index + 1, threshold, images)


def _most(data: DataSet, file: Path, threshold: float | None) -> float:
    """The value that means 1 in a fractional Segmentation. Raises DataError."""
    if threshold is None:
        raise fail(file, None, "its segments are fractions; set the option threshold, such as 0.5")
    if not 0 < threshold <= 1:
        raise fail(file, None, f"its segments are fractions up to 1; the option threshold is {threshold:g}")
    most = float(data.get("MaximumFractionalValue") or 0)
    if most <= 0:
        raise fail(file, None, "its segments are fractions, and it does not state MaximumFractionalValue")
    if most > 1 and data.integer("BitsAllocated") == 1:
        raise fail(file, None, f"its segments are fractions up to {most:g} in BitsAllocated 1, which holds 0 and 1")
    return most


def map_frames(data: DataSet, file: Path, threshold: float | None) -> Iterator[MaskFrame]:
    """The frames of a Parametric Map from `threshold` on, in its real world values, without names. Raises DataError."""
    if threshold is None:
        raise fail(file, None, "it is a parametric map; set the option threshold, in the unit of its values")
    for index, frame in enumerate(_frames(data, file)):
        rule = _group(data, index, "RealWorldValueMappingSequence")
        slope, offset = (
            (float(rule.get("RealWorldValueSlope", 1)), float(rule.get("RealWorldValueIntercept", 0)))
            if rule is not None
            else (1.0, 0.0)
        )
        uid, images = _source(data, index, file)
        yield MaskFrame((), uid, frame * slope + offset, index + 1, threshold, images)


def _frames(data: DataSet, file: Path) -> NDArray[Any]:
    """[frames, height, width]. Raises DataError for a size that no radiograph has, ImageError for damaged frames."""
    size, count = (data.integer("Rows"), data.integer("Columns")), data.integer("NumberOfFrames", 1)
    plausible(size, (file, None))
    if not 1 <= count <= _MOST_FRAMES:
        raise fail(file, None, f"it has {count} frames; from 1 to {_MOST_FRAMES} are read")
    return mask_frames(data, count)


def _names(segment: Any) -> tuple[str, ...]:
    """The names of a segment: its label, then meaning and value of its type."""
    kinds = items(segment, "SegmentedPropertyTypeCodeSequence")
    codes = [text_of(kinds[0], key) for key in ("CodeMeaning", "CodeValue")] if kinds else []
    return tuple(name for name in (text_of(segment, "SegmentLabel"), *codes) if name)


def _groups(data: Any, index: int) -> list[Any]:
    """The functional groups of a frame, then of all frames."""
    groups = items(data, "PerFrameFunctionalGroupsSequence")
    return [*groups[index : index + 1], *items(data, "SharedFunctionalGroupsSequence")[:1]]


def _group(data: Any, index: int, name: str) -> Any | None:
    """The first item of a sequence in the functional groups of a frame, else of all frames."""
    return next((sequence[0] for group in _groups(data, index) if (sequence := items(group, name))), None)


def _segment_number(data: DataSet, index: int, file: Path) -> int:
    """The number of the segment of a frame, 0 where none is stated. Raises DataError for one that is no number."""
    stated = _group(data, index, "SegmentIdentificationSequence")
    try:
        return 0 if stated is None else DataSet(stated, data.syntax).integer("ReferencedSegmentNumber")
    except ImageError as error:
        raise fail(file, index + 1, str(error)) from None


def _source(data: Any, index: int, file: Path) -> tuple[str, int]:
    """The UID of the image on which a frame was drawn, the first of how many. Raises DataError where none is named."""
    for group in _groups(data, index):
        steps = items(group, "DerivationImageSequence")
        sources = [source for step in steps for source in items(step, "SourceImageSequence")]
        if sources:
            uids = dict.fromkeys(uid_of(source, "ReferencedSOPInstanceUID") for source in sources)
            return next(iter(uids)), len(uids)
    named = referenced_images(data)
    if len(named) != 1:
        raise fail(file, index + 1, f"the frame does not say to which of {len(named)} images it belongs")
    return named[0], 1
