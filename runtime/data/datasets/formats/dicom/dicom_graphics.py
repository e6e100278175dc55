"""Graphics in DICOM: structured reports by template 1500, and presentation states (docs/formats.md §9.10)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...file_rows import fail
from ..shapes import Place
from .dicom_files import items, text_of, uid_of

Points = tuple[tuple[float, float], ...]

_GROUP, _FINDING, _REPORT = "125007", "121071", "1500"
_TRACKING, _COMMENT, _SITES = "112039", "121106", ("363698007", "G-C0E3")
# The viewer OHIF writes its tool as tracking identifier; a label as comment, earlier as code of a finding or its site.
_VIEWER_3, _VIEWER_2, _FREE_TEXT = "Cornerstone3DTools@", "cornerstoneTools@", "CORNERSTONEFREETEXT"
_REGIONS = (":RectangleRoi", ":FreehandRoi")  # of its version 2, which did not close them
_CAPTION = "TextPosition"  # where it shows the values of a measurement, no graphic of it


@dataclass(frozen=True)
class Graphic:
    """A graphic of a class, which is known by several names, on the image with a UID; no names: of none.

    graphic_type: as in the file, or one of `NO_GRAPHIC` and `LOST`. square: the points are right only on an image with
    square pixels.
    """

    names: tuple[str, ...]
    uid: str
    graphic_type: str
    points: Points
    number: int
    square: bool = False


NO_GRAPHIC, LOST = "NO_GRAPHIC", "LOST"
"""Of a measurement group without a graphic: by its nature, and of a viewer that did not measure what was drawn."""


def report_images(data: Any) -> list[str] | None:
    """The UIDs of the images that a structured report is about; None unless it follows template 1500."""
    if not any(text_of(item, "TemplateIdentifier") == _REPORT for item in items(data, "ContentTemplateSequence")):
        return None
    return [
        uid_of(image, "ReferencedSOPInstanceUID")
        for study in items(data, "CurrentRequestedProcedureEvidenceSequence")
        for series in items(study, "ReferencedSeriesSequence")
        for image in items(series, "ReferencedSOPSequence")
    ]


def measured_graphics(data: Any, images: Sequence[str], file: Path) -> Iterator[Graphic]:
    """The graphics of the measurement groups of a structured report about `images`, each once in a group.

    Of a group without one: `NO_GRAPHIC` on the first image, or `LOST` on all. Raises DataError for three dimensions.
    """
    for number, group in enumerate(_groups(data), 1):
        names, tool = _names(group)
        square = tool.startswith(_VIEWER_3)  # for other pixels it exchanges the spacings of rows and columns
        drawn: dict[Graphic, None] = {}
        for item in _below(group):
            value_type = text_of(item, "ValueType")
            if value_type == "SCOORD3D":
                raise fail(file, number, "the group is drawn in three dimensions; a radiograph has two")
            if value_type == "SCOORD" and _concept(item) != _CAPTION:
                image = next(
                    (entry for entry in items(item, "ContentSequence") if text_of(entry, "ValueType") == "IMAGE"), None
                )
                if image is None:
                    raise fail(file, number, "the graphic of the group does not say on which image it was drawn")
                uid = uid_of(items(image, "ReferencedSOPSequence")[0], "ReferencedSOPInstanceUID")
                points = _pairs(item, (file, number))
                closed = points + points[:1] if tool.endswith(_REGIONS) else points
                drawn[Graphic(names, uid, text_of(item, "GraphicType"), closed, number, square)] = None
        if not drawn:
            nothing, where = (LOST, images) if tool else (NO_GRAPHIC, images[:1])
            drawn = {Graphic(names, uid, nothing, (), number): None for uid in where}
        yield from drawn


def layer_graphics(data: Any, file: Path) -> Iterator[Graphic]:
    """The graphics of a presentation state; the name of each is its layer. Raises DataError."""
    series = items(data, "ReferencedSeriesSequence")
    all_images = [image for entry in series for image in items(entry, "ReferencedImageSequence")]
    number = 0
    for annotation in items(data, "GraphicAnnotationSequence"):
        for item in items(annotation, "GraphicObjectSequence"):
            number += 1
            for image in items(annotation, "ReferencedImageSequence") or all_images:
                uid = uid_of(image, "ReferencedSOPInstanceUID")
                points = _pairs(item, (file, number))
                if text_of(item, "GraphicAnnotationUnits") == "DISPLAY":
                    points = _displayed(points, data, uid, (file, number))
                elif text_of(item, "GraphicAnnotationUnits") != "PIXEL":
                    raise fail(file, number, "the units of the graphic are neither PIXEL nor DISPLAY")
                yield Graphic((text_of(annotation, "GraphicLayer"),), uid, text_of(item, "GraphicType"), points, number)
        for _ in items(annotation, "CompoundGraphicSequence"):
            number += 1
            for image in items(annotation, "ReferencedImageSequence") or all_images:
                layer = (text_of(annotation, "GraphicLayer"),)
                yield Graphic(layer, uid_of(image, "ReferencedSOPInstanceUID"), "COMPOUND", (), number)


def _groups(item: Any) -> Iterator[Any]:
    """All measurement groups below an item of a structured report, without recursion."""
    waiting = [item]
    while waiting:
        container = waiting.pop()
        if _concept(container) == _GROUP:
            yield container
        else:
            waiting += reversed(items(container, "ContentSequence"))


def _below(group: Any) -> Iterator[Any]:
    """All items below a measurement group, in their order: a measurement may hold the graphic that was measured."""
    waiting = list(reversed(items(group, "ContentSequence")))
    while waiting:
        item = waiting.pop()
        yield item
        waiting += reversed(items(item, "ContentSequence"))


def _names(group: Any) -> tuple[tuple[str, ...], str]:
    """The names of the class of a measurement group, of the viewer only the label if there is one; and its tool."""
    contents = {
        (_concept(item), text_of(item, "ValueType")): item for item in reversed(items(group, "ContentSequence"))
    }
    tracked = text_of(contents.get((_TRACKING, "TEXT"), {}), "TextValue")
    tool = tracked if tracked.startswith((_VIEWER_3, _VIEWER_2)) else ""
    codes = [
        _code(items(contents.get((concept, "CODE"), {}), "ConceptCodeSequence")) for concept in (*_SITES, _FINDING)
    ]
    labels = [text_of(contents.get((_COMMENT, "TEXT"), {}), "TextValue") if tool else ""]
    labels += [code[0] for code in codes if code[1:] == (_FREE_TEXT,)]
    return next(((label,) for label in labels if label), codes[-1]), tool


def _concept(item: Any) -> str:
    codes = items(item, "ConceptNameCodeSequence")
    return text_of(codes[0], "CodeValue") if codes else ""


def _code(codes: list[Any]) -> tuple[str, ...]:
    """Meaning and value of a code."""
    return tuple(name for key in ("CodeMeaning", "CodeValue") if codes and (name := text_of(codes[0], key)))


def _pairs(item: Any, where: Place) -> Points:
    """The points of a graphic. Raises DataError for half of a point, and for a value that is no finite number."""
    values = item.get("GraphicData")
    numbers = [float(value) for value in (values if isinstance(values, Sequence) else ())]
    if not numbers or len(numbers) % 2 or not all(map(math.isfinite, numbers)):
        raise fail(*where, "the coordinates of the graphic are no pairs of finite numbers")
    return tuple(zip(numbers[0::2], numbers[1::2], strict=True))


def _displayed(points: Points, data: Any, uid: str, where: Place) -> Points:
    """Points in fractions of the displayed area, in pixels of the image. The area is given as pixels from 1 on."""
    if int(data.get("ImageRotation") or 0) or text_of(data, "ImageHorizontalFlip") == "Y":
        raise fail(*where, "the graphic is placed on a display that turns or flips the image, which is not read")
    for area in items(data, "DisplayedAreaSelectionSequence"):
        images = [uid_of(image, "ReferencedSOPInstanceUID") for image in items(area, "ReferencedImageSequence")]
        if not images or uid in images:
            (x1, y1), (x2, y2) = area.DisplayedAreaTopLeftHandCorner, area.DisplayedAreaBottomRightHandCorner
            return tuple((x1 - 1 + x * (x2 - x1 + 1), y1 - 1 + y * (y2 - y1 + 1)) for x, y in points)
    raise fail(*where, "the graphic is placed on the display, and no displayed area is stated")
