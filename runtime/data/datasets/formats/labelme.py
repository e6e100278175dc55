"""LabelMe and the tools that write its form, such as X-AnyLabeling: one JSON file per image (docs/formats.md §9.6)."""

from __future__ import annotations

import base64
import binascii
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from .....engines.errors import ImageError
from ..file_rows import fail, number
from ..masks.mask_files import decode_png
from ..masks.mask_reader import MaskReader
from ..source.documents import read_json
from ..source.image_names import portable_name
from ..source.spelling import Spellings
from .empty_class_names import says_nothing
from .file_format import POLYGONS, SHARED, FileFormat
from .region_marks import mark_of
from .shapes import Annotated, Corners, Place, Shape, placed, stated_size

Point = tuple[float, float]

_WITHOUT_AREA: Final = ("point", "points", "line", "linestrip")
_TURNED: Final = ("rotation", "obb", "rotated_rectangle")
"""Rectangles that X-AnyLabeling and its relatives write by their four turned corners."""
_POLYGONS: Final = {"polygon": None, "oriented_rectangle": 4, "quadrilateral": 4}
"""Kinds that are drawn as polygons -> the number of their points; None: any."""
_ANGLES: Final = ("direction", "rotation", "angle")
_OWN_KEYS: Final = ("shapes", "imagePath", "imageData", "imageHeight", "imageWidth")
_TURN: Final = 0.02
"""Radians by which the angle of a rectangle may miss a quarter turn through rounding."""


