"""Names of models that are files of predicted boxes or readers, and how these are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from ....engines.errors import ConfigError, DataError
from ....engines.registry import did_you_mean
from ...data.answers.bad_line import BadLine
from ...data.answers.box_file import ReadOptions
from ...data.answers.dialects.dialect_registry import DIALECTS
from ...data.answers.lines import HashedFile, json_object
from ...data.datasets.readers.reader_marks import RADIOLOGIST, SECOND
from ...host.options import EvaluationOptions, Missing
from ...host.paths import has_file, has_folder

PREFIX: Final = "boxes:"
MOVED: Final = "moved:"
"""The answers of a file of boxes, each moved to the image of another patient."""

WORDS: Final = "words:"
"""A file whose answers are words is called so, and so are the floors of words."""

MIRRORED: Final = "mirrored:"
"""The answers of a file of words, with left and right swapped."""

FLOORS: Final = (WORDS + "bilateral", WORDS + "prior")
"""All six zones, and the usual zones of the finding in other patients."""

READER: Final = "reader:"
READERS: Final = (READER + SECOND, READER + RADIOLOGIST)
"""What a further reader marked, where the dataset holds it."""


_FIRST_LINES: Final = 20


@dataclass(frozen=True)
class BoxOptions:
    """How files of boxes are read. missing: a pair without a line is scored as silent, or left out. read: see there."""

    missing: Missing = EvaluationOptions.missing
    read: ReadOptions = field(default_factory=ReadOptions)


COUNTED: Final = BoxOptions()
"""A pair without a line is scored as silent, and a line that must be corrected stops."""


@dataclass(frozen=True)
class BoxModel:
    """A file of predicted boxes, and the name of its model in a run. moved: each answer is that to another patient.

    reader: of a reader's marks, which the dataset holds, so that there is no file; else empty. mirrored: left and right
    are swapped. floor: of words that look at no image, without a file; else empty.
    """

    path: Path
    name: str
    options: BoxOptions = COUNTED
    moved: bool = False
    reader: str = ""
    mirrored: bool = False
    floor: str = ""

    @cached_property
    def description(self) -> str:
        """What the rows depend on: the contents of the file and of those that explain it, and the options."""
        if self.reader:  # the key has the dataset
            return f"{self.reader} reader {self.options.missing}"
        options = self.options.read
        drawn = " ".join(["words", options.words.thorax, options.words.uncertain, *_lungs(options.words.lungs)])
        if self.floor:
            return f"floor {self.floor} {drawn}"
        files = [file_digest(path) for path in (self.path, options.coco, options.mapping) if path is not None]
        explained = [options.coco is not None, options.mapping is not None, options.count_bad_lines]
        words = [drawn] * is_words(self.path) + ["mirrored"] * self.mirrored
        return " ".join(map(str, (*files, *explained, self.options.missing, *["moved"] * self.moved, *words)))


def split_boxes(models: Iterable[str], options: BoxOptions) -> tuple[list[BoxModel], list[str]]:
    """The files of boxes among the names of models, and the other names. Raises ConfigError.

    boxes:FILE is called boxes:STEM, or words:STEM if its answers are words; boxes:NAME=FILE is called boxes:NAME.
    moved:FILE and mirrored:FILE alike.
    """
    names = list(models)
    chosen = dict.fromkeys(name for name in names if name.startswith((PREFIX, MOVED, MIRRORED)))
    boxed: dict[str, BoxModel] = {}
    readers = list(dict.fromkeys(name for name in names if name.startswith(READER)))
    for name in readers:
        if name not in READERS:
            raise ConfigError(f"There is no reader '{name}': {did_you_mean(name, READERS)}.")
        boxed[name] = BoxModel(Path(name), name, options, reader=name.removeprefix(READER))
    floors = list(dict.fromkeys(name for name in names if name.startswith(WORDS)))
    for name in floors:
        if name not in FLOORS:
            hint = did_you_mean(name, FLOORS)
            raise ConfigError(f"There is no floor of words '{name}': {hint}; a file of words is given as boxes:FILE.")
        boxed[name] = BoxModel(Path(name), name, options, floor=name.removeprefix(WORDS))
    for text in chosen:
        prefix = next(prefix for prefix in (PREFIX, MOVED, MIRRORED) if text.startswith(prefix))
        given = text.removeprefix(prefix)
        name, equals, file = given.partition("=")
        named = bool(equals and name) and not has_file(Path(given))
        path = Path(file if named else given).expanduser()
        if has_folder(path):
            raise ConfigError(f"{path} of {text} is a folder; give one file of boxes, in a format of docs/boxes.md.")
        if not has_file(path):
            raise ConfigError(f"The file {path} of {text} does not exist; give the file of the boxes.")
        words = is_words(path)
        if prefix == MIRRORED:
            if not words:
                raise ConfigError(f"{path} of {text} holds boxes, and only answers in words have sides to be swapped.")
            read = replace(options.read, words=replace(options.read.words, mirrored=True))
            options_of_model = replace(options, read=read)
        else:
            options_of_model = options
        stem = name if named else path.stem
        called = WORDS if words and prefix == PREFIX else prefix
        model = BoxModel(path, called + stem, options_of_model, prefix == MOVED, mirrored=prefix == MIRRORED)
        if model.name in boxed:
            raise ConfigError(
                f"Two files of boxes are called '{model.name}': {boxed[model.name].path} and {path}; name one of them, "
                f"as {prefix}NAME={path}."
            )
        boxed[model.name] = model
    return list(boxed.values()), [name for name in names if name not in (*chosen, *readers, *floors)]


def is_words(path: Path) -> bool:
    """Whether the first line of a file with a dialect names one of words; a file that cannot be read has none."""
    try:
        for number, line in HashedFile(path).lines():
            dialect = json_object(line).get("dialect")
            if isinstance(dialect, str) or number > _FIRST_LINES:
                return isinstance(dialect, str) and dialect in DIALECTS and DIALECTS[dialect].words
    except (DataError, BadLine):
        pass
    return False


def _lungs(path: Path | None) -> list[str]:
    """What masks of lungs are known by: the contents of a table, or the names, sizes and times of a folder's files."""
    if path is None:
        return []
    if not has_folder(path):
        return [file_digest(path) if has_file(path) else str(path)]
    listed = sorted((str(file.relative_to(path)), file.stat()) for file in path.rglob("*") if file.is_file())
    text = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in listed)
    return [hashlib.sha256(text.encode()).hexdigest()]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file. Raises DataError."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
