"""Any dataset with boxes in a CSV file, one row per box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ....engines.errors import ConfigError
from ....engines.registry import did_you_mean
from ..base import PATIENTS, Case, Dataset, Note
from ..files import fail, number
from ..region_boxes import Boxes
from ..source.tables import read_csv
from .file_format import SHARED
from .named_images import NamedImages
from .nothing import NOTHING, says_nothing

__all__ = ["CsvBoxes"]

_CORNERS = ("x_min", "y_min", "x_max", "y_max")
_SIZES = ("x", "y", "width", "height")
_NAMES = ("image", "class", *_CORNERS, *_SIZES, "patient_id", "split", "image_width", "image_height")
Corners = tuple[float, float, float, float]

_LABELS = {"1": 1, "0": 0, "1.0": 1, "0.0": 0, "": None, "nan": None}


@dataclass
class _Image:
    rows: list[int] = field(default_factory=list)
    boxes: dict[str, dict[Corners, None]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    patient: str = ""
    size: tuple[int, int] | None = None
    nothing: int | None = None  # the row that says that nothing was found


class CsvBoxes(Dataset):
    """`<root>/annotations.csv` beside `<root>/images/`.

    Columns: `image` (file name below the image folder), `class`, and `x_min, y_min, x_max, y_max` or `x, y, width,
    height` in pixels from the top left corner. A row without a class, or with one such as "No finding", is an image
    without findings; a class without a box is positive without a region. Optional: `patient_id`, `split`, `image_width`
    and `image_height` (of the image on which the boxes were drawn, if the image is a resized copy).

    Every class counts as annotated on every image, so an absent class is a true 0, unless there is a label file:
    columns `image` and one per class with 1, 0 or empty for unknown. An image or class that is not in it is unknown.
    """

    name = "csv"
    title = "CSV"
    classes: tuple[str, ...] = ()
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the CSV file, default annotations.csv",
        "images": "the folder of the images, default images",
        "labels": "a CSV file of image labels, default none",
        "columns": 'your names of the columns, such as {image = "filename", class = "label"}',
        "classes": "a list of the classes, in this order; default those of the file, sorted",
        "split": "keep only rows with this value in the column split, default all",
        "name": "the dataset's name in results and prompt sets, default csv",
        "title": "the dataset's name in tables, default its name, or where it has none that of its configuration",
        "unit": "of the boxes: pixels (default), or fractions of the image's width and height",
        "suffix": SHARED["suffix"],
        "nothing": SHARED["nothing"],
        **PATIENTS,
    }
    mends: Mapping[str, str] = {
        "fractions": "set the option unit to fractions (--data-option {name}.unit=fractions)",
        "smaller": "add the columns image_width and image_height of the images on which they were drawn",
        "larger": "add the columns image_width and image_height of the images on which they were drawn",
        "swapped": "exchange the columns image_width and image_height",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.name = self.text_option("name", self.name)
        self.title = self.text_option("title", self.name)
        self.split = self.text_option("split", "all")
        self.annotations = self.path_option("annotations", "annotations.csv")
        self.images = self.path_option("images", "images")
        self.fractions = self.choice_option("unit", ("pixels", "fractions"), "pixels") == "fractions"
        self.labels = self.path_option("labels", "") if "labels" in self.options else None
        self._column = self._columns()
        names = [f'{corner} = "{self._column[size]}"' for corner, size in zip(_CORNERS, _SIZES, strict=True)]
        columns = f"{{{', '.join(names)}}}"
        option = f"set the option columns to {columns} (--data-option '{{name}}.columns={columns}')"
        self.mends = {**self.mends, "corners": option}
        self._early: list[Note] = []
        self.suffix = self.text_option("suffix", "-") if "suffix" in self.options else ""
        self.nothing = self.texts_option("nothing") or NOTHING
        given = self.texts_option("classes")
        self._images, seen = self._read_boxes()
        self.classes = given or tuple(sorted(seen))
        for finding, row in seen.items():
            if finding not in self.classes:
                text = f"'{finding}' is not among the option classes; not used"
                self._early.append(Note("unknown_class", finding, self.annotations, row, text))
        if not self.classes:
            raise fail(self.annotations, None, "no row names a class, so there is nothing to look for")

    def _columns(self) -> dict[str, str]:
        given = self.options.get("columns", {})
        if not isinstance(given, dict) or not all(isinstance(name, str) and name for name in given.values()):
            raise ConfigError(
                f"The option 'columns' of the dataset '{self.name}' must be a table of texts, such as "
                '{image = "filename"}.'
            )
        unknown = [key for key in given if key not in _NAMES]
        if unknown:
            raise ConfigError(
                f"The option 'columns' of the dataset '{self.name}' names '{unknown[0]}': "
                f"{did_you_mean(unknown[0], _NAMES)}."
            )
        return {name: given.get(name, name).strip() for name in _NAMES}

    def sources(self) -> Sequence[Path]:
        """The CSV file, and the label file if one is given."""
        return [self.annotations, *([self.labels] if self.labels else [])]

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images; none if a split excludes some images."""
        return (self.images,) if self.split == "all" else ()

    def read(self, notes: list[Note]) -> Sequence[Case]:
        """One case per image, in the order of the file; then the images only the label file has. Raises DataError."""
        notes += self._early
        labels = self._read_labels(notes)
        names = self._images if self.split != "all" else dict.fromkeys([*self._images, *labels])
        folder = NamedImages(self.images, self.suffix, notes)
        cases = []
        for name in names:
            image = self._images.get(name, _Image())
            if image.nothing and image.named:
                text = f"it says that nothing was found, but '{name}' has '{min(image.named)}' too"
                notes.append(Note("disagreement", name, self.annotations, image.nothing, text))
            drawn = {finding: image.boxes[finding] for finding in self.classes if finding in image.boxes}
            row, given = labels.get(name, (None, {}))
            cases.append(
                Case(
                    case_id=name,
                    image=folder.find(name, self.annotations, image.rows[0] if image.rows else row),
                    labels=self._labels(name, image, row, given),
                    regions={f: Boxes(tuple(boxes), fractions=self.fractions) for f, boxes in drawn.items()},
                    split=self.split,
                    patient_id=image.patient or None,
                    rows=tuple(image.rows),
                    size=image.size,
                )
            )
        self._images = {}
        return cases

    def _labels(
        self, name: str, image: _Image, row: int | None, given: Mapping[str, int | None]
    ) -> dict[str, int | None]:
        if self.labels is None:
            return {finding: int(finding in image.named) for finding in self.classes}
        found: dict[str, int | None] = {}
        for finding in self.classes:
            found[finding] = given.get(finding, 1 if finding in image.named else None)
            if found[finding] == 0 and finding in image.named:
                raise fail(self.labels, row, f"the label of '{finding}' is 0, but {self.annotations.name} has it")
        return found

    def _read_boxes(self) -> tuple[dict[str, _Image], dict[str, int]]:
        """Images by name, and the first row of every class."""
        file, column = self.annotations, self._column
        images, seen = dict[str, _Image](), dict[str, int]()
        needed = [column["image"], column["class"], *([column["split"]] if self.split != "all" else [])]
        kinds: tuple[str, ...] = ()
        for row, cells in read_csv(file, needed):
            if not kinds:
                found = [kind for kind in (_CORNERS, _SIZES) if all(column[name] in cells for name in kind)]
                if len(found) != 1:
                    raise fail(
                        file, 1, f"the header needs either {', '.join(_CORNERS)} or {', '.join(_SIZES)}, and not both"
                    )
                kinds = found[0]
            if self.split != "all" and cells[column["split"]] != self.split:
                continue
            name, finding = cells[column["image"]], cells[column["class"]]
            if not name:
                raise fail(file, row, f"{column['image']} is empty")
            image = images.setdefault(name, _Image())
            image.rows.append(row)
            self._about(image, name, row, cells)
            given = [cells[column[kind]] for kind in kinds]
            empty = all(cell.lower() in ("", "nan") for cell in given)
            if not finding and not empty:
                raise fail(file, row, "the row has a box but no class")
            if finding and says_nothing(finding, self.nothing):
                image.nothing = row
                if not empty:
                    text = f"'{finding}' means that nothing was found, so its box is not used"
                    self._early.append(Note("no_finding", name, file, row, text))
                continue
            if finding:
                seen.setdefault(finding, row)
                image.named.add(finding)
            if not empty:
                self._add(image, finding, [number(cell, file, row, "a box coordinate") for cell in given], kinds, row)
        return images, seen

    def _add(self, image: _Image, finding: str, given: list[float], kinds: tuple[str, ...], row: int) -> None:
        # Sizes are truncated before they are added (docs/datasets.md §0.3).
        x, y, a, b = given
        box: Corners = (x, y, a, b) if kinds == _CORNERS else (int(x), int(y), int(x) + int(a), int(y) + int(b))
        if self.fractions and kinds == _SIZES:
            box = (x, y, x + a, y + b)
        wide, high = (a - x, b - y) if kinds == _CORNERS else (a, b)
        if wide < 0 or high < 0:
            raise fail(self.annotations, row, f"the box {given} ends before it begins or has a negative size")
        mine = image.boxes.setdefault(finding, {})
        if box in mine:
            self._early.append(Note("duplicate", finding, self.annotations, row, f"the box {given} was listed before"))
        elif wide == 0 or high == 0:
            self._early.append(Note("degenerate", finding, self.annotations, row, f"the box {given} has no area"))
        mine[box] = None

    def _about(self, image: _Image, name: str, row: int, cells: Mapping[str, str]) -> None:
        """Stores the data of a row about its image; rows of one image must agree."""
        file, column = self.annotations, self._column
        patient = cells.get(column["patient_id"], "")
        if image.patient and patient and image.patient != patient:
            raise fail(file, row, f"'{name}' belongs to the patient '{patient}', but to '{image.patient}' before")
        image.patient = image.patient or patient
        pair = [cells.get(column[key], "") for key in ("image_height", "image_width")]
        if not any(pair):
            return
        height, width = (number(cell, file, row, "the image's size") for cell in pair)
        if height < 1 or width < 1 or height != int(height) or width != int(width):
            raise fail(file, row, f"the image's size {height:g} x {width:g} is not in whole pixels")
        if image.size not in (None, (int(height), int(width))):
            raise fail(file, row, f"'{name}' has another size than in a row before")
        image.size = int(height), int(width)

    def _read_labels(self, notes: list[Note]) -> dict[str, tuple[int, dict[str, int | None]]]:
        file, found = self.labels, dict[str, tuple[int, dict[str, int | None]]]()
        if file is None:
            return found
        key = self._column["image"]
        for row, cells in read_csv(file, (key,)):
            name = cells[key]
            if not name or name in found:
                raise fail(file, row, f"{key} is empty or '{name}' appears twice")
            if not found:
                for other in cells:
                    known = other in (*self.classes, *self._column.values())
                    if not known and not says_nothing(other, self.nothing):
                        text = f"the column '{other}' is not a class; not used"
                        notes.append(Note("unknown_class", other, file, 1, text))
            labels: dict[str, int | None] = {}
            for finding in self.classes:
                if finding in cells:
                    if cells[finding].lower() not in _LABELS:
                        raise fail(file, row, f"the label of '{finding}' is {cells[finding]!r}, not 1, 0 or nothing")
                    labels[finding] = _LABELS[cells[finding].lower()]
            found[name] = row, labels
        return found
