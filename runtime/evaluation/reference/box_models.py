"""Names of models that are files of predicted boxes or readers, and how these are read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from ....engines.errors import ConfigError, DataError
from ....engines.registry import did_you_mean
from ...data.answers.box_file import ReadOptions
from ...data.datasets.readers.reader_marks import RADIOLOGIST, SECOND
from ...host.options import EvaluationOptions, Missing
from ...host.paths import has_file, has_folder

PREFIX: Final = "boxes:"
MOVED: Final = "moved:"
"""The answers of a file of boxes, each moved to the image of another patient."""

READER: Final = "reader:"
READERS: Final = (READER + SECOND, READER + RADIOLOGIST)
"""What a further reader marked, where the dataset holds it."""


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

    reader: of a reader's marks, which the dataset holds, so that there is no file; else empty.
    """

    path: Path
    name: str
    options: BoxOptions = COUNTED
    moved: bool = False
    reader: str = ""

    @cached_property
    def description(self) -> str:
        """What the rows depend on: the contents of the file and of those that explain it, and the options."""
        if self.reader:  # the key has the dataset
            return f"{self.reader} reader {self.options.missing}"
        options = self.options.read
        files = [file_digest(path) for path in (self.path, options.coco, options.mapping) if path is not None]
        explained = [options.coco is not None, options.mapping is not None, options.count_bad_lines]
        return " ".join(map(str, (*files, *explained, self.options.missing, *["moved"] * self.moved)))


def split_boxes(models: Iterable[str], options: BoxOptions) -> tuple[list[BoxModel], list[str]]:
    """The files of boxes among the names of models, and the other names. Raises ConfigError.

    boxes:FILE is called boxes:STEM, boxes:NAME=FILE is called boxes:NAME; moved:FILE alike.
    """
    names = list(models)
    chosen = dict.fromkeys(name for name in names if name.startswith((PREFIX, MOVED)))
    boxed: dict[str, BoxModel] = {}
    readers = list(dict.fromkeys(name for name in names if name.startswith(READER)))
    for name in readers:
        if name not in READERS:
            raise ConfigError(f"There is no reader '{name}': {did_you_mean(name, READERS)}.")
        boxed[name] = BoxModel(Path(name), name, options, reader=name.removeprefix(READER))
    for text in chosen:
        prefix = MOVED if text.startswith(MOVED) else PREFIX
        given = text.removeprefix(prefix)
        name, equals, file = given.partition("=")
        named = bool(equals and name) and not has_file(Path(given))
        path = Path(file if named else given).expanduser()
        if has_folder(path):
            raise ConfigError(f"{path} of {text} is a folder; give one file of boxes, in a format of docs/boxes.md.")
        if not has_file(path):
            raise ConfigError(f"The file {path} of {text} does not exist; give the file of the boxes.")
        model = BoxModel(path, prefix + (name if named else path.stem), options, prefix == MOVED)
        if model.name in boxed:
            raise ConfigError(
                f"Two files of boxes are called '{model.name}': {boxed[model.name].path} and {path}; name one of them, "
                f"as {prefix}NAME={path}."
            )
        boxed[model.name] = model
    return list(boxed.values()), [name for name in names if name not in (*chosen, *readers)]


def file_digest(path: Path) -> str:
    """The SHA-256 of a file. Raises DataError."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error
