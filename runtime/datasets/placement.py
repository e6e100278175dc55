"""Whether a region lies in its image: the parts that have corners, and what is wrong with their place."""

from __future__ import annotations

from collections.abc import Iterator

from .base import Region
from .region_boxes import ROUNDING, Boxes
from .region_shapes import AtLeast, Ellipse, Polygons, Union

__all__ = ["boxes_of", "extents", "region_fault"]

Corners = tuple[float, float, float, float]


def boxes_of(region: Region) -> Iterator[Boxes]:
    """The boxes that a region is made of; none for a mask or a polygon."""
    if isinstance(region, Boxes):
        yield region
    elif isinstance(region, AtLeast | Union):
        for part in region.parts:
            yield from boxes_of(part)


def extents(region: Region, height: int, width: int) -> Iterator[Corners]:
    """(x1, y1, x2, y2) of each box, polygon and ellipse of a region, in pixels of a [height, width] image.

    A mask has its own grid and cannot leave it.
    """
    if isinstance(region, Boxes):
        yield from region.pixels(height, width)
    elif isinstance(region, Polygons):
        for outline in region.pixels(height, width):
            if outline:
                columns, rows = zip(*outline, strict=True)
                yield min(columns), min(rows), max(columns), max(rows)
    elif isinstance(region, Ellipse):
        yield region.extent()
    elif isinstance(region, AtLeast | Union):
        for part in region.parts:
            yield from extents(part, height, width)


def region_fault(region: Region, height: int, width: int, *, drawn: bool) -> str | None:
    """What is wrong with the place of a region in a [height, width] image, one of `FAULTS`; None: nothing.

    drawn: whether the region covers a pixel of the image. outside: it covers none, because all of it lies outside;
    empty: it covers none for another reason. clipped: a part reaches beyond the image by more than `ROUNDING`.
    """
    parts = list(extents(region, height, width))
    if not drawn:
        outside = all(x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0 for x1, y1, x2, y2 in parts)
        return "outside" if parts and outside else "empty"
    beyond = any(max(-x1, -y1, x2 - width, y2 - height) > ROUNDING for x1, y1, x2, y2 in parts)
    return "clipped" if beyond else None
