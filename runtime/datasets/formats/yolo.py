"""YOLO's text files: one per image, one line per box or polygon, in fractions of the image (docs/datasets.md §9.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from ....engines.errors import ConfigError, DataError
from ...host.paths import has_file
from ..files import fail, number
from ..source.documents import read_text, read_yaml
from .file_format import POLYGONS, SHARED, FileFormat
from .shapes import Annotated, Place, Shape

__all__ = ["Yolo"]

_NAMES: Final = ("data.yaml", "data.yml", "dataset.yaml", "classes.txt", "obj.names")
_FARTHEST: Final = 2.0
"""A coordinate beyond this is no fraction of an image, not even of a region that leaves it."""


class Yolo(FileFormat):
    """`<root>/labels/<image>.txt` beside `<root>/images/`, and the names of the classes in `<root>/data.yaml`.

    A line is `class cx cy width height`, or `class x1 y1 x2 y2 x3 y3 ...` for a polygon, also of the four corners of an
    oriented box; predictions have their confidence at the end. An empty file means that nothing was found.
    """

    name = "yolo"
    title = "YOLO"
    option_help: ClassVar[Mapping[str, str]] = {
        "annotations": "the folder of the text files, default labels",
        "confidence": "leave out regions of a lower confidence, from 0 to 1; default 0",
        **POLYGONS,
        **SHARED,
        "classes": "the names of the classes in the order of their numbers, as a list or a file; default data.yaml, "
        "classes.txt or obj.names",
    }

    def __init__(self, root: Path, **options: object) -> None:
        super().__init__(root, **options)
        self.annotations = self.path_option("annotations", "labels")
        self.confidence = self._confidence()
        self._names_file: Path | None = None
        self._names = self._class_names()
        self._texts: list[Path] = []
        self._weak = 0
        self._use(self._files(), tuple(self._names.values()))
        if self._weak:
            text = f"regions with a confidence below {self.confidence:g}, which are not used: {self._weak}"
            self.note("low_confidence", str(self.annotations), (self.annotations, None), text)

    def _confidence(self) -> float:
        given = self.options.get("confidence", 0.0)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
            raise ConfigError(
                f"The option 'confidence' of the dataset '{self.name}' must be from 0 to 1, not {given!r}."
            )
        return float(given)

    def sources(self) -> Sequence[Path]:
        """The text files, and the file of the class names."""
        return [*([self._names_file] if self._names_file else []), *self._texts]

    def _class_names(self) -> dict[int, str]:
        given = self.options.get("classes")
        if isinstance(given, list):
            return dict(enumerate(self.texts_option("classes")))
        places = [self.root / name for name in _NAMES] + [self.annotations / "classes.txt"]
        file = self.path_option("classes", "") if given else next((path for path in places if has_file(path)), None)
        if file is None:
            raise DataError(
                f"The dataset '{self.name}' names no classes: there is no {', '.join(_NAMES)} in {self.root}; give the "
                'option classes, a file or a list in the order of the numbers, such as ["Mass", "Nodule"].'
            )
        self._names_file = file
        if file.suffix.lower() in (".yaml", ".yml"):
            return _from_yaml(file)
        text = read_text(file)
        return {line: name.strip() for line, name in enumerate(text.rstrip().split("\n")) if name.strip()}

    def _files(self) -> Iterator[Annotated]:
        for name, file in self.files_below(self.annotations, ".txt", "annotations"):
            if file == self._names_file or file.name == "classes.txt":
                continue
            self._texts.append(file)
            lines = enumerate(read_text(file).split("\n"), 1)
            shapes = [self._shape(line.split(), (file, row)) for row, line in lines if line.strip()]
            yield Annotated(name, file, None, [shape for shape in shapes if shape])

    def _shape(self, cells: list[str], where: Place) -> Shape | None:
        finding = self._finding(cells[0], where)
        count = len(cells)
        if count < 5:
            raise fail(*where, f"{count} numbers; a box has 5, a polygon 7 or more")
        values = [number(cell, *where, "a coordinate") for cell in cells[1:]]
        if count % 2 == 0 and not 0 <= (weight := values.pop()) <= 1:
            raise fail(*where, f"{count} numbers, so the last one is a confidence, and {weight:g} is not from 0 to 1")
        if count % 2 == 0 and weight < self.confidence:
            self._weak += 1
            return None
        if any(abs(value) > _FARTHEST for value in values):
            raise fail(*where, "a coordinate is more than 2; they are fractions of the image's width and height")
        if count > 6:
            return self.polygon(finding, zip(values[0::2], values[1::2], strict=True), where, fractions=True)
        x, y, wide, high = values
        corners = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        return self.box(finding, corners, where, fractions=True)

    def _finding(self, cell: str, where: Place) -> str:
        value = number(cell, *where, "the class")
        if value != int(value) or value < 0:
            raise fail(*where, f"the class {cell} is not a whole number from 0 on")
        return self._names.get(int(value), f"class {int(value)}")


def _from_yaml(file: Path) -> dict[int, str]:
    """The key `names`: a list, or a table of numbers. Raises DataError."""
    content = read_yaml(file, "give the option classes, a list of the names in the order of their numbers")
    names = content.get("names") if isinstance(content, dict) else None
    table = dict(enumerate(names)) if isinstance(names, list) else names
    if not isinstance(table, dict) or not table or not all(_is_name(key, name) for key, name in table.items()):
        raise fail(file, None, "it has no list 'names' of texts, and no table of numbers and texts")
    return {key: str(name).strip() for key, name in sorted(table.items())}


def _is_name(key: object, name: object) -> bool:
    known = (isinstance(name, str) and name.strip() != "") or isinstance(name, int | float)
    return isinstance(key, int) and not isinstance(key, bool) and known
