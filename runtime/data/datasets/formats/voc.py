"""Pascal VOC: one XML file per image, with boxes and what tools added to them (docs/formats.md §9.5)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from ..file_rows import fail, number
from .box_keys import stated_turn
from .file_format import POLYGONS, SHARED, FileFormat
from .region_marks import mark_of
from .shapes import Annotated, Shape
from .xml_tree import Element, read_xml

_OBJECTS: Final = ("object", "objects", "obj")


class PascalVoc(FileFormat):
    """`<root>/Annotations/<image>.xml` next to `<root>/JPEGImages/` or `<root>/images/`, or next to the images.

    An object has a bndbox, which an attribute `rotation` turns as CVAT writes it, or a robndbox of roLabelImg, or
    polygons, which are used before its bndbox. The first pixel of an image is 1 and the last one of a bndbox is part of
    it, unless `origin` is 0: many tools write corners from 0 whose ends are no part of the box.
    """

    name = "voc"
    title = "Pascal VOC"
    folders = ("JPEGImages", "images")
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the XML files, default Annotations, else the folder of the images, else the root",
        "origin": "1 (default): corners count pixels from 1, inclusive; or 0: positions from 0, as CVAT writes",
        **POLYGONS,
        **SHARED,
        "images": "the folder of the images, default JPEGImages, else images; subfolders are searched",
    }

    mends: Mapping[str, str] = dict.fromkeys(
        ("smaller", "larger"), "state the size of the annotated images in size of the XML files"
    )

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.annotation_folder(".xml", "Annotations", "annotations", *self.folders)
        self.origin = self._origin()
        self._files: list[Path] = []
        self._zeros: list[Element] = []
        self._parts: list[Element] = []
        self._use(self._annotated())
        if self._zeros:
            text = (
                f"corners that are 0, though the first pixel is 1: {len(self._zeros)}; if this tool counts from 0, set "
                "the option origin to 0"
            )
            self.note("disagreement", self.name, self._zeros[0].where, text)
        if self._parts:
            text = f"parts of objects, which are not used: {len(self._parts)}"
            self.note("unused_parts", self.name, self._parts[0].where, text)

    def _origin(self) -> int:
        given = self.options.get("origin", 1)
        if given not in (0, 1) or isinstance(given, bool):
            raise self.option_error("origin", f"must be 1 or 0, not {given!r}")
        return int(str(given))

    def sources(self) -> Sequence[Path]:
        """The XML files."""
        return self._files

    def _annotated(self) -> Iterator[Annotated]:
        for name, file in self.files_below(self.annotations, ".xml", "annotations"):
            self._files.append(file)
            top = read_xml(file, "annotation")
            _check_objects(top)
            height, width = top.side("size", "height"), top.side("size", "width")
            size = (height, width) if height and width else None
            shapes = [shape for item in top.all("object") for shape in self._marked(item)]
            yield Annotated(name, file, None, shapes, size, other=top.content("filename"))

    def _marked(self, item: Element) -> list[Shape]:
        """The shapes of an object, with its mark; one unread shape where one of them cannot be read."""
        mark = mark_of({child.tag: child.text.strip() for child in item.children}, _attributes(item))
        read = self.shape(lambda: list(self._shapes(item)), item.where, item.content("name"))
        return [replace(shape, mark=mark) for shape in (read if isinstance(read, list) else [read])]

    def _shapes(self, item: Element) -> Iterator[Shape]:
        if item.content("deleted") == "1":  # LabelMe's web tool keeps what was removed
            return
        finding, boxes = item.content("name"), list(item.all("bndbox"))
        if not finding:
            raise fail(*item.where, "the object has no name")
        self._parts += item.all("part")
        turned = item.first("robndbox")
        outlines = [outline for outline in item.all("polygon") if outline.children]
        if outlines:
            yield from (self.polygon(finding, _points(outline), outline.where) for outline in outlines)
        elif turned:
            x, y, wide, high, angle = (turned.value(key) for key in ("cx", "cy", "w", "h", "angle"))
            corners = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
            yield self.box(finding, corners, turned.where, angle=math.degrees(angle))
        elif len(boxes) == 1:
            yield self._box(finding, boxes[0], item)
        elif boxes:
            raise fail(
                *item.where, f"the object '{finding}' has {len(boxes)} elements bndbox; write an object for each"
            )
        else:
            text = (
                f"the object '{finding}' has no bndbox; only boxes are read, also turned ones (robndbox), and polygons"
            )
            raise fail(*item.where, text)

    def _box(self, finding: str, box: Element, item: Element) -> Shape:
        x1, y1, x2, y2 = (box.value(key) for key in ("xmin", "ymin", "xmax", "ymax"))
        if self.origin and min(x1, y1) == 0:
            self._zeros.append(box)
        for element, key in ((box, "angle"), (box, "rotation"), (item, "angle"), (item, "rotation")):
            if element.content(key) and element.value(key):
                text = f"the box of '{finding}' has the {key} {element.content(key)}, whose unit is not known"
                raise fail(*box.where, f"{text}; write an attribute rotation in degrees, or a robndbox")
        corners = (x1 - self.origin, y1 - self.origin, x2, y2)
        return self.box(finding, corners, box.where, angle=_rotation(item))


def _attributes(item: Element) -> dict[str, str]:
    """The attributes of an object, as CVAT writes them: name -> value."""
    listed = item.first("attributes")
    attributes = listed.all("attribute") if listed else ()
    return {attribute.content("name"): attribute.content("value") for attribute in attributes}


def _rotation(item: Element) -> float:
    """Degrees from x towards y about the centre, as CVAT writes them. Raises DataError for another turn."""
    attributes = _attributes(item)
    rotation = next((value for name, value in attributes.items() if name.lower() == "rotation" and value), "0")
    other = stated_turn({name: value for name, value in attributes.items() if name.lower() != "rotation"})
    if other is not None:
        raise fail(*item.where, f"the attribute '{other}' turns the box, and its unit is not known; write rotation")
    return number(rotation, *item.where, "rotation")


def _points(outline: Element) -> Iterator[tuple[float, float]]:
    """The points of a polygon: x1, y1, x2, y2 and so on, or elements with x and y."""
    if outline.first("x1"):
        for number in range(1, len(outline.children) // 2 + 1):
            yield outline.value(f"x{number}"), outline.value(f"y{number}")
    else:
        yield from ((point.value("x"), point.value("y")) for point in outline.children if point.first("x"))


def _check_objects(top: Element) -> None:
    """Raises DataError for an object in another place or spelling: its image would be taken as negative."""
    objects = {id(item) for item in top.all("object")}
    for element in top.below():
        if element.tag.casefold() in _OBJECTS and id(element) not in objects:
            text = f"<{element.tag[:40]}> is not an object of <annotation>; write each as <object> directly in it"
            raise fail(*element.where, text)
