"""CheXlocalize's human benchmark: masks and points of radiologists who did not draw the regions
(docs/published-datasets.md §5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..chexlocalize_shapes import Keys, entries, read_segmentations
from ..dataset import Case, Note
from ..file_rows import fail, numbers
from .reader_marks import ReaderMasks

Point = tuple[float, float]


def read_benchmark(masks: Path, points: Path, keys: Keys, classes: Sequence[str], cases: Sequence[Case]) -> ReaderMasks:
    """The marks on these cases. A mask has the size of the image's regions, and a point lies in it. Raises DataError
    for marks that do not fit, with file, image and finding."""
    notes: list[Note] = []
    drawn = read_segmentations(masks, keys, classes, notes)
    points_of_images: dict[str, dict[str, list[Point]]] = {}
    for key, finding, shape in entries(points, keys, classes, notes):
        points_of_image = points_of_images.setdefault(key, {})
        if finding is not None and (marked := _points(shape, points, f"'{key}', '{finding}'")):
            points_of_image[finding] = marked
    case_ids = {case.case_id for case in cases}
    for case in cases:
        _check(case, drawn.sizes.get(case.case_id), masks)
        for finding, marked in points_of_images.get(case.case_id, {}).items():
            _check_points(case, finding, marked, points)
    listed = frozenset({*drawn.regions, *points_of_images})
    return ReaderMasks(
        files=(masks, points),
        masks=drawn.regions,
        points=points_of_images,
        listed=listed,
        remarks=[*_remarks(notes), *_strangers(masks, listed - case_ids)],
    )


def _points(shape: Any, file: Path, where: str) -> list[Point]:
    if not isinstance(shape, list):
        raise fail(file, None, f"{where} is not a list of points")
    return [(x, y) for x, y in (numbers(point, 2, file, None, f"a point of {where}") for point in shape)]


def _check(case: Case, size: tuple[int, int] | None, file: Path) -> None:
    if size is not None and case.size is not None and size != case.size:
        (height, width), (high, wide) = size, case.size
        text = f"the masks of '{case.case_id}' are {height} x {width}, and its regions {high} x {wide}"
        raise fail(file, None, f"{text}; take both files from one release")


def _check_points(case: Case, finding: str, points: Sequence[Point], file: Path) -> None:
    for x, y in points if case.size is not None else ():
        height, width = case.size or (0, 0)
        if not (0 <= x < width and 0 <= y < height):
            text = f"the point ({x:g}, {y:g}) of '{case.case_id}', '{finding}' lies outside the image"
            raise fail(file, None, f"{text} of {width} x {height} pixels; write x before y, in pixels of the image")


def _remarks(notes: Sequence[Note]) -> Iterator[str]:
    if notes:
        yield f"{notes[0]}" + (f", and {len(notes) - 1} more of the kind" if len(notes) > 1 else "")


def _strangers(file: Path, names: frozenset[str]) -> Iterator[str]:
    if names:
        yield f"{file}: images that the dataset does not have, not used: {len(names)}, such as '{min(names)}'"
