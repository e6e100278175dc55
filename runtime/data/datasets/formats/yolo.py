"""YOLO's text files: one per image, one line per region, in fractions of the image (docs/formats.md §9.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from .....engines.errors import DataError
from ....host.paths import has_file
from ..file_rows import fail, number
from ..source.documents import read_text, read_yaml
from ..source.listing import entries, tree
from .file_format import POLYGONS, SHARED, FileFormat
from .named_images import IMAGES
from .shapes import Annotated, Place, Shape
from .yolo_lines import KINDS, KeyPoints, Line, LineColumns, columns_of

_NAMES: Final = (
    "data.yaml", "data.yml", "dataset.yaml", "dataset.yml", "classes.txt", "obj.names", "_darknet.labels",
)  # fmt: skip
_YAML: Final = (".yaml", ".yml")


class Yolo(FileFormat):
    """`<root>/labels/<image>.txt` next to `<root>/images/`, and the names of the classes in `<root>/data.yaml`.

    A line is `class cx cy width height`, or `class x1 y1 x2 y2 x3 y3 ...` for a polygon, also of the four corners of an
    oriented box; behind a box stand its key points, and at the end the confidence of a prediction and a track id, which
    `LineColumns` tells apart. An empty file means that nothing was found.
    """

    name = "yolo"
    title = "YOLO"
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the text files, default labels",
        "lines": "the form of lines of 7 columns and more: auto (default; by all lines, and kpt_shape of data.yaml), "
        "boxes, poses (boxes with key points) or polygons",
        "track_ids": "true: the last column is a track id; default false",
        "confidence": "leave out regions of a lower confidence, from 0 to 1; default 0",
        **POLYGONS,
        **SHARED,
        "classes": "the names of the classes in the order of their numbers, as a list or a file; default data.yaml, "
        "classes.txt or obj.names",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.annotation_folder(".txt", "labels", "obj_train_data")
        self.confidence = self._confidence()
        self._names_file: Path | None = None
        self._key_points: KeyPoints | None = None
        self._names = self._class_names()
        self._texts: list[Path] = []
        self._weak = 0
        self._unused: Counter[str] = Counter()
        self._use(self._files(), tuple(self._names.values()))
        where = (self.annotations, None)
        if self._weak:
            text = f"regions with a confidence below {self.confidence:g}, which are not used: {self._weak}"
            self.note("low_confidence", str(self.annotations), where, text)
        for what, count in self._unused.items():
            self.note("unused_columns", what, where, f"lines with {what}, which are not used: {count}")

    def _confidence(self) -> float:
        given = self.options.get("confidence", 0.0)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
            raise self.option_error("confidence", f"must be from 0 to 1, not {given!r}")
        return float(given)

    def sources(self) -> Sequence[Path]:
        """The text files, and the file of the class names."""
        return [*([self._names_file] if self._names_file else []), *self._texts]

    def _class_names(self) -> dict[int, str]:
        given = self.options.get("classes")
        if isinstance(given, list):
            return dict(enumerate(self.texts_option("classes")))
        places = [self.root / name for name in _NAMES] + [self.annotations / name for name in _NAMES[-3:]]
        default = next((path for path in places if has_file(path)), None) or self._only_yaml()
        file = self.path_option("classes", "") if given else default
        if file is None:
            raise DataError(
                f"The dataset '{self.name}' names no classes: there is no {', '.join(_NAMES)} in {self.root}; give the "
                'option classes, a file or a list in the order of the numbers, such as ["Mass", "Nodule"].'
            )
        self._names_file = file
        if file.suffix.lower() in _YAML:
            return self._from_yaml(file)
        text = read_text(file)
        return {line: name.strip() for line, name in enumerate(text.rstrip().split("\n")) if name.strip()}

    def _only_yaml(self) -> Path | None:
        """The YAML file of a dataset, with any name."""
        files = [path for path in entries(self.root) if path.suffix.lower() in _YAML and has_file(path)]
        return files[0] if len(files) == 1 else None

    def _from_yaml(self, file: Path) -> dict[int, str]:
        """The key `names`: a list, or a table of numbers. Raises DataError."""
        content = read_yaml(file, "give the option classes, a list of the names in the order of their numbers")
        given = content.get("names") if isinstance(content, dict) else None
        names = dict(enumerate(given)) if isinstance(given, list) else given
        if not isinstance(names, dict) or not names or not all(map(_is_name, names.values())):
            text = "it has no list 'names' of texts, and no table of numbers and texts; write Yes, No, on and off in "
            raise fail(file, None, f"{text}quotes")
        table = {_class_number(key, file): str(name).strip() for key, name in names.items()}
        if len(table) < len(names):
            raise fail(file, None, "the table 'names' has a number twice, with and without quotes")
        count = content.get("nc")
        if isinstance(count, int) and count != len(table):
            self.note("disagreement", "nc", (file, None), f"nc is {count}, but 'names' has {len(table)} names")
        return dict(sorted(table.items()))

    def _stated_key_points(self) -> KeyPoints | None:
        """`kpt_shape` of data.yaml: how many key points a box has, and how many numbers each of them."""
        files = [self._names_file] if self._names_file else [self.root / name for name in _NAMES]
        file = next((path for path in files if path.suffix.lower() in _YAML and has_file(path)), self._only_yaml())
        if file is None:
            return None
        self._names_file = self._names_file or file
        content = read_yaml(file, "set the option lines to the form of its lines")
        shape = content.get("kpt_shape") if isinstance(content, dict) else None
        if shape is None:
            return None
        if not isinstance(shape, list) or [*map(type, shape)] != [int, int] or not _are_key_points(*shape):
            raise fail(file, None, f"kpt_shape is {shape!r}, not the number of key points and their 2 or 3 numbers")
        return shape[0], shape[1]

    def _files(self) -> Iterator[Annotated]:
        read: list[tuple[str, Path, list[Line | Shape]]] = []
        others: list[Path] = []
        beside = self.annotations == self.images
        listed = tree(self.images) if beside else ()
        images = {str(path.with_suffix("")).casefold() for path in listed if path.suffix.lower() in IMAGES}
        for name, file in self.files_below(self.annotations, ".txt", "annotations"):
            if file == self._names_file or file.name == "classes.txt":
                continue
            if beside and str(file.with_suffix("")).casefold() not in images:
                others.append(file)
                continue
            self._texts.append(file)
            texts = [(row, text.split()) for row, text in enumerate(read_text(file).split("\n"), 1) if text.strip()]
            read.append((name, file, [self._line(cells, (file, row)) for row, cells in texts]))
        self.left_out("other_file", "text files without an image of the same name", others)
        columns = self._columns([line for _, _, lines in read for line in lines if isinstance(line, Line)])
        for name, file, lines in read:
            shapes = [
                self.shape(partial(self._shape, line, columns), line.where, line.finding)
                if isinstance(line, Line)
                else line
                for line in lines
            ]
            yield Annotated(name, file, None, [shape for shape in shapes if shape])

    def _columns(self, lines: Sequence[Line]) -> LineColumns:
        stated_form = self.choice_option("lines", KINDS, "auto")
        wide = stated_form in ("auto", "poses") and any(len(line.values) > 5 for line in lines)
        columns = columns_of(
            lines, stated_form, self._stated_key_points() if wide else None, self.flag_option("track_ids")
        )
        if columns.doubt:
            self.note("doubtful_lines", self.name, (self.annotations, None), columns.doubt)
        return columns

    def _line(self, cells: list[str], where: Place) -> Line | Shape:
        """A line; an unread shape where it cannot be read and unread lines are skipped."""
        numbered = cells[0].isascii() and cells[0].isdigit()
        finding = self._names.get(int(cells[0]), "") if numbered else ""
        return self.shape(partial(self._numbers, cells, where), where, finding)

    def _numbers(self, cells: list[str], where: Place) -> Line:
        number_of_class = number(cells[0], *where, "the class")
        if number_of_class != int(number_of_class) or number_of_class < 0:
            raise fail(*where, f"the class {cells[0]} is not a whole number from 0 on")
        finding = self._names.get(int(number_of_class), f"class {int(number_of_class)}")
        return Line(finding, tuple(number(cell, *where, "a coordinate") for cell in cells[1:]), where)

    def _shape(self, line: Line, columns: LineColumns) -> Shape | None:
        content = columns.read(line)
        if content.confidence is None and self.confidence and content.unused:
            raise fail(*line.where, f"the line has no confidence with {content.unused[-1]}")
        if content.confidence is not None and content.confidence < self.confidence:
            self._weak += 1
            return None
        self._unused.update(content.unused)
        finding, where, region = line.finding, line.where, content.region
        if len(region) > 4:
            return self.polygon(finding, zip(region[0::2], region[1::2], strict=True), where, fractions=True)
        x, y, wide, high = region
        corners = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        return self.box(finding, corners, where, fractions=True)


def _class_number(key: object, file: Path) -> int:
    """A key of the table `names`, which some tools write in quotes. Raises DataError."""
    text = str(key)
    if isinstance(key, bool) or not isinstance(key, int | str) or not (text.isascii() and text.isdigit()):
        raise fail(file, None, f"'names' has the key {key!r}, and is not a table of numbers and texts")
    return int(text)


def _is_name(name: object) -> bool:
    worded = isinstance(name, str) and name.strip() != ""
    return worded or (isinstance(name, int | float) and not isinstance(name, bool))


def _are_key_points(count: int, numbers: int) -> bool:
    return count > 0 and numbers in (2, 3)
