"""Tables -> Markdown: the best of a column bold, the second best in italics, intervals below their value."""

from __future__ import annotations

from collections.abc import Sequence

from .table import Column, Item, Table, cell_of

__all__ = ["to_markdown"]

_MARKS = {"best": "**", "second": "*", "": ""}


def to_markdown(title: str, lines: Sequence[str], tables: Sequence[Table]) -> str:
    """A whole document: a heading, a list of facts about the run, the tables."""
    blocks = [f"# {title}", "\n".join(f"- {_escape(line)}" for line in lines)]
    blocks += [_table(table) for table in tables]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _table(table: Table) -> str:
    heads = [_heading(column) for column in table.columns]
    rows = [heads, ["---"] + ["---:"] * (len(heads) - 1), *([_item(item) for item in row] for row in table.rows)]
    grid = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    stamps = "\n".join(f"> **{_escape(line)}**  " for line in table.stamps)
    notes = "\n".join(f"{_escape(line)}  " for line in table.notes)
    return "\n\n".join(block for block in (f"## {_escape(table.title)}", stamps, grid, notes) if block)


def _heading(column: Column) -> str:
    return _escape(f"{column.group}: {column.title}" if column.group else column.title)


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
