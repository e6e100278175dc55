"""CVAT for images 1.1: one XML file with boxes, polygons, ellipses and masks (docs/formats.md §9.7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..file_rows import fail, number
from .file_format import POLYGONS, SHARED, FileFormat
from .region_marks import mark_of
from .shapes import Annotated, Shape, placed
from .xml_tree import Element, read_xml

_WITHOUT_AREA = ("polyline", "points", "skeleton")


class Cvat(FileFormat):
    """`<root>/annotations.xml` next to `<root>/images/`. An `<image>` without shapes means that nothing was found.

    A `<tag>` makes its image positive without a region. Tracks of videos and cuboids are refused.
    """

    name = "cvat"
    title = "CVAT"
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the XML file, default annotations.xml",
        **POLYGONS,
        **SHARED,
        "classes": "a list of the classes, in this order; default the labels of the file, else those used, sorted",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "annotations.xml")
        top = read_xml(self.annotations, "annotations")
        track = top.first("track")
        if track is not None:
            raise fail(*track.where, "it has tracks of a video; export the task as 'CVAT for images 1.1'")
        self._outside = 0
        self._use(self._annotated(top), self.texts_option("classes") or tuple(_labels(top)))
        if self._outside:
            text = f"shapes that are outside of their image, which are not used: {self._outside}"
            self.note("unused_parts", self.name, (self.annotations, None), text)

    def sources(self) -> Sequence[Path]:
        """The XML file."""
        return (self.annotations,)

    def _annotated(self, top: Element) -> Iterator[Annotated]:
        twice = _subsets(top)
        for image in top.all("image"):
            name = image.attributes.get("name", "").strip()
            if not name:
                raise fail(*image.where, "the image has no name")
            height, width = (int(image.value(key)) for key in ("height", "width"))
            if height < 1 or width < 1:
                raise fail(*image.where, f"the size of the image is {width} x {height}")
            shapes = [
                self.shape(partial(self._marked, item, (height, width)), item.where, _label(item))
                for item in image.children
                if self._is_visible(item)
            ]
            subset = image.attributes.get("subset", "").strip()
            if subset and subset in twice.get(name, ()):
                name = f"{subset}/{name}"
            yield Annotated(name, self.annotations, image.line, shapes, (height, width))

    def _is_visible(self, item: Element) -> bool:
        outside = item.attributes.get("outside") == "1"
        self._outside += outside
        return not outside

    def _marked(self, item: Element, size: tuple[int, int]) -> Shape:
        """A shape with its mark, which is an attribute of CVAT or of its label."""
        shape = self._shape(item, size)
        named = {attribute.attributes.get("name", ""): attribute.text.strip() for attribute in item.all("attribute")}
        mark = mark_of(item.attributes, named)
        return replace(shape, mark=mark) if mark else shape

    def _shape(self, item: Element, size: tuple[int, int]) -> Shape:
        finding = _label(item)
        if not finding:
            raise fail(*item.where, f"<{item.tag[:40]}> has no label")
        if item.tag == "tag":
            return Shape(finding, None, item.line)
        if item.tag in _WITHOUT_AREA:
            return self.without_area(finding, item.tag, item.where)
        if item.tag == "box":
            return self._box(item, finding)
        if item.tag in ("polygon", "mask") and _rotation(item) % 360:
            raise fail(*item.where, f"the {item.tag} of '{finding}' has a rotation; only boxes and ellipses can")
        if item.tag == "polygon":
            return self.polygon(finding, _points(item), item.where)
        if item.tag == "ellipse":
            x, y, rx, ry = (item.value(key) for key in ("cx", "cy", "rx", "ry"))
            return self.ellipse(finding, (x, y), (rx, ry), item.where, _rotation(item))
        if item.tag == "mask":
            return _mask(item, finding, size)
        raise fail(*item.where, f"<{item.tag[:40]}> is not read; boxes, polygons, ellipses and masks are")

    def _box(self, item: Element, finding: str) -> Shape:
        x1, y1, x2, y2 = (item.value(key) for key in ("xtl", "ytl", "xbr", "ybr"))
        return self.box(finding, (x1, y1, x2, y2), item.where, angle=_rotation(item))


def _label(item: Element) -> str:
    """The class of a shape; empty if it has none."""
    return item.attributes.get("label", "").strip()


def _labels(top: Element) -> Iterator[str]:
    """The names of the labels of the task, job or project."""
    for parent in ("task", "job", "project"):
        labels = top.first("meta", parent, "labels")
        for label in labels.all("label") if labels else ():
            if name := label.content("name"):
                yield name


def _subsets(top: Element) -> dict[str, set[str]]:
    """The subsets of the names that images of several subsets have."""
    subsets: dict[str, set[str]] = defaultdict(set)
    for image in top.all("image"):
        subsets[image.attributes.get("name", "").strip()].add(image.attributes.get("subset", "").strip())
    return {name: folders for name, folders in subsets.items() if len(folders) > 1}


def _rotation(item: Element) -> float:
    """Degrees, from x towards y, about the centre; some converters write an attribute of the label instead."""
    if "rotation" in item.attributes:
        return item.value("rotation")
    for attribute in item.all("attribute"):
        if attribute.attributes.get("name", "").lower() == "rotation" and attribute.text.strip():
            return number(attribute.text.strip(), *attribute.where, "the attribute rotation")
    return 0.0


def _points(item: Element) -> Iterator[tuple[float, float]]:
    for pair in item.attributes.get("points", "").split(";"):
        x, comma, y = pair.partition(",")
        if not comma:
            raise fail(*item.where, f"the points of <{item.tag}> are not of the form x,y;x,y")
        yield number(x, *item.where, "a point"), number(y, *item.where, "a point")


def _mask(item: Element, finding: str, size: tuple[int, int]) -> Shape:
    """A mask of runs, row by row inside its box, beginning with a run of 0."""
    left, top, width, height = (int(item.value(key)) for key in ("left", "top", "width", "height"))
    cells = item.attributes.get("rle", "").replace(" ", "").split(",")
    runs = [int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 10 else -1 for cell in cells]
    if min(runs) < 0 or min(width, height) < 1 or sum(runs) != width * height or sum(runs) > size[0] * size[1]:
        raise fail(*item.where, f"the runs of the mask of '{finding}' do not fill its {width} x {height} pixels")
    values = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(height, width)
    return Shape(finding, placed(values, (top, left), size, item.where), item.line)
