"""CSV files as spreadsheets and annotation tools write them: with a comma, semicolon, tab or bar between the cells."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from .....engines.errors import DataError
from ..file_rows import fail
from .column_guess import renames
from .documents import read_text

_SEPARATORS: Final = (",", ";", "\t", "|")
_MAX_TOLD = 200  # characters of a file in a message


def read_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not blank, the header included.

    Cells are stripped of white space and stay strings; a byte order mark, CRLF and Excel's line "sep=;" are accepted.
    The separator is the one that gives the first row most cells. Raises DataError when the file cannot be read.
    """
    lines = io.StringIO(read_text(file), newline="")
    first = next((line for line in lines if line.strip()), "")
    stated = re.fullmatch(r"sep=([,;\t|])", first.rstrip("\r\n"), re.IGNORECASE)
    if not stated:
        lines.seek(0)
    skipped = 1 if stated else 0
    try:
        rows = csv.reader(lines, delimiter=stated[1] if stated else _separator(first))
        for row in rows:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield rows.line_num + skipped, cells
    except csv.Error as error:
        raise DataError(f"{file} is not a CSV file: {error}.") from error


def _separator(first: str) -> str:
    """The separator of the first line; a comma where nothing separates."""
    cells = {separator: len(next(csv.reader([first], delimiter=separator), [])) for separator in _SEPARATORS}
    return max(_SEPARATORS, key=lambda separator: cells[separator])


def read_csv(
    file: Path, columns: Sequence[str], mend: str | Callable[[Sequence[str]], str] = ""
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, {column: cell}) of every row below the header that is not blank; see `read_rows`.

    mend: what the user can do about a missing column, for the message, or a function of the header. Raises DataError
    when the file or one of `columns` is missing, or a row has more or fewer cells than the header.
    """
    rows = read_rows(file)
    start, header = next(rows, (1, []))
    missing = [column for column in columns if column not in header]
    if missing:
        text = f"the header lacks {', '.join(missing)}; it has {header_text(header)}"
        hint = (mend if isinstance(mend, str) else mend(header)) or renames(columns, header)
        raise fail(file, start, f"{text}; {hint}" if hint else text)
    if len(set(filter(None, header))) != len([*filter(None, header)]):  # a dict would keep the last column alone
        raise fail(file, start, f"the header repeats a column: {header_text(header)}")
    for line, cells in rows:
        if len(cells) != len(header):
            raise fail(file, line, f"{len(cells)} cells, the header has {len(header)}")
        yield line, dict(zip(header, cells, strict=True))


def is_index(column: str) -> bool:
    """Whether a column of this name holds the numbers of the rows: pandas and R write it without a name."""
    return not column or re.fullmatch(r"Unnamed: \d+|index", column, re.IGNORECASE) is not None


def header_text(header: Sequence[str]) -> str:
    """The columns of a header for a message; only their beginning where the first row is something else, and long."""
    text = ", ".join(header) or "nothing"
    return text if len(text) <= _MAX_TOLD else f"{text[:_MAX_TOLD]}..."
