"""LabelMe 5: one JSON file per image (docs/datasets.md §9.6)."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ....engines.errors import ImageError
from ..files import fail, number
from ..masks.mask_files import decode_png
from ..masks.mask_reader import MaskReader
from ..source.documents import read_json
from .file_format import POLYGONS, SHARED, FileFormat
from .shapes import Annotated, Place, Shape, placed

__all__ = ["LabelMe"]

Point = tuple[float, float]

_WITHOUT_AREA = ("point", "points", "line", "linestrip")


class LabelMe(FileFormat):
    """`<root>/annotations/<image>.json`, or beside the images, in `<root>/images/`.

    Polygons are filled with their outline, as LabelMe's own masks are; rectangles and circles are drawn by the centres
    of pixels.
    """

    name = "labelme"
    title = "LabelMe"
    polygons = "outline"
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the JSON files, default annotations, else images",
        **POLYGONS,
        **SHARED,
        "polygons": "pixels of a polygon: outline (default; its edge too), or centres (those whose centre lies inside)",
    }

    mends: Mapping[str, str] = dict.fromkeys(
        ("smaller", "larger"), "state the size of the annotated images in imageHeight and imageWidth of the JSON files"
    )

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.first_path("annotations", "annotations", "images")
        self._files: list[Path] = []
        self._masks = MaskReader()
        self._use(self._annotated())
        self._early += self._masks.notes()

    def sources(self) -> Sequence[Path]:
        """The JSON files."""
        return self._files

    def _annotated(self) -> Iterator[Annotated]:
        for name, file in self.files_below(self.annotations, ".json", "annotations"):
            document = read_json(file)
            shapes = document.get("shapes") if isinstance(document, dict) else None
            if not isinstance(shapes, list):
                raise fail(file, None, "it has no list 'shapes', so it is not LabelMe's form")
            self._files.append(file)
            size = _size(document, file)
            drawn = [self._shape(shape, (file, row), size) for row, shape in enumerate(shapes, 1)]
            other = document.get("imagePath")
            other = other.replace("\\", "/").rpartition("/")[2] if isinstance(other, str) else ""
            yield Annotated(name, file, None, drawn, size, other=other)

    def _shape(self, shape: object, where: Place, size: tuple[int, int] | None) -> Shape:
        label = shape.get("label") if isinstance(shape, dict) else None
        if not isinstance(shape, dict) or not isinstance(label, str) or not label.strip():
            raise fail(*where, "the shape has no label")
        finding, kind = label.strip(), shape.get("shape_type") or "polygon"
        if kind in _WITHOUT_AREA:
            return self.without_area(finding, kind, where)
        points = _points(shape.get("points"), where)
        if kind == "polygon" or (kind == "oriented_rectangle" and len(points) == 4):
            return self.polygon(finding, points, where)
        if kind not in ("rectangle", "circle", "mask"):
            raise fail(*where, f"the shape_type {str(kind)[:40]!r} is not read")
        if len(points) != 2:
            raise fail(*where, f"a {kind} has {len(points)} points, it needs 2")
        (ax, ay), (bx, by) = points
        if kind == "circle":
            radius = math.hypot(ax - bx, ay - by)
            return self.ellipse(finding, (ax, ay), (radius, radius), where)
        corners = (min(ax, bx), min(ay, by), max(ax, bx), max(ay, by))
        if kind == "rectangle":
            return self.box(finding, corners, where)
        return self._mask(finding, (shape.get("mask"), corners), where, size)

    def _mask(
        self,
        finding: str,
        mask: tuple[object, tuple[float, float, float, float]],
        where: Place,
        size: tuple[int, int] | None,
    ) -> Shape:
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
            told = f"{values.shape[1]} x {values.shape[0]}, its points say {x2 - x1 + 1:g} x {y2 - y1 + 1:g}"
            raise fail(*where, f"the mask of '{finding}' is {told}")
        return Shape(finding, placed(values, (int(y1), int(x1)), size, where), where[1])


def _size(document: dict[str, Any], file: Path) -> tuple[int, int] | None:
    given = [document.get("imageHeight"), document.get("imageWidth")]
    if None in given:
        return None
    height, width = (number(value, file, None, "the size of the image") for value in given)
    if height < 1 or width < 1 or height != int(height) or width != int(width):
        raise fail(file, None, f"imageHeight {height:g} and imageWidth {width:g} are not a size in pixels")
    return int(height), int(width)


def _points(given: object, where: Place) -> list[Point]:
    if not isinstance(given, list) or not all(isinstance(point, list) and len(point) == 2 for point in given):
        raise fail(*where, "points is not a list of pairs")
    return [(number(x, *where, "a point"), number(y, *where, "a point")) for x, y in given]
