"""Reads annotation files (CSV, JSON) and finds images; every error names the file and the row."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engines.errors import DataError
from ...engines.strict_json import distinct_keys
from ..host.paths import has_folder

__all__ = [
    "ImageFolder",
    "ImageTree",
    "Note",
    "fail",
    "header_text",
    "inside",
    "number",
    "numbers",
    "read_csv",
    "read_json",
    "read_rows",
    "read_text",
    "tree",
    "unreadable",
]

_MAX_TOLD = 200  # characters of a file in a message
_MAX_NAME = 240  # bytes of one part of a path; file systems stop at 255


@dataclass(frozen=True)
class Note:
    """A problem in a dataset's files that does not stop the reading.

    kind: "unknown_class", "duplicate", "degenerate", "disagreement", "not_annotated", "no_images_folder",
    "empty_mask", "fallback", "no_region", "other_readers".
    subject: the class name, case or file it is about. row: line of a CSV, 1-based entry of a JSON list, None: the file.
    """

    kind: str
    subject: str
    file: Path
    row: int | None
    text: str

    def __str__(self) -> str:
        where = f"{self.file}" if self.row is None else f"{self.file}, row {self.row}"
        return f"{where}: {self.text}"


def fail(file: Path, row: int | None, text: str) -> DataError:
    """The error to raise for a file, or for one of its rows (a line of a CSV, a 1-based entry of a JSON list)."""
    return DataError(f"{file}: {text}." if row is None else f"{file}, row {row}: {text}.")


def read_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not blank, the header included.

    Cells are stripped of white space and stay strings; a byte order mark and CRLF are accepted. Raises DataError when
    the file cannot be read.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            for row in rows:
                cells = [cell.strip() for cell in row]
                if any(cells):
                    yield rows.line_num, cells
    except csv.Error as error:
        raise DataError(f"{file} is not a CSV file: {error}.") from error
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error


def read_csv(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, {column: cell}) of every row below the header that is not blank; see `read_rows`.

    Raises DataError when the file or one of `columns` is missing, or a row has more or fewer cells than the header.
    """
    rows = read_rows(file)
    start, header = next(rows, (1, []))
    missing = [column for column in columns if column not in header]
    if missing:
        raise fail(file, start, f"the header lacks {', '.join(missing)}; it has {header_text(header)}")
    if any(header.count(column) > 1 for column in columns):
        raise fail(file, start, f"the header repeats a column: {header_text(header)}")
    for line, cells in rows:
        if len(cells) != len(header):
            raise fail(file, line, f"{len(cells)} cells, the header has {len(header)}")
        yield line, dict(zip(header, cells, strict=True))


def header_text(header: Sequence[str]) -> str:
    """The columns of a header for a message; only their beginning where the first row is something else, and long."""
    text = ", ".join(header) or "nothing"
    return text if len(text) <= _MAX_TOLD else f"{text[:_MAX_TOLD]}..."


