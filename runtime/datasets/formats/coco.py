"""Any dataset in COCO's JSON form: boxes, polygons and run-length masks, native pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ....engines.errors import DataError
from ..base import PATIENTS, Case, Dataset, Note, Region
from ..files import fail, number, numbers
from ..region_boxes import Boxes
from ..region_shapes import Polygons, Rle, union
from ..source.documents import read_json
from .file_format import SHARED
from .named_images import NamedImages
from .nothing import NOTHING, says_nothing

__all__ = ["Coco"]


class Coco(Dataset):
    """`<root>/annotations.json` beside `<root>/images/`.

    Used keys: `categories` (id, name); `images` (id, file_name; optional: height and width, `patient_id`,
    `labels`); `annotations` (image_id, category_id, and `segmentation` or else `bbox` [x, y, width, height]). A
    segmentation is a list of polygons [x1, y1, x2, y2, ...] or a run-length mask {"size": [h, w], "counts": ...}.

    Every category counts as annotated on every image, so an absent category is a true 0, unless the image has
    `"labels": {category: 1 | 0 | null}`: then a category that is neither named there nor drawn is unknown.
    """

    name = "coco"
    title = "COCO"
    classes: tuple[str, ...] = ()
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the JSON file, default annotations.json",
        "images": "the folder of the images, default images",
        "name": "the dataset's name in results and prompt sets, default coco",
        "title": "the dataset's name in tables, default its name, or where it has none that of its configuration",
        "split": "the name of the split in results, default all",
        "boxes": "how bbox is written: sizes (default; x, y, width, height) or corners (x1, y1, x2, y2)",
        "unit": "of bbox: pixels (default), or fractions of the image's width and height",
        "suffix": SHARED["suffix"],
        "nothing": SHARED["nothing"],
        **PATIENTS,
    }
    mends: Mapping[str, str] = {
        "corners": "set the option boxes to corners (--data-option {name}.boxes=corners)",
        "fractions": "set the option unit to fractions (--data-option {name}.unit=fractions)",
        "smaller": "state height and width of the images on which they were drawn in images",
        "larger": "state height and width of the images on which they were drawn in images",
        "swapped": "exchange height and width in images",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.name = self.text_option("name", self.name)
        self.title = self.text_option("title", self.name)
        self.split = self.text_option("split", "all")
        self.suffix = self.text_option("suffix", "-") if "suffix" in self.options else ""
        self.nothing = self.texts_option("nothing") or NOTHING
        self.corners = self.choice_option("boxes", ("sizes", "corners"), "sizes") == "corners"
        self.fractions = self.choice_option("unit", ("pixels", "fractions"), "pixels") == "fractions"
        self.annotations = self.path_option("annotations", "annotations.json")
        self.images = self.path_option("images", "images")
        self._document = self._load()
        self._categories = self._read_categories()
        names = self._categories.values()
        self.classes = tuple(name for name in names if not says_nothing(name, self.nothing))

    def sources(self) -> Sequence[Path]:
        """The JSON file."""
        return (self.annotations,)

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images."""
        return (self.images,)

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per entry of `images`, in that order. Raises DataError."""
        file, folder = self.annotations, NamedImages(self.images, self.suffix, notes)
        entries: dict[Any, tuple[int, dict[str, Any]]] = {}
        for row, image in enumerate(self._document["images"], 1):
            if not _has(image, "file_name"):
                raise fail(file, row, "the entry of images needs id and file_name")
            if image["id"] in entries:
                raise fail(file, row, f"the image id {image['id']!r} appears twice in images")
            entries[image["id"]] = (row, image)
        parts: dict[Any, dict[str, list[Region]]] = {key: {} for key in entries}
        for row, annotation in enumerate(self._document.pop("annotations"), 1):  # most of the document's memory
            if not isinstance(annotation, dict) or not _is_id(annotation.get("image_id")):
                raise fail(file, row, "the entry of annotations needs image_id and category_id")
            key, category = annotation["image_id"], annotation.get("category_id")
            if key not in entries:
                raise fail(file, row, f"the annotation belongs to the image {key!r}, which is not in images")
            if not _is_id(category) or category not in self._categories:
                text = f"the category {category!r} does not exist; not used"
                notes.append(Note("unknown_class", str(category), file, row, text))
                continue
            if self._categories[category] not in self.classes:
                text = f"'{self._categories[category]}' means that nothing was found; its region is not used"
                notes.append(Note("no_finding", str(key), file, row, text))
                continue
            region = self._region(annotation, row, entries[key][1], self._categories[category], notes)
            parts[key].setdefault(self._categories[category], []).append(region)
        cases = [self._case(row, image, parts[key], folder, notes) for key, (row, image) in entries.items()]
        self._document = {}
        return cases

    def _case(
        self, row: int, image: dict[str, Any], parts: dict[str, list[Region]], folder: NamedImages, notes: list[Note]
    ) -> Case:
        patient = image.get("patient_id")
        return Case(
            case_id=str(image["id"]),
            image=folder.find(image["file_name"].strip(), self.annotations, row),
            labels=self._labels(image, row, set(parts), notes),
            regions={finding: union(parts[finding]) for finding in self.classes if finding in parts},
            split=self.split,
            patient_id=None if patient is None else str(patient),
            rows=(row,),
            size=self._size(image, row),
        )

    def _labels(self, image: dict[str, Any], row: int, drawn: set[str], notes: list[Note]) -> dict[str, int | None]:
        given = image.get("labels")
        if given is None:
            return {finding: int(finding in drawn) for finding in self.classes}
        if not isinstance(given, dict) or any(isinstance(v, bool) or v not in (0, 1, None) for v in given.values()):
            raise fail(self.annotations, row, f"labels of image {image['id']!r} is not an object of 1, 0 and null")
        for finding in given:
            if finding not in self.classes and not says_nothing(str(finding), self.nothing):
                text = f"'{finding}' in labels is not a category; not used"
                notes.append(Note("unknown_class", str(finding), self.annotations, row, text))
        labels: dict[str, int | None] = {}
        for finding in self.classes:
            value = given.get(finding, 1 if finding in drawn else None)
            if value == 0 and finding in drawn:
                raise fail(self.annotations, row, f"the label of '{finding}' is 0, but the image has a region of it")
            labels[finding] = None if value is None else int(value)
        return labels

    def _size(self, image: dict[str, Any], row: int) -> tuple[int, int] | None:
        if image.get("height") is None or image.get("width") is None:
            return None
        height, width = (number(image[key], self.annotations, row, key) for key in ("height", "width"))
        if height < 1 or width < 1 or height != int(height) or width != int(width):
            raise fail(self.annotations, row, f"height {height:g} and width {width:g} are not a size in pixels")
        return int(height), int(width)

    def _region(
        self, annotation: dict[str, Any], row: int, image: dict[str, Any], finding: str, notes: list[Note]
    ) -> Region:
        file, shape = self.annotations, annotation.get("segmentation")
        if isinstance(shape, dict):
            return self._run_lengths(shape, row, image)
        if shape:
            if not isinstance(shape, list) or not all(isinstance(outline, list) for outline in shape):
                raise fail(file, row, "segmentation is neither a list of polygons nor a run-length mask")
            return Polygons(tuple(self._outline(outline, row) for outline in shape))
        if annotation.get("bbox") is None:
            raise fail(file, row, "the annotation has neither segmentation nor bbox")
        box = numbers(annotation["bbox"], 4, file, row, "bbox")
        x, y, a, b = box
        wide, high = (a - x, b - y) if self.corners else (a, b)
        if wide < 0 or high < 0:
            problem = "ends before it begins" if self.corners else "has a negative size"
            raise fail(file, row, f"the bbox {list(box)} {problem}")
        if wide == 0 or high == 0:
            notes.append(Note("degenerate", finding, file, row, f"the bbox {list(box)} has no area"))
        if self.corners or self.fractions:
            return Boxes(((x, y, x + wide, y + high),), fractions=self.fractions)
        return Boxes.from_sizes([box])

    def _outline(self, flat: list[Any], row: int) -> tuple[tuple[float, float], ...]:
        if len(flat) < 6 or len(flat) % 2:
            raise fail(self.annotations, row, f"a polygon has {len(flat)} numbers, it needs an even number from 6 on")
        values = numbers(flat, len(flat), self.annotations, row, "a polygon")
        return tuple(zip(values[0::2], values[1::2], strict=True))

    def _run_lengths(self, shape: dict[str, Any], row: int, image: dict[str, Any]) -> Rle:
        file, counts = self.annotations, shape.get("counts")
        height, width = (int(v) for v in numbers(shape.get("size"), 2, file, row, "the size of a run-length mask"))
        if self._size(image, row) not in (None, (height, width)):
            raise fail(file, row, f"the run-length mask is {height} x {width}, its image is not")
        try:
            if isinstance(counts, str):
                return Rle.from_string((height, width), counts)
            if not isinstance(counts, list) or not {*map(type, counts)} <= {int}:
                raise DataError("Its counts are not whole numbers.")
            if sum(counts) != height * width:
                raise DataError(f"Its counts sum up to {sum(counts)} instead of {height * width}.")
            return Rle((height, width), tuple(counts))
        except DataError as error:
            raise DataError(f"{file}, row {row}: the run-length mask cannot be used. {error}") from error

    def _load(self) -> dict[str, Any]:
        document = read_json(self.annotations)
        for key in ("images", "annotations", "categories"):
            if not isinstance(document, dict) or not isinstance(document.get(key), list):
                raise fail(self.annotations, None, f"it has no list '{key}', so it is not COCO's form")
        return dict(document)

    def _read_categories(self) -> dict[Any, str]:
        names: dict[Any, str] = {}
        for row, category in enumerate(self._document["categories"], 1):
            if not _has(category, "name"):
                raise fail(self.annotations, row, "the entry of categories needs id and name")
            name = category["name"].strip()
            if not name or category["id"] in names or name in names.values():
                raise fail(self.annotations, row, f"the category {category['id']!r} '{name}' is empty or appears twice")
            names[category["id"]] = name
        return names


def _has(entry: object, text: str) -> bool:
    """Whether `entry` is an object with an id and a text under the key `text`."""
    return isinstance(entry, dict) and _is_id(entry.get("id")) and isinstance(entry.get(text), str)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
