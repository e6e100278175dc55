"""Text, JSON and YAML files of a user, read strictly: content that a parser would silently drop is an error here."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Any, Final

from .....engines.errors import DataError
from .....engines.extras import missing_package
from .....engines.strict_json import parse_json
from .....engines.strict_yaml import parse_yaml

_POINTER: Final = b"version https://git-lfs.github.com/spec/"
"""How a pointer of Git LFS begins: the file itself was not fetched."""


def read_text(file: Path) -> str:
    """The content of a text file in UTF-8, or in UTF-16 with a byte order mark as spreadsheets write it.

    Raises DataError; also for a pointer of Git LFS, whose few lines would otherwise be read as the annotation.
    """
    try:
        data = file.read_bytes()
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if utf16 else "utf-8-sig")
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error
    refuse_pointer(data, file)
    return text


def refuse_pointer(data: bytes, file: Path) -> None:
    """Raises DataError for the content of a pointer of Git LFS, whose file was not fetched."""
    if data.removeprefix(codecs.BOM_UTF8).startswith(_POINTER):
        raise DataError(f"{file} is a pointer of Git LFS, not the file itself; fetch the file with git lfs pull.")


def read_json(file: Path) -> Any:
    """The content of a JSON file. Raises DataError; also for a key that an object has twice."""
    text = read_text(file)
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise DataError(f"{file} is not a JSON file: {str(error).rstrip('.')}.") from error


def read_yaml(file: Path, instead: str) -> Any:
    """The content of a YAML file. Raises DataError; also for a key that a mapping has twice.

    instead: what the user can do without the package that reads YAML, for the message.
    """
    text = read_text(file)
    try:
        return parse_yaml(text)
    except ImportError:
        raise DataError(missing_package("pyyaml", "formats", user=str(file), instead=instead)) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not a YAML file: {' '.join(str(error).split()).rstrip('.')[:200]}.") from error


def unreadable(file: Path, error: OSError | ValueError) -> DataError:
    """The error to raise for an annotation file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"The annotation file {file} does not exist; correct the dataset's root or its file options.")
    if isinstance(error, OSError):
        return DataError(f"The annotation file {file} cannot be read: {error.strerror}.")
    if isinstance(error, UnicodeDecodeError):
        line = error.object[: error.start].count(b"\n") + 1
        text = f"its text is not UTF-8 (line {line}); save it as UTF-8, which a spreadsheet calls CSV UTF-8"
        return DataError(f"The annotation file {file} cannot be read: {text}.")
    return DataError(f"The annotation file {file} cannot be read: {error}.")