def read_text(file: Path) -> str:
    """The content of a text file. Raises DataError."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise unreadable(file, error) from error


def read_json(file: Path, *, unique: bool = False) -> Any:
    """The content of a JSON file; `unique`: an object that repeats a key is an error. Raises DataError."""
    text = read_text(file)
    try:
        return json.loads(text, object_pairs_hook=distinct_keys if unique else None)
    except (ValueError, RecursionError) as error:  # ValueError also for a number of thousands of digits
        raise DataError(f"{file} is not a JSON file: {str(error).rstrip('.')}.") from error


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
    """The folder of a dataset's images: file names -> paths, by listing the folder once, not by one call per file."""

    def __init__(self, folder: Path, notes: list[Note]) -> None:
        """Lists `folder`; a folder that does not exist is noted, and every image is then missing."""
        self.folder = folder
        self._names: set[str] = set()
        try:
            self._names.update(path.name for path in folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            notes.append(Note("no_images_folder", str(folder), folder, None, "the folder of the images does not exist"))
        except OSError as error:
            raise DataError(f"The folder {folder} of the images cannot be listed: {error.strerror}.") from error

    def path(self, name: str, file: Path, row: int | None) -> Path:
        """The path of `name` inside the folder. Raises DataError for a name that points outside it."""
        return inside(self.folder, name, file, row)

    def find(self, stem: str, suffixes: Sequence[str], file: Path, row: int | None) -> Path:
        """The first existing `stem` + suffix; if none exists, the path with the first suffix. Raises DataError."""
        for suffix in suffixes:
            if stem + suffix in self._names:
                return self.path(stem + suffix, file, row)
        return self.path(stem + suffixes[0], file, row)


class ImageTree:
    """Images anywhere below some folders, found by file stem; the tree is walked once."""

    def __init__(self, folders: Sequence[Path], suffixes: Sequence[str], notes: list[Note]) -> None:
        """Lists all files with one of `suffixes`; of two with one stem the earlier suffix, then the earlier path wins.

        The second is noted as a duplicate, as is a folder that does not exist. Links to folders are followed.
        """
        self.folder, self._suffix = folders[0], suffixes[0]
        self._paths: dict[str, Path] = {}
        ranks: dict[str, int] = {}
        rank = {suffix: order for order, suffix in enumerate(suffixes)}
        for folder in folders:
            if not has_folder(folder):
                text = "the folder of the images does not exist"
                notes.append(Note("no_images_folder", str(folder), folder, None, text))
            for path in tree(folder):
                stem, dot, suffix = path.name.rpartition(".")
                order = rank.get((dot + suffix).lower())
                if order is None or not stem:  # a hidden file named .dcm is not an image
                    continue
                if stem in ranks and ranks[stem] == order:
                    text = f"there is also {path}; the first is used"
                    notes.append(Note("duplicate", stem, self._paths[stem], None, text))
                elif order < ranks.get(stem, len(rank)):
                    self._paths[stem], ranks[stem] = path, order

    def stems(self) -> set[str]:
        """The stems of all images found."""
        return set(self._paths)

    def find(self, stem: str, file: Path, row: int | None) -> Path:
        """The image named `stem`; if there is none, a path in the first folder. Raises DataError."""
        found = self._paths.get(stem)
        return found if found is not None else inside(self.folder, stem + self._suffix, file, row)


def tree(folder: Path) -> Iterator[Path]:
    """All files below a folder in order of their paths, files behind links to folders last.

    Each folder is entered once, so circular links, or links to a folder of the same tree, do no harm.
    """
    seen: set[tuple[int, int]] = set()
    starts = deque([folder])
    while starts:
        for name, inner, names in os.walk(starts.popleft()):
            place = Path(name)
            try:
                found = place.stat()
            except OSError:  # deleted during the listing
                continue
            if (found.st_dev, found.st_ino) in seen:
                inner.clear()
                continue
            seen.add((found.st_dev, found.st_ino))
            inner.sort()
            starts += [path for path in map(place.joinpath, inner) if path.is_symlink()]
            yield from map(place.joinpath, sorted(names))


def inside(folder: Path, name: str, file: Path, row: int | None) -> Path:
    """`folder` / `name`. Raises DataError for a name that points outside the folder or is not a file name."""
    parts = name.split("/")
    bad = "\\" in name or "\0" in name or parts[0] == "" or parts[-1] in ("", ".") or ".." in parts
    if bad or not name.isprintable():
        raise fail(file, row, f"the image name {name!r} leads out of the folder {folder} or is no file name")
    encoded = name.encode()  # possible for all printable text; a file system counts bytes
    if max(map(len, encoded.split(b"/"))) > _MAX_NAME or len(encoded) > 4 * _MAX_NAME:
        raise fail(file, row, f"the image name {name[:40]!r}... is longer than {_MAX_NAME} bytes")
    return folder / name


def unreadable(file: Path, error: OSError | ValueError) -> DataError:
    """The error to raise for an annotation file that cannot be read."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"The annotation file {file} does not exist; correct the dataset's root or its file options.")
    if isinstance(error, OSError):
        cause = error.strerror
    else:
        cause = "its text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
    return DataError(f"The annotation file {file} cannot be read: {cause}.")
