"""The row of a file in messages: notes, errors, and numbers that are checked."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from ....engines.errors import DataError

_LARGE = 1e300
"""Beyond it a whole number may be too large for a float."""


@dataclass(frozen=True)
class Note:
    """A problem in a dataset's files that does not stop the reading.

    kind: one of docs/datasets.md §0.1, such as "unknown_class".
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


def number(value: object, file: Path, row: int | None, what: str) -> float:
    """`value` as a finite number. Raises DataError."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        if isinstance(value, str) and "_" in value:  # Python takes 1_0 for 10
            raise ValueError
        result = float(value)
    except (ValueError, OverflowError):
        comma = isinstance(value, str) and re.fullmatch(r"\s*[-+]?\d*,\d+\s*", value)
        hint = "; write a point instead of the decimal comma" if comma else ""
        raise fail(file, row, f"{what} is {value!r}, not a number{hint}") from None
    if not math.isfinite(result):
        raise fail(file, row, f"{what} is {value!r}, not a finite number")
    return result


def numbers(value: object, count: int, file: Path, row: int | None, what: str) -> tuple[float, ...]:
    """A list of `count` finite numbers. Raises DataError."""
    if not isinstance(value, list) or len(value) != count:
        raise fail(file, row, f"{what} is {value!r}, not a list of {count} numbers")
    if {*map(type, value)} <= {int, float} and all(-_LARGE < item < _LARGE for item in value):
        return tuple(map(float, value))  # most lists: three times as fast
    return tuple(number(item, file, row, what) for item in value)
