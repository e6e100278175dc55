"""Reading annotation files: every complaint names the file and the row."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...engines.errors import DataError
from .base import Note

__all__ = ["ImageFolder", "fail", "number", "numbers", "read_csv", "read_json"]


def fail(file: Path, row: int | None, text: str) -> DataError:
    """The error to raise for a file, or for one of its rows (a line of a CSV, a 1-based entry of a JSON list)."""
    return DataError(f"{file}: {text}." if row is None else f"{file}, row {row}: {text}.")


def read_csv(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, {column: cell}) of every row that is not blank.

    Cells and header cells are stripped of white space and stay strings; a byte order mark and CRLF are accepted.
    Raises DataError when the file or one of `columns` is missing, or a row has not as many cells as the header.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            header = [cell.strip() for cell in next(rows, [])]
            missing = [column for column in columns if column not in header]
            if missing:
                raise fail(file, 1, f"the header lacks {', '.join(missing)}; it has {', '.join(header) or 'nothing'}")
            if any(header.count(column) > 1 for column in columns):
                raise fail(file, 1, f"the header repeats a column: {', '.join(header)}")
            for row in rows:
                cells = [cell.strip() for cell in row]
                if not any(cells):
                    continue
                if len(cells) != len(header):
                    raise fail(file, rows.line_num, f"{len(cells)} cells, the header has {len(header)}")
                yield rows.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"{file} is not a CSV file: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error


def read_json(file: Path) -> Any:
    """The content of a JSON file. Raises DataError."""
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{file} is not a JSON file: {error}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error


def number(value: object, file: Path, row: int | None, what: str) -> float:
    """`value` as a finite number. Raises DataError."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        found = float(value)
    except (ValueError, OverflowError):
        raise fail(file, row, f"{what} is {value!r}, not a number") from None
    if not math.isfinite(found):
        raise fail(file, row, f"{what} is {value!r}, not a finite number")
    return found


def numbers(value: object, count: int, file: Path, row: int | None, what: str) -> tuple[float, ...]:
    """A list of `count` finite numbers. Raises DataError."""
    if not isinstance(value, list) or len(value) != count:
        raise fail(file, row, f"{what} is {value!r}, not a list of {count} numbers")
    return tuple(number(item, file, row, what) for item in value)


class ImageFolder:
    """Where a dataset's images lie: file names to paths, by one listing of the folder instead of a call per file."""

    def __init__(self, folder: Path, notes: list[Note]) -> None:
        """Lists `folder`; a folder that does not exist is noted and leaves every image missing."""
        self.folder = folder
        self._names: set[str] = set()
        try:
            self._names.update(path.name for path in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            notes.append(Note("no_images_folder", str(folder), folder, None, "the folder of the images does not exist"))
        except OSError as error:
            raise DataError(f"The folder {folder} of the images cannot be listed: {error.strerror}.") from error

    def path(self, name: str, file: Path, row: int | None) -> Path:
        """The path of `name` inside the folder. Raises DataError for a name that leads out of it."""
        if "/" in name or "\\" in name or "\0" in name or name in ("", ".", ".."):
            parts = name.split("/")
            if "\\" in name or "\0" in name or not name or parts[0] == "" or parts[-1] in ("", ".") or ".." in parts:
                raise fail(file, row, f"the image name {name!r} leads out of the folder {self.folder}")
        return self.folder / name

    def find(self, stem: str, suffixes: Sequence[str], file: Path, row: int | None) -> Path:
        """The first existing `stem` + suffix; with none present the path with the first suffix. Raises DataError."""
        for suffix in suffixes:
            if stem + suffix in self._names:
                return self.path(stem + suffix, file, row)
        return self.path(stem + suffixes[0], file, row)


def _unreadable(file: Path, error: OSError | UnicodeDecodeError) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"The annotation file {file} does not exist; correct the dataset's root or its file options.")
    cause = "its text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error.strerror or error)
    return DataError(f"The annotation file {file} cannot be read: {cause}.")
