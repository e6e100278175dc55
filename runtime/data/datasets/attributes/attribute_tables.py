"""Tables of attributes in CSV: a user's own, NIH's entry file, and the labels of CheXpert's validation set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..file_rows import fail
from ..patients import IMAGE_COLUMNS, NIH_COLUMNS, PATIENT_COLUMNS
from ..source.column_guess import renames
from ..source.csv_files import header_text, is_index, read_rows
from ..source.image_names import portable_name, without_extension
from .values import NAMES, Attributes, Value, read_value

_CASE = ("case", *IMAGE_COLUMNS)
_NIH: Final = "Image Index"
_CHEXPERT: Final = "Path"
_VIEWS = ("Frontal/Lateral", "AP/PA")
_SOURCES = ("view", "sex", "age")
"""What is read of the tables of NIH and CheXpert: their other columns are findings and sizes."""


@dataclass(frozen=True)
class AttributeTable:
    """rows: key -> attributes. by_index: whether keys are NIH's image indices, else cases, file names or stems. names:
    of all attributes of the table. outside: ages that are outside of the possible ones, so unknown."""

    rows: dict[str, Attributes]
    names: tuple[str, ...]
    by_index: bool = False
    outside: int = 0


def read_table(file: Path) -> AttributeTable:
    """The table in `file`. Raises DataError, with file and row, for what cannot be read."""
    lines = read_rows(file)
    start, header = next(lines, (1, []))
    # NIH's header ends with a comma, which makes a last column without a name.
    width = max((position + 1 for position, name in enumerate(header) if name), default=0)
    header = header[:width]
    key, attributes = _columns(file, start, header)
    by_index = header[key] == _NIH
    key_of = _chexpert_case if header[key] == _CHEXPERT else str
    rows: dict[str, Attributes] = {}
    first: dict[str, int] = {}
    outside = 0
    for line, cells in lines:
        if len(cells) < width or any(cells[width:]):
            raise fail(file, line, f"{len(cells)} cells, the header has {width}")
        name = key_of(cells[key])
        if not name:
            raise fail(file, line, f"the column '{header[key]}' is empty; name the case there or delete the row")
        values: dict[str, Value] = {}
        for attribute, (position, read) in attributes.items():
            text = read(cells)
            try:
                value = read_value(attribute, text)
            except ValueError as error:
                column = header[position]
                raise fail(file, line, f"the value in the column '{column}' {error}; correct it or empty it") from None
            if value is not None:
                values[attribute] = value
            elif attribute == "age" and text[:1].isdigit():
                outside += 1
        if rows.setdefault(name, values) != values:
            raise fail(file, line, f"'{name[:80]}' has other values here than in row {first[name]}; delete one of them")
        first.setdefault(name, line)
    return AttributeTable(rows, tuple(attributes), by_index, outside)


_Column = tuple[int, Callable[[Sequence[str]], str]]


def _columns(file: Path, line: int, header: Sequence[str]) -> tuple[int, dict[str, _Column]]:
    """The place of the key, and attribute -> its column's place and what reads it of a row. Raises DataError."""
    key = next((header.index(name) for name in (*_CASE, _NIH, _CHEXPERT) if name in header), None)
    if key is None:
        names, hint = ", ".join(dict.fromkeys(_CASE)), renames(_CASE, header)
        text = (
            f"the header needs a column that names the case, one of {names}, or {_NIH} as in NIH's entry file; it has "
            f"{header_text(header)}"
        )
        raise fail(file, line, f"{text}; {hint}" if hint else text)
    published = header[key] == _CHEXPERT or (header[key] == _NIH and "Finding Labels" in header)
    columns: dict[str, _Column] = {}
    for position, column in enumerate(header):
        if position == key or is_index(column) or column in (*_CASE, *PATIENT_COLUMNS, *NIH_COLUMNS):
            continue
        name = NAMES.get(column.lower(), column)
        if published and name not in _SOURCES:
            continue
        if name in columns:
            raise fail(file, line, f"two columns give the attribute '{name}'; delete one of them")
        columns[name] = position, _cell(position)
    if header[key] == _CHEXPERT and all(name in header for name in _VIEWS):
        frontal, view = (header.index(name) for name in _VIEWS)
        columns["view"] = view, lambda cells: cells[view] if cells[frontal] == "Frontal" else cells[frontal]
    if not columns and not published:
        raise fail(file, line, "it has no column of an attribute, such as view, sex or age")
    return key, columns


def _cell(position: int) -> Callable[[Sequence[str]], str]:
    return lambda cells: cells[position]


def _chexpert_case(path: str) -> str:
    """CheXpert-v1.0/valid/patient1/study1/view1_frontal.jpg -> patient1_study1_view1_frontal"""
    return without_extension("_".join(portable_name(path).split("/")[-3:]))