class LabelMe(FileFormat):
    """`<root>/annotations/<image>.json`, or next to the images, in `<root>/images/` or in `<root>` itself.

    Polygons are filled with their outline, as LabelMe's own masks are; rectangles, by two or four corners, and circles
    are drawn by the centres of pixels. A flag of the image that is true and names a class makes it positive.
    """

    name = "labelme"
    title = "LabelMe"
    polygons = "outline"
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the JSON files, default annotations, else images, else the root",
        **POLYGONS,
        **SHARED,
        "polygons": "pixels of a polygon: outline (default; its edge too), or centres (those whose centre lies inside)",
    }

    mends: Mapping[str, str] = dict.fromkeys(
        ("smaller", "larger"), "state the size of the annotated images in imageHeight and imageWidth of the JSON files"
    )

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.annotation_folder(".json", "annotations", "images")
        self._files: list[Path] = []
        self._flags: dict[Path, list[str]] = {}
        self._masks = MaskReader()
        images = self._annotated()
        self._use_flags(images)
        self._use(images)
        self._early += self._masks.notes()

    def sources(self) -> Sequence[Path]:
        """The JSON files."""
        return self._files

    def _annotated(self) -> list[Annotated]:
        images: list[Annotated] = []
        others: list[Path] = []
        for name, file in self.files_below(self.annotations, ".json", "annotations"):
            document = read_json(file)
            if not isinstance(document, dict) or not any(key in document for key in _OWN_KEYS):
                others.append(file)
                continue
            self._files.append(file)
            images.append(self._image(name, file, document))
        if not images:
            raise fail(others[0], None, "it has no list 'shapes', so it is not LabelMe's form")
        self.left_out("other_file", "JSON files that are not of LabelMe's form", others)
        return images

    def _image(self, name: str, file: Path, document: dict[str, Any]) -> Annotated:
        shapes = document.get("shapes")
        if not isinstance(shapes, list):
            raise fail(
                file, None, "it has no list 'shapes', so it is not LabelMe's form; [] says that nothing was found"
            )
        size = stated_size(document.get("imageHeight"), document.get("imageWidth"), (file, None))
        drawn = [
            self.shape(partial(self._shape, shape, (file, row), size), (file, row), _label(shape))
            for row, shape in enumerate(shapes, 1)
        ]
        flags, other = document.get("flags"), document.get("imagePath")
        if isinstance(flags, dict):
            self._flags[file] = [flag.strip() for flag, value in flags.items() if value is True]
        other = portable_name(other).rpartition("/")[2] if isinstance(other, str) else ""
        return Annotated(name, file, None, drawn, size, other=other)

    def _use_flags(self, images: Sequence[Annotated]) -> None:
        """Makes an image positive for a class that a flag of it names, and notes the other flags that are true."""
        drawn = {shape.finding for item in images for shape in item.shapes}
        spellings, others = Spellings(self.texts_option("classes") or sorted(drawn)), Counter[str]()
        for item in images:
            for flag in self._flags.get(item.file, ()):
                if flag in spellings or says_nothing(flag, self.nothing):
                    item.shapes.append(Shape(flag, None))
                else:
                    others[flag] += 1
        for flag, count in others.items():
            text = f"the flag '{flag}' is true for {count} images and names no class; not used"
            self.note("other_flag", flag, (self.annotations, None), text)

    def _shape(self, shape: object, where: Place, size: tuple[int, int] | None) -> Shape:
        finding = _label(shape)
        if not isinstance(shape, dict) or not finding:
            raise fail(*where, "the shape has no label")
        shape_type = shape.get("shape_type") or "polygon"
        flags = shape["flags"] if isinstance(shape.get("flags"), dict) else {}
        return replace(self._drawn(finding, shape_type, shape, where, size), mark=mark_of(shape, flags))

    def _drawn(
        self, finding: str, shape_type: Any, shape: dict[str, Any], where: Place, size: tuple[int, int] | None
    ) -> Shape:
        if shape_type in _WITHOUT_AREA:
            return self.without_area(finding, shape_type, where)
        points = _points(shape.get("points"), where)
        if shape_type in _POLYGONS:
            if _POLYGONS[shape_type] not in (None, len(points)):
                raise fail(*where, f"the {shape_type} has {len(points)} points, it needs {_POLYGONS[shape_type]}")
            return self.polygon(finding, points, where)
        if shape_type == "rectangle" or shape_type in _TURNED:
            return self._rectangle(finding, shape, points, where)
        if shape_type not in ("circle", "mask"):
            raise fail(*where, f"the shape_type {str(shape_type)[:40]!r} is not read")
        if len(points) != 2:
            raise fail(*where, f"a {shape_type} has {len(points)} points, it needs 2")
        (ax, ay), (bx, by) = points
        if shape_type == "circle":
            radius = math.hypot(ax - bx, ay - by)
            return self.ellipse(finding, (ax, ay), (radius, radius), where)
        return self._mask(finding, (shape.get("mask"), _around(points)), where, size)

    def _mask(self, finding: str, mask: tuple[object, Corners], where: Place, size: tuple[int, int] | None) -> Shape:
        """A PNG file in base64 text; the corners are its first and last pixel."""
        text, (x1, y1, x2, y2) = mask
        if not isinstance(text, str) or size is None:
            raise fail(*where, f"the mask of '{finding}' needs its PNG in the key mask, and imageHeight and imageWidth")
        try:
            stored = decode_png(base64.b64decode(text, validate=True))
            values = self._masks.region(stored, finding, where, is_part=True)
        except (ImageError, binascii.Error, ValueError) as error:
            raise fail(*where, f"the mask of '{finding}' cannot be read: {str(error).rstrip('.')}") from error
        if values.shape != (y2 - y1 + 1, x2 - x1 + 1):
            stated = f"{x2 - x1 + 1:g} x {y2 - y1 + 1:g}"
            raise fail(
                *where, f"the mask of '{finding}' is {values.shape[1]} x {values.shape[0]}, its points say {stated}"
            )
        return Shape(finding, placed(values, (int(y1), int(x1)), size, where), where[1])

    def _rectangle(self, finding: str, shape: dict[str, Any], points: list[Point], where: Place) -> Shape:
        """By two opposite corners, or by all four, which may be turned."""
        shape_type, angle = shape["shape_type"], _angle(shape)
        corners = points[:-1] if len(points) == 5 and points[0] == points[-1] else points
        if len(corners) not in ((2, 4) if shape_type == "rectangle" else (4,)):
            needed = "2 or 4" if shape_type == "rectangle" else "4"
            raise fail(*where, f"a {shape_type} has {len(points)} points, it needs {needed}")
        if len(corners) == 2 and angle:
            raise fail(*where, f"the rectangle has 2 points and is turned by {angle:g}; state its four corners")
        x1, y1, x2, y2 = box = _around(corners)
        if len(corners) == 2 or {*corners} == {(x, y) for x in (x1, x2) for y in (y1, y2)}:
            quarter = math.pi / 2
            if "direction" in shape and abs(angle - quarter * round(angle / quarter)) > _TURN:
                text = f"the rectangle of '{finding}' has the direction {angle:g}, but its points are not turned"
                self.note("disagreement", finding, where, text)
            return self.box(finding, box, where)
        # A rectangle is convex, so its corners follow each other by their angle about its centre in any order.
        x, y = sum(x for x, _ in corners) / 4, sum(y for _, y in corners) / 4
        outline = sorted(corners, key=lambda point: math.atan2(point[1] - y, point[0] - x))
        return self.polygon(finding, outline, where, centres=True)


def _around(points: Sequence[Point]) -> Corners:
    """The smallest box around the points."""
    columns, rows = zip(*points, strict=True)
    return min(columns), min(rows), max(columns), max(rows)


def _angle(shape: dict[str, Any]) -> float:
    """The angle that a shape states in one of the keys for it, which differ in unit; 0 without one."""
    attributes = shape.get("attributes")
    for keys in (shape, attributes if isinstance(attributes, dict) else {}):
        for key in _ANGLES:
            value = keys.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool) and value:
                return float(value)
    return 0.0


def _label(shape: object) -> str:
    """The class of a shape; empty if it has none."""
    label = shape.get("label") if isinstance(shape, dict) else None
    return label.strip() if isinstance(label, str) else ""


def _points(given: object, where: Place) -> list[Point]:
    if not isinstance(given, list) or not all(isinstance(point, list) and len(point) == 2 for point in given):
        raise fail(*where, "points is not a list of pairs")
    return [(number(x, *where, "a point"), number(y, *where, "a point")) for x, y in given]
