"""Any dataset in COCO's JSON form: boxes, polygons and run-length masks, native pixels (docs/formats.md §9.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from .....engines.errors import DataError
from ....host.paths import has_file, has_folder
from ..case import UNCERTAIN
from ..dataset import UNCERTAIN_LABELS
from ..file_rows import fail, number, numbers
from ..region_shapes import Polygons, Rle
from ..source.coco_categories import as_id, read_categories, without_groups
from ..source.documents import read_json
from ..source.spelling import Spellings
from .box_keys import attributes_of, refuse_other_boxes, share, stated_turn
from .empty_class_names import says_nothing
from .file_format import POLYGONS, SHARED, FileFormat
from .region_marks import mark_of
from .shapes import MAX_FRACTION, Annotated, Corners, Place, Shape, made, patient_name, stated_size

_ROBOFLOW: Final = "_annotations.coco.json"
_PARTS: Final = ("train", "valid", "val", "test")
_PLACES: Final = (
    _ROBOFLOW,
    *(f"{part}/{_ROBOFLOW}" for part in _PARTS),
    *(f"annotations/instances_{part}.json" for part in ("default", *_PARTS)),
)
"""Where Roboflow and CVAT write the file."""


class Coco(FileFormat):
    """`<root>/annotations.json` next to `<root>/images/`, or the one file that Roboflow or CVAT wrote below `<root>`.

    Used keys: `categories` (id, name, supercategory); `images` (id, file_name; optional: height and width,
    `patient_id`, `labels`); `annotations` (image_id, category_id, and `segmentation` or else `bbox` [x, y, width,
    height]; optional: `attributes.rotation` of the bbox, and marks such as `iscrowd`). A segmentation is a list of
    polygons [x1, y1, x2, y2, ...] or a run-length mask {"size": [h, w], "counts": ...}.

    Every category counts as annotated on every image, so an absent category is a true 0, unless the image has
    `"labels": {category: 1 | 0 | -1 | null}`: then a category that is neither named there nor drawn is unknown.
    """

    name = "coco"
    title = "COCO"
    polygons = "outline"
    boxes_by_centres = False
    lists_images = True
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the JSON file, default annotations.json, else the one that Roboflow or CVAT wrote",
        "boxes": "how bbox is written: sizes (default; x, y, width, height) or corners (x1, y1, x2, y2)",
        "unit": "of bbox and polygons: pixels (default), or fractions of the image's width and height",
        **{key: text for key, text in SHARED.items() if key != "unlabelled"},
        "images": "the folder of the images, default images, or next to the file of Roboflow; subfolders are searched",
        "classes": "a list of the classes, in this order; default the categories of the file",
        **POLYGONS,
        "polygons": "pixels of a polygon: outline (default; its edge too), or centres (those whose centre lies inside, "
        "as in COCO's own masks)",
        **UNCERTAIN_LABELS,
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
        self.corners = self.choice_option("boxes", ("sizes", "corners"), "sizes") == "corners"
        self.fractions = self.choice_option("unit", ("pixels", "fractions"), "pixels") == "fractions"
        self.annotations = self._file()
        if "images" not in self.options and self.annotations.name == _ROBOFLOW and not has_folder(self.images):
            self.images = self.annotations.parent
        document = _document(self.annotations)
        listed = read_categories(document["categories"], self.annotations)
        used = {as_id(entry.get("category_id")) for entry in document["annotations"] if isinstance(entry, dict)}
        labelled = {str(name) for image in document["images"] for name in _named(image)}
        used |= {category.id for category in listed if category.name in labelled}
        kept = without_groups(listed, {key for key in used if key is not None}, self.annotations, self._early)
        self._categories = {category.id: category.name for category in kept}
        classes = self.texts_option("classes") or tuple(self._categories.values())
        self._use(self._annotated(document, Spellings(classes)), classes)

    def _file(self) -> Path:
        """The option `annotations`, else annotations.json, else the one file of `_PLACES`. Raises DataError."""
        file = self.path_option("annotations", "annotations.json")
        if "annotations" in self.options or has_file(file):
            return file
        files = [name for name in _PLACES if has_file(self.root / name)]
        if len(files) > 1:
            raise DataError(
                f"The folder {self.root} of the dataset '{self.name}' has {', '.join(files)}; choose one with the "
                "option annotations."
            )
        return self.root / files[0] if files else file

    def sources(self) -> Sequence[Path]:
        """The JSON file."""
        return (self.annotations,)

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images, unless it holds the JSON file too."""
        return () if self.images == self.annotations.parent else (self.images,)

    def _annotated(self, document: dict[str, Any], spellings: Spellings) -> Iterator[Annotated]:
        """One per entry of `images`, in that order, with all of its shapes. Raises DataError."""
        file = self.annotations
        images: dict[int | str, Annotated] = {}
        for row, image in enumerate(document["images"], 1):
            key = as_id(image.get("id")) if isinstance(image, dict) else None
            if key is None or not isinstance(image.get("file_name"), str):
                raise fail(file, row, "the entry of images needs id and file_name")
            if key in images:
                raise fail(file, row, f"the image id {key!r} appears twice in images")
            images[key] = Annotated(
                name=image["file_name"].strip(),
                file=file,
                row=row,
                size=stated_size(image.get("height"), image.get("width"), (file, row)),
                case_id=str(key),
                patient=patient_name(image.get("patient_id"), (file, row)),
                labels=self._given_labels(image, row, spellings),
            )
        for row, entry in enumerate(document.pop("annotations"), 1):  # most of the document's memory
            key = as_id(entry.get("image_id")) if isinstance(entry, dict) else None
            if key is None:
                raise fail(file, row, "the entry of annotations needs image_id and category_id")
            if key not in images:
                raise fail(file, row, f"the annotation belongs to the image {key!r}, which is not in images")
            category = as_id(entry.get("category_id"))
            finding = "" if category is None else self._categories.get(category)
            if finding is None:
                given = entry.get("category_id")
                self.note("unknown_class", str(given), (file, row), f"the category {given!r} does not exist; not used")
            else:
                make = partial(self._shape, entry, finding, (file, row), images[key].size)
                images[key].shapes.append(self.shape(make, (file, row), finding))
        yield from images.values()

    def _given_labels(self, image: dict[str, Any], row: int, spellings: Spellings) -> dict[str, int | None] | None:
        given = image.get("labels")
        if given is None:
            return None
        labels = {str(name): _label(value) for name, value in given.items()} if isinstance(given, dict) else {"": ""}
        if not all(value is None or isinstance(value, int) for value in labels.values()):
            text = f"labels of image {image['id']!r} is not an object of 1, 0 and null, or -1 for uncertain"
            raise fail(self.annotations, row, text)
        for finding in labels:
            if finding not in spellings and not says_nothing(finding, self.nothing):
                text = f"'{finding}' in labels is not a category; not used"
                self.note("unknown_class", finding, (self.annotations, row), text)
        return {name: value for name, value in labels.items() if value is None or isinstance(value, int)}

    def _shape(self, entry: dict[str, Any], finding: str, where: Place, size: tuple[int, int] | None) -> Shape:
        """The region of an annotation, and its mark."""
        if not finding:
            raise fail(*where, "the entry of annotations needs image_id and category_id")
        attributes, outlines = attributes_of(entry), entry.get("segmentation")
        if isinstance(outlines, dict):
            shape = Shape(finding, _run_lengths(outlines, where, size), where[1])
        elif outlines and outlines != [[]]:
            shape = self._outlined(entry, finding, where, _angle(attributes, where))
        elif entry.get("bbox"):
            others = {key: value for key, value in attributes.items() if key != "rotation"}
            turn = stated_turn(entry) or stated_turn(others)
            if turn is not None:
                text = f"the bbox has the key '{turn}', whose unit and direction are not known; write a polygon instead"
                raise fail(*where, text)
            refuse_other_boxes(entry, where, corners=self.corners, fractions=self.fractions)
            shape = self._bbox(entry["bbox"], finding, where, _angle(attributes, where))
        elif says_nothing(finding, self.nothing):
            return Shape(finding, None, where[1])
        else:
            raise fail(*where, "the annotation has neither segmentation nor bbox")
        mark = mark_of(entry, attributes)
        return replace(shape, mark=mark) if mark else shape

    def _outlined(self, entry: dict[str, Any], finding: str, where: Place, angle: float) -> Shape:
        """The polygons of an annotation; an unturned box with a rotation is turned, if it can be no turned one."""
        drawn = self._polygons(entry["segmentation"], where)
        outer = _around(drawn)
        if angle % 180 and _is_box(drawn):
            if angle % 90:
                return self.box(finding, outer, where, fractions=self.fractions, angle=angle)
            text = f"attributes.rotation of '{finding}' is {angle:g} with a polygon that is a box along the image's"
            self.note("disagreement", finding, where, f"{text} sides; the polygon is taken as turned already")
        box = entry.get("bbox")
        if isinstance(box, list) and {*map(type, box)} <= {int, float} and len(box) == 4 and not angle:
            x, y, a, b = box
            if share(outer, (x, y, a, b) if self.corners else (x, y, x + a, y + b), 0 if self.fractions else 1) < 0.5:
                text = f"bbox and segmentation of '{finding}' share less than half of their area; the segmentation is"
                self.note("disagreement", finding, where, f"{text} used")
        return Shape(finding, drawn, where[1])

    def _polygons(self, outlines: object, where: Place) -> Polygons:
        if not isinstance(outlines, list) or not all(isinstance(outline, list) for outline in outlines):
            raise fail(
                *where, "segmentation is neither a list of polygons [[x1, y1, x2, y2, ...]] nor a run-length mask"
            )
        drawn = tuple(_outline(outline, where) for outline in outlines if outline)
        farthest = max(abs(x) for outline in drawn for point in outline for x in point) if self.fractions else 0.0
        if farthest > MAX_FRACTION:
            raise fail(*where, f"a polygon has the coordinate {farthest:g}, but the option unit says fractions")
        region = made(where, lambda: Polygons(drawn, self.fractions, self.centres))
        assert isinstance(region, Polygons)
        return region

    def _bbox(self, given: object, finding: str, where: Place, angle: float) -> Shape:
        if isinstance(given, list) and len(given) == 5:
            raise fail(*where, f"bbox is {given!r}, a turned box of 5 numbers; write its corners as a polygon instead")
        x, y, a, b = numbers(given, 4, *where, "bbox")
        if not (self.corners or self.fractions or angle) or (not self.corners and min(a, b) < 0):
            return self.sized_box(finding, (x, y, a, b), where)
        corners = (x, y, a, b) if self.corners else (x, y, x + a, y + b)
        return self.box(finding, corners, where, fractions=self.fractions, angle=angle)


