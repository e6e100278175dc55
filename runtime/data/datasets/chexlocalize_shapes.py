"""The JSON files of CheXlocalize: masks and polygons by image and finding (docs/published-datasets.md §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import dist
from pathlib import Path
from typing import Any

from ....engines.errors import DataError
from .dataset import Note, Region
from .file_rows import fail, numbers
from .region_shapes import Polygons, RunText
from .source.documents import read_json
from .source.spelling import FixedClasses

_ALIAS = {"Lung Opacity": "Airspace Opacity"}  # the label file's name

Keys = Callable[[str], tuple[str, str, str] | None]
"""The name of an image in a file -> patient, study and view; None: another form."""


@dataclass
class Shapes:
    """Regions by image and finding, the size (height, width) of their grid where stated, and the images listed."""

    file: Path
    regions: dict[str, dict[str, Region]] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)


def read_segmentations(file: Path, keys: Keys, classes: Sequence[str], notes: list[Note]) -> Shapes:
    """Non-empty masks, kept compressed; `keys` returns None for a text that names no image. Raises DataError."""
    shapes = Shapes(file)
    for key, finding, shape in entries(file, keys, classes, notes):
        regions = shapes.regions.setdefault(key, {})
        if finding is None:
            continue
        where = f"'{key}', '{finding}'"
        if not isinstance(shape, dict) or not isinstance(shape.get("counts"), str):
            raise fail(file, None, f"{where} is not an object with size and counts")
        size = _size(shape.get("size"), file, where)
        if shapes.sizes.setdefault(key, size) != size:
            raise fail(file, None, f"{where} is {size[0]} x {size[1]}, other masks of the image are not")
        try:
            mask = RunText(size, shape["counts"], "coco")
        except DataError as error:
            raise DataError(f"{file}: {where}: {error}") from error
        if mask.area:
            regions[finding] = mask
    return shapes


def read_polygons(file: Path, keys: Keys, classes: Sequence[str], notes: list[Note]) -> Shapes:
    """Polygons by image and finding; the size is missing if `img_size` is. Raises DataError."""
    shapes = Shapes(file)
    for key, finding, shape in entries(file, keys, classes, notes):
        regions = shapes.regions.setdefault(key, {})
        if finding is None:
            if shape is not None:
                shapes.sizes[key] = _size(shape, file, f"'{key}'")
            continue
        where = f"'{key}', '{finding}'"
        if not isinstance(shape, list) or not all(isinstance(outline, list) for outline in shape):
            raise fail(file, None, f"{where} is not a list of polygons")
        outlines = []
        for outline in shape:
            points = [numbers(point, 2, file, None, f"a point of {where}") for point in outline]
            if len(points) < 3:
                notes.append(Note("degenerate", finding, file, None, f"{where}: a polygon has {len(points)} points"))
            outlines.append(tuple((x, y) for x, y in points))
        if any(outlines):
            try:
                regions[finding] = Polygons(tuple(outlines))
            except DataError as error:
                raise DataError(f"{file}: {where}: {error}") from error
    return shapes


def compare(masks: Shapes, outlines: Shapes, pixels: bool, notes: list[Note]) -> None:
    """Adds notes where the two files disagree: images, classes, and if `pixels` masks beyond the outline's pixels."""
    for key in masks.regions.keys() | outlines.regions.keys():
        one, other = masks.regions.get(key, {}), outlines.regions.get(key, {})
        for finding in sorted(one.keys() ^ other.keys()):
            text = f"'{key}' has '{finding}' in {(masks if finding in one else outlines).file.name} only"
            notes.append(Note("disagreement", key, masks.file, None, text))
        for finding in sorted(one.keys() & other.keys()) if pixels else ():
            polygons, size = other[finding], masks.sizes[key]
            assert isinstance(polygons, Polygons)
            length = sum(dist(a, b) for o in polygons.outlines for a, b in pairwise((*o, *o[:1])))
            differing = int((one[finding].mask(*size) != polygons.mask(*size)).sum())
            if differing > 2 * length:
                text = f"'{key}', '{finding}': mask and polygons differ in {differing} pixels, more than the outline's"
                notes.append(Note("disagreement", key, masks.file, None, text))


def entries(file: Path, keys: Keys, classes: Sequence[str], notes: list[Note]) -> Iterator[tuple[str, str | None, Any]]:
    """(key, finding, shape) of all entries; an image's first entry has the finding None and its img_size."""
    document = read_json(file)
    if not isinstance(document, dict):
        raise fail(file, None, "it holds no object of images")
    spellings = FixedClasses(classes, _ALIAS)
    seen: set[str] = set()
    for name, image in document.items():
        parts = keys(name)
        if parts is None:
            raise fail(file, None, f"the key {name[:200]!r} is not like patient1_study1_view1_frontal")
        key = "_".join(parts)
        if key in seen:
            raise fail(file, None, f"'{key}' appears twice, once as '{name[:200]}'")
        seen.add(key)
        if not isinstance(image, dict):
            raise fail(file, None, f"'{key}' is not an object of findings")
        yield key, None, image.get("img_size")
        findings: set[str] = set()
        for name, shape in image.items():
            if name == "img_size":
                continue
            finding = spellings.find(name, None)
            if finding is None:
                text = f"'{key}': '{name}' is not one of the {len(classes)} findings; not used"
                notes.append(Note("unknown_class", name, file, None, text))
            elif finding in findings:
                raise fail(file, None, f"'{key}' has '{finding}' twice, once as '{name}'")
            else:
                findings.add(finding)
                yield key, finding, shape
    notes += spellings.notes(file)


def _size(value: object, file: Path, where: str) -> tuple[int, int]:
    height, width = numbers(value, 2, file, None, f"the size of {where}")
    if height != int(height) or width != int(width) or min(height, width) < 1:
        raise fail(file, None, f"the size of {where} is {value!r}, not in whole pixels")
    return int(height), int(width)
