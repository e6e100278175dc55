"""Any dataset with boxes in a CSV file, one row per box (docs/formats.md §9.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from .....engines.registry import did_you_mean
from ..dataset import UNCERTAIN_LABELS
from ..file_rows import fail, number
from ..source.column_guess import guessed_columns
from ..source.csv_cells import is_blank, label_of
from ..source.csv_files import header_text, is_index, read_csv
from ..source.image_names import portable_name, without_extension
from ..source.spelling import Spellings
from .box_keys import stated_turn
from .empty_class_names import says_nothing
from .file_format import SHARED, FileFormat
from .region_marks import mark_of
from .shapes import Annotated, Place, Shape, stated_size

_CORNERS: Final = ("x_min", "y_min", "x_max", "y_max")
_SIZES: Final = ("x", "y", "width", "height")
_NAMES: Final = ("image", "class", *_CORNERS, *_SIZES, "patient_id", "split", "image_width", "image_height")


class CsvBoxes(FileFormat):
    """`<root>/annotations.csv` next to `<root>/images/`.

    Columns: `image` (file name below the image folder), `class`, and `x_min, y_min, x_max, y_max` or `x, y, width,
    height` in pixels from the top left corner. A row without a class, or with one such as "No finding", is an image
    without findings; a class without a box is positive without a region. Optional: `patient_id`, `split`, `image_width`
    and `image_height` (of the image on which the boxes were drawn, if the image is a resized copy), and marks such as
    `iscrowd`.

    Every class counts as annotated on every image, so an absent class is a true 0, unless there is a label file:
    columns `image` and one per class with 1, 0, -1 for uncertain, or empty for unknown. An image or class that is not
    in it is unknown.
    """

    name = "csv"
    title = "CSV"
    boxes_by_centres = False
    lists_images = True
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the CSV file, default annotations.csv",
        "labels": "a CSV file of image labels, default none",
        "columns": 'your names of the columns, such as {image = "filename", class = "label"}',
        "unit": "of the boxes: pixels (default), or fractions of the image's width and height",
        **{key: text for key, text in SHARED.items() if key != "unlabelled"},
        "split": "keep only rows with this value in the column split, default all",
        **UNCERTAIN_LABELS,
    }
    mends: Mapping[str, str] = {
        "fractions": "set the option unit to fractions (--data-option {name}.unit=fractions)",
        "smaller": "add the columns image_width and image_height of the images on which they were drawn",
        "larger": "add the columns image_width and image_height of the images on which they were drawn",
        "swapped": "exchange the columns image_width and image_height",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "annotations.csv")
        self.fractions = self.choice_option("unit", ("pixels", "fractions"), "pixels") == "fractions"
        self.labels = self.path_option("labels", "") if "labels" in self.options else None
        self._column = self._columns()
        names = [f'{corner} = "{self._column[size]}"' for corner, size in zip(_CORNERS, _SIZES, strict=True)]
        columns = f"{{{', '.join(names)}}}"
        option = f"set the option columns to {columns} (--data-option '{{name}}.columns={columns}')"
        self.mends = {**self.mends, "corners": option}
        images = self._read_boxes()
        self._read_labels(images)
        self._use(images.values())

    def _columns(self) -> dict[str, str]:
        given = self.options.get("columns", {})
        if not isinstance(given, dict) or not all(isinstance(name, str) and name for name in given.values()):
            raise self.option_error("columns", 'must be a table of texts, such as {image = "filename"}')
        unknown = [key for key in given if key not in _NAMES]
        if unknown:
            raise self.option_error("columns", f"names '{unknown[0]}': {did_you_mean(unknown[0], _NAMES)}")
        return {name: given.get(name, name).strip() for name in _NAMES}

    def sources(self) -> Sequence[Path]:
        """The CSV file, and the label file if one is given."""
        return [self.annotations, *([self.labels] if self.labels else [])]

    def image_folders(self) -> Sequence[Path]:
        """The folder of the images; none if a split excludes some images, or if it holds the CSV file too."""
        return () if self.split != "all" or self.images == self.annotations.parent else (self.images,)

    def _mend(self, header: Sequence[str]) -> str:
        """How the option `columns` can name the columns of this header."""
        guessed = guessed_columns(header)
        table = ", ".join(f'{name} = "{column}"' for name, column in guessed.items())
        return f"name your columns in the option columns, such as columns = {{{table}}}" if guessed else ""

    def _read_boxes(self) -> dict[str, Annotated]:
        """Images by `portable_name`, in the order of the file."""
        file, column, images = self.annotations, self._column, dict[str, Annotated]()
        needed = [column["image"], column["class"], *([column["split"]] if self.split != "all" else [])]
        kinds: tuple[str, ...] = ()
        splits: dict[str, None] = {}
        for row, cells in read_csv(file, needed, self._mend):
            kinds = kinds or self._kinds([*cells])
            if self.split != "all":
                splits[cells[column["split"]]] = None
                if cells[column["split"]] != self.split:
                    continue
            name = cells[column["image"]]
            if not name:
                raise fail(file, row, f"{column['image']} is empty")
            key = portable_name(name)
            if key in images:
                images[key].rows += (row,)
            image = images.get(key) or images.setdefault(key, Annotated(name, file, row, case_id=name))
            self._about(image, name, row, cells)
            finding = cells[column["class"]]
            finding = "" if is_blank(finding) and not says_nothing(finding, self.nothing) else finding
            given = [cells[column[part]] for part in kinds]
            if finding or not all(map(is_blank, given)):
                make = partial(self._shape, cells, finding, given, (file, row))
                image.shapes.append(self.shape(make, (file, row), finding))
        if splits and not images:
            names = ", ".join(map(repr, [*splits][:5]))
            raise fail(file, None, f"no row has '{self.split}' in the column {column['split']}; it has {names}")
        return images

    def _kinds(self, header: Sequence[str]) -> tuple[str, ...]:
        """The columns of the box."""
        complete = [columns for columns in (_CORNERS, _SIZES) if all(self._column[name] in header for name in columns)]
        if len(complete) == 1:
            return complete[0]
        text = f"the header needs either {', '.join(_CORNERS)} or {', '.join(_SIZES)}, and not both"
        mend = self._mend(header) if not complete else ""
        problem = f"{text}; it has {header_text(header)}"
        raise fail(self.annotations, 1, f"{problem}; {mend}" if mend else problem)

    def _shape(self, cells: Mapping[str, str], finding: str, given: Sequence[str], where: Place) -> Shape:
        """What a row says of a class. given: the cells of its box."""
        if not finding:
            raise fail(*where, "the row has a box but no class")
        if "|" in finding and finding not in self.texts_option("classes"):
            raise fail(*where, f"the class '{finding}' seems to be several; write a row for each of them")
        if all(map(is_blank, given)):
            return Shape(finding, None, where[1])
        turn = stated_turn(cells)
        if turn is not None:
            text = f"the column {turn} turns the box by {cells[turn]}, and only unturned boxes are read"
            raise fail(*where, text)
        x, y, a, b = (number(cell, *where, "a box coordinate") for cell in given)
        sizes = self._column["x_min"] not in cells
        if sizes and not self.fractions:
            shape = self.sized_box(finding, (x, y, a, b), where)
        else:
            corners = (x, y, x + a, y + b) if sizes else (x, y, a, b)
            shape = self.box(finding, corners, where, fractions=self.fractions)
        mark = mark_of(cells)
        return replace(shape, mark=mark) if mark else shape

    def _about(self, image: Annotated, name: str, row: int, cells: Mapping[str, str]) -> None:
        """Stores the data of a row about its image; rows of one image must agree."""
        file, column = self.annotations, self._column
        patient = cells.get(column["patient_id"], "")
        if not image.patient or (is_blank(image.patient) and not is_blank(patient)):
            image.patient = patient or image.patient
        elif not is_blank(patient) and image.patient != patient:
            raise fail(file, row, f"'{name}' belongs to the patient '{patient}', but to '{image.patient}' before")
        sides = [cells.get(column[key], "") for key in ("image_height", "image_width")]
        if all(map(is_blank, sides)):
            return
        high, wide = (number(cell, file, row, "the image's size") for cell in sides)  # one side alone says nothing
        size = stated_size(high, wide, (file, row))
        if image.size not in (None, size):
            raise fail(file, row, f"'{name}' has another size than in a row before")
        image.size = size

    def _read_labels(self, images: dict[str, Annotated]) -> None:
        """Gives the images the labels of the label file; without a row there all of an image is unknown."""
        if self.labels is None:
            return
        key, file = self._column["image"], self.labels
        spellings = Spellings(self.texts_option("classes") or [s.finding for i in images.values() for s in i.shapes])
        for image in images.values():
            image.labels = {}
        names: set[str] = set()
        alike = Counter(map(without_extension, images))  # "a" and "a.png" are one image, unless the boxes name both
        stems = {without_extension(name): name for name in images if alike[without_extension(name)] == 1}
        for row, cells in read_csv(file, (key,), self._mend):
            name = portable_name(cells[key])
            name = name if name in images else stems.get(without_extension(name), name)
            if not name or name in names:
                raise fail(file, row, f"{key} is empty or '{name}' appears twice")
            if not names:
                self._note_columns([*cells], spellings)
            names.add(name)
            if name not in images and self.split != "all":
                continue
            image = images.setdefault(name, Annotated(cells[key], file, row, case_id=cells[key]))
            image.rows = image.rows if image.file != file else ()
            drawn = {spellings.of(shape.finding) for shape in image.shapes}
            labels = {
                other: label_of(cell, file, row, f"the label of '{other}'")
                for other, cell in cells.items()
                if other in spellings
            }
            for finding, label in labels.items():
                if label == 0 and spellings.of(finding) in drawn:
                    text = f"the label of '{finding}' is 0, but {self.annotations.name} has it"
                    raise fail(file, row, text)
            image.labels = labels

    def _note_columns(self, header: Sequence[str], spellings: Spellings) -> None:
        """Notes the columns of the label file that are no class; a table's index has no name."""
        for other in header:
            used = other in spellings or other in self._column.values() or says_nothing(other, self.nothing)
            if not used and not is_index(other):
                text = f"the column '{other}' is not a class; not used"
                self.note("unknown_class", other, (self.labels or self.annotations, 1), text)
