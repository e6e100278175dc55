"""COCO results: a list of detections, and the COCO file that names images and categories (docs/boxes.md §6)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ....engines.errors import DataError
from ..datasets.source.image_names import portable_name
from .answered import State
from .bad_line import BadLine
from .box_file import FileReading
from .coordinate_frames import ordered
from .fitting import FittedAnswer, fit
from .line_keys import four_numbers, score_list
from .lines import JsonFile
from .questions import Place

COCO: Final = "coco"
_NAMING: Final = frozenset({"annotations", "categories"})
Size = tuple[int, int]


def is_coco_file(document: Any) -> bool:
    """Whether a JSON value is a COCO file, with images and what is in them."""
    return isinstance(document, dict) and "images" in document and not document.keys().isdisjoint(_NAMING)


def annotations_given(path: Path) -> DataError:
    """The error for a COCO file of annotations where answers are expected."""
    problem = "it seems to be a COCO file of annotations, which has no answers"
    return DataError(
        f"{path}: {problem}; give the list of results as the file of boxes, and name this one: --coco {path}."
    )


class _Found:
    """Detections in the order of the file: pair, number of the entry, size of the image, and five numbers each."""

    def __init__(self) -> None:
        self.places, self.numbers, self.sizes, self.boxes = array("q"), array("q"), array("i"), array("d")

    def add(self, pair_number: Place, number: int, size: Size, box: Sequence[float]) -> None:
        self.places.append(pair_number)
        self.numbers.append(number)
        self.sizes.extend(size)
        self.boxes.extend(box)

    def pairs(self) -> Iterator[tuple[Place, int, Size, list[list[float]]]]:
        """Each pair with number and size of its first detection, and x1, y1, x2, y2 and score of all, in file order."""
        places, boxes = np.asarray(self.places), np.asarray(self.boxes).reshape(-1, 5)
        _, first, of, counts = np.unique(places, return_index=True, return_inverse=True, return_counts=True)
        order, ends = np.argsort(of, kind="stable"), np.cumsum(counts)
        for pair in np.argsort(first).tolist():
            at, end = int(first[pair]), int(ends[pair])
            size = self.sizes[2 * at], self.sizes[2 * at + 1]
            yield self.places[at], self.numbers[at], size, boxes[order[end - counts[pair] : end]].tolist()


def read_coco_results(reading: FileReading) -> str:
    """Adds every pair of the images and categories that the COCO file has; the SHA-256 of the results.

    Absent detections are silence, since the format cannot say more. Raises DataError.
    """
    reading.file_format, reading.word = COCO, "entry"
    if reading.options.coco is None:
        problem = "it is a JSON list, as COCO results are; name the COCO file with its images and categories"
        raise DataError(f"{reading.path}: {problem}: --coco FILE.")
    names, file, detections = _Names(reading.options.coco), JsonFile(reading.path), _Found()
    for number, (_, entry) in enumerate(file.entries(), 1):
        reading.lines += 1
        try:
            _add(reading, names, entry, number, detections)
        except BadLine as error:
            reading.bad(error, number)
    for pair_number, number, size, given in detections.pairs():
        answer = FittedAnswer(State.ANSWERED, size)
        fit(answer, [(x1, y1, x2, y2) for x1, y1, x2, y2, _ in given], [score for *_, score in given])
        answer.state = State.ANSWERED if answer.boxes else State.UNPARSABLE
        try:
            reading.sense("pixels", answer.written, number, text=False)
            reading.add([pair_number], number, answer, scores=True)
        except BadLine as error:
            reading.bad(error, number)
    reading.conventions["pixels xywh"] = reading.lines
    questions = reading.questions
    rows = [row for name, _ in names.images.values() if (row := _row(reading, name)) is not None]
    columns = [column for column, name in enumerate(questions.classes) if name in names.categories.values()]
    reading.silence(dict.fromkeys(rows), columns)
    return file.sha256


class _Names:
    """Ids of a COCO file: image -> file name and stated width and height; category -> name."""

    def __init__(self, path: Path) -> None:
        document = JsonFile(path).document()
        self.images: dict[object, tuple[str, Size | None]] = {}
        self.categories: dict[object, str] = {}
        for key, name in (("images", "file_name"), ("categories", "name")):
            items = document.get(key) if isinstance(document, dict) else None
            if not isinstance(items, list):
                raise DataError(f"{path}: it has no list '{key}'; name the COCO file that the results are about.")
            for number, item in enumerate(items, 1):
                text = item.get(name) if isinstance(item, dict) else None
                if not isinstance(text, str) or not _is_id(item.get("id")):
                    raise DataError(f"{path}, entry {number} of {key}: it needs id and {name}; correct it.")
                if key == "images":
                    self.images[item["id"]] = text, _stated(item)
                else:
                    self.categories[item["id"]] = text


def _add(reading: FileReading, names: _Names, entry: Any, number: int, detections: _Found) -> None:
    if not isinstance(entry, dict):
        raise BadLine("", "it is not a JSON object; an entry has image_id, category_id, bbox and score")
    image, category = entry.get("image_id"), entry.get("category_id")
    if not _is_id(image) or image not in names.images:
        raise BadLine("image_id", f"the COCO file has no image with the id {image!r:.60}; correct one of the two files")
    if not _is_id(category) or category not in names.categories:
        raise BadLine(
            "category_id", f"the COCO file has no category with the id {category!r:.60}; correct one of the two"
        )
    name, stated = names.images[image]
    row = _row(reading, name)
    if row is None:
        row = reading.questions.case(name)  # raises
    pair_number = reading.questions.pair_number(row, reading.questions.finding(names.categories[category]))
    for key in ("bbox", "score"):
        if key not in entry:
            raise BadLine(key, f"it has no {key}; COCO results have bbox and score")
    try:
        ((x, y, width, height),) = four_numbers([entry["bbox"]])
        (score,) = score_list([entry["score"]], 1)
    except BadLine as error:
        raise BadLine({"boxes": "bbox", "scores": "score"}[error.key], error.text) from None
    detections.add(pair_number, number, _size(reading, row, stated), (*ordered((x, y, width, height), "xywh"), score))


def _size(reading: FileReading, row: int, stated: Size | None) -> Size:
    dataset_size = reading.questions.size(row)
    if dataset_size is not None and stated is not None and dataset_size != stated:
        problem = f"the COCO file says {stated[0]} x {stated[1]}, and the dataset {dataset_size[0]} x {dataset_size[1]}"
        raise BadLine("image_id", f"{problem}; use detections in the images of the dataset")
    if dataset_size is None and stated is None:
        raise BadLine("image_id", "the size of the image is not known; write width and height in the COCO file")
    return dataset_size or stated or (0, 0)


def _row(reading: FileReading, name: str) -> int | None:
    """The case of an image: named as the file says, or without its folders, or without its extension."""
    last = portable_name(name).rpartition("/")[2]
    for text in dict.fromkeys((name, last, last.rpartition(".")[0])):
        try:
            return reading.questions.case(text)
        except BadLine:
            continue
    return None


def _stated(item: dict[str, Any]) -> Size | None:
    sides = item.get("width"), item.get("height")
    width, height = (side if isinstance(side, int) and not isinstance(side, bool) else 0 for side in sides)
    return (width, height) if width > 0 and height > 0 else None


def _is_id(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)
