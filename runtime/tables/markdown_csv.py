"""Tables -> Markdown, and rows -> CSV.

In Markdown the best of a column is bold, the second best in italics, intervals stand below their value; CSV has one
line for each row, values unrounded.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .table import Item, Table, cell_of

__all__ = [
    "to_csv",
    "to_markdown",
]

_MARKS = {"best": "**", "second": "*", "": ""}


def to_markdown(title: str, lines: Sequence[str], tables: Sequence[Table]) -> str:
    """A whole document: a heading, a list of facts about the run, the tables."""
    blocks = [f"# {title}", "\n".join(f"- {_escape(line)}" for line in lines)]
    blocks += [_table(table) for table in tables]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(table: Table) -> str:
    heads = [_escape(f"{column.group}: {column.title}" if column.group else column.title) for column in table.columns]
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 1), *([_item(item) for item in row] for row in table.rows)]
    grid = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    stamps = "\n".join(f"> **{_escape(line)}**  " for line in table.stamps)
    notes = "\n".join(f"{_escape(line)}  " for line in table.notes)
    return "\n\n".join(block for block in (f"## {_escape(table.title)}", stamps, grid, notes) if block)


def _item(item: Item) -> str:
    cell = cell_of(item)
    sign = _MARKS[cell.mark]
    first, *others = cell.lines or ("",)
    beside = first.removeprefix(cell.text)
    first = f"{sign}{_escape(first.removesuffix(beside))}{sign}{_escape(beside)}"
    return "<br>".join([first, *map(_escape, others)])


def _escape(text: str) -> str:
    for sign in "\\`|*_[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The rows as CSV text. columns: needed if `rows` may be empty; by default all that occur, in their order."""
    table = list(rows)
    columns = columns or list(dict.fromkeys(name for row in table for name in row))
    stream = io.StringIO()
    if columns:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return stream.getvalue()
