"""Tables -> Markdown, and rows -> CSV.

In Markdown the best of a column is bold, the second best in italics, intervals stand below their value; CSV has one
line for each row, values unrounded.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from ....engines.visible_text import visible_line, visible_text
from .table import Item, Table, cell_of

# What a spreadsheet can take for a formula, and the apostrophe, so that taking one away gives every text again.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")
_MARKS = {"best": "**", "second": "*", "": ""}


def to_markdown(title: str, lines: Sequence[str], tables: Sequence[Table]) -> str:
    """A whole document: a heading, a list of facts about the run, the tables."""
    blocks = [f"# {markdown_text(title)}", "\n".join(f"- {markdown_text(line)}" for line in lines)]
    blocks += [_table(table) for table in tables]
    blocks += [f"## {markdown_text(each.legend_title)}\n\n{_lines(each.legend)}" for each in tables if each.legend]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(table: Table) -> str:
    heads = [
        markdown_text(f"{column.group}: {column.title}" if column.group else column.title) for column in table.columns
    ]
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 1), *([_item(item) for item in row] for row in table.rows)]
    grid = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    stamps = "\n".join(f"> **{markdown_text(line)}**  " for line in table.stamps)
    where = (f'What columns, values and intervals mean: "{table.legend_title}" at the end',) * bool(table.legend)
    notes = _lines((*table.notes, *where))
    return "\n\n".join(block for block in (f"## {markdown_text(table.title)}", stamps, grid, notes) if block)


def _lines(texts: Iterable[str]) -> str:
    """The texts, each on a line of its own."""
    return "\n".join(f"{markdown_text(text)}  " for text in texts)


def _item(item: Item) -> str:
    cell = cell_of(item)
    sign = _MARKS[cell.mark]
    first, *others = cell.lines or ("",)
    beside = first.removeprefix(cell.text)
    first = f"{sign}{markdown_text(first.removesuffix(beside))}{sign}{markdown_text(beside)}"
    return "<br>".join([first, *map(markdown_text, others)])


def markdown_text(text: str) -> str:
    """The text in Markdown: nothing in it is a mark, and it stays on its line."""
    text = visible_line(text)
    for sign in "\\`|*_[]":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;")


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = (), *, raw: bool = False) -> str:
    """The rows as CSV text. columns: needed if `rows` may be empty; by default all that occur, in their order.

    Texts are safe for a spreadsheet, which runs what looks like a formula (CWE-1236), and for a terminal: an apostrophe
    stands before a text that begins with `=`, `+`, `-`, `@`, a tab or a line end, and hidden signs are shown. raw: they
    stand as they are. Numbers are never changed.
    """
    table = list(rows) if raw else [{name: _harmless(value) for name, value in row.items()} for row in rows]
    columns = columns or list(dict.fromkeys(name for row in table for name in row))
    stream = io.StringIO()
    if columns:
        # Only with this line end are texts with a carriage return put in quotes.
        lines = SimpleNamespace(write=lambda line: stream.write(line.removesuffix("\r\n") + "\n"))
        writer = csv.DictWriter(lines, columns, lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(table)
    return stream.getvalue()


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return visible_text(f"'{value}" if value.startswith(_FORMULA) else value)