def _document(file: Path) -> dict[str, Any]:
    document = read_json(file)
    for key in ("images", "annotations", "categories"):
        if not isinstance(document, dict) or not isinstance(document.get(key), list):
            raise fail(file, None, f"it has no list '{key}', so it is not COCO's form")
    return dict(document)


def _named(image: object) -> Iterable[str]:
    """The names of categories in the labels of an image."""
    labels = image.get("labels") if isinstance(image, dict) else None
    return labels if isinstance(labels, dict) else ()


def _label(value: object) -> object:
    """1, 0, `UNCERTAIN` or None as they are meant; any other value stays unchanged, and is not a whole number."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value in (0, 1, UNCERTAIN):
        return int(value)
    return repr(value)


def _angle(attributes: Mapping[str, object], where: Place) -> float:
    """Degrees from x towards y about the centre, as CVAT writes them."""
    given = attributes.get("rotation")
    return 0.0 if given in (None, "") else number(given, *where, "attributes.rotation")


def _outline(flat: list[Any], where: Place) -> tuple[tuple[float, float], ...]:
    if len(flat) < 6 or len(flat) % 2:
        raise fail(*where, f"a polygon has {len(flat)} numbers, it needs an even number from 6 on")
    values = numbers(flat, len(flat), *where, "a polygon")
    return tuple(zip(values[0::2], values[1::2], strict=True))


def _around(drawn: Polygons) -> Corners:
    """The smallest box around all outlines."""
    xs, ys = zip(*(point for outline in drawn.outlines for point in outline), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _is_box(drawn: Polygons) -> bool:
    """Whether the one outline is a box along the sides of the image."""
    if len(drawn.outlines) != 1:
        return False
    x1, y1, x2, y2 = _around(drawn)
    return {*drawn.outlines[0]} == {(x1, y1), (x1, y2), (x2, y1), (x2, y2)}


def _run_lengths(shape: dict[str, Any], where: Place, size: tuple[int, int] | None) -> Rle:
    counts = shape.get("counts")
    height, width = (int(v) for v in numbers(shape.get("size"), 2, *where, "the size of a run-length mask"))
    if size not in (None, (height, width)):
        raise fail(*where, f"the run-length mask is {height} x {width}, its image is not")
    try:
        if isinstance(counts, str):
            return Rle.from_string((height, width), counts)
        if not isinstance(counts, list) or not {*map(type, counts)} <= {int}:
            raise DataError("Its counts are not whole numbers.")
        return Rle((height, width), tuple(counts))
    except DataError as error:
        raise DataError(f"{where[0]}, row {where[1]}: the run-length mask cannot be used. {error}") from error
