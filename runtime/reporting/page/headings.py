"""Tables -> what the template draws: headings, sort keys, and the narrower parts that fit on paper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...tables.table import Cell, Item, Table, cell_of, plain

__all__ = ["WIDEST", "Grid", "Group", "Head", "Row", "TableView", "sort_key", "table_view"]

WIDEST = 12
"""Maximum columns of a table on paper; wider tables are split into parts."""

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(\.\d+)?(?=$|[\s%†*(\[])")


@dataclass(frozen=True)
class Head:
    """A column's heading. index: its place in a row; kind: "number" or "text"; name: with its group."""

    index: int
    title: str
    name: str
    kind: str


@dataclass(frozen=True)
class Group:
    """A heading above `span` columns, or with title None the heading of one column, two rows high."""

    title: str | None
    span: int
    head: Head


@dataclass(frozen=True)
class Row:
    """A row; a pinned one stays on top when the table is sorted."""

    cells: tuple[Cell, ...]
    pinned: bool


@dataclass(frozen=True)
class Grid:
    """A drawn table; `heads` are the headings of the last row of headings, `kinds` those of all columns."""

    title: str
    groups: tuple[Group, ...]
    heads: tuple[Head, ...]
    kinds: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class TableView:
    """A table with its place in the page. parts: the same on paper, empty where the whole fits."""

    id: str
    title: str
    stamps: tuple[str, ...]
    notes: tuple[str, ...]
    whole: Grid
    parts: tuple[Grid, ...]


def table_view(table: Table, number: int, models: Sequence[str]) -> TableView:
    """The view of a table, the `number`-th of the page."""
    every = list(range(len(table.columns)))
    parts = tuple(_grid(table, columns, models) for columns in _parts(table)) if len(every) > WIDEST else ()
    return TableView(f"table-{number}", table.title, table.stamps, table.notes, _grid(table, every, models), parts)


def sort_key(text: str) -> float | None:
    """The number a text begins with, None for another text."""
    found = _NUMBER.match(text.strip())
    return float(found[0].replace("−", "-").replace(",", "")) if found else None


def _grid(table: Table, columns: Sequence[int], models: Sequence[str]) -> Grid:
    kinds = ["number" if _numeric([row[index] for row in table.rows]) else "text" for index in columns]
    heads = [_head(table, index, place, kind) for place, (index, kind) in enumerate(zip(columns, kinds, strict=True))]
    groups = tuple(_groups(table, columns, heads)) if table.groups else ()
    pinned = _pinned(table, models)
    rows = tuple(
        Row(tuple(cell_of(row[index]) for index in columns), number < pinned) for number, row in enumerate(table.rows)
    )
    lower = tuple(head for head, index in zip(heads, columns, strict=True) if not groups or table.columns[index].group)
    return Grid(table.title, groups, lower, tuple(kinds), rows)


def _head(table: Table, index: int, place: int, kind: str) -> Head:
    column = table.columns[index]
    return Head(place, column.title, f"{column.group} {column.title}".strip(), kind if place else "text")


def _groups(table: Table, columns: Sequence[int], heads: Sequence[Head]) -> Iterator[Group]:
    at = 0
    while at < len(columns):
        title, head = table.columns[columns[at]].group, heads[at]
        span = 1
        if title:
            while at + span < len(columns) and table.columns[columns[at + span]].group == title:
                span += 1
        yield Group(title or None, span, head)
        at += span


def _numeric(items: Sequence[Item]) -> bool:
    """Whether at least half of the texts that are not empty begin with a number."""
    texts = [text for text in map(plain, items) if text.strip() not in ("", "-", "–")]
    return not texts or 2 * sum(sort_key(text) is not None for text in texts) >= len(texts)


def _pinned(table: Table, models: Sequence[str]) -> int:
    """Number of leading rows that do not belong to a model."""
    for number, row in enumerate(table.rows):
        if any(plain(row[0]) == name or plain(row[0]).startswith(f"{name} ") for name in models):
            return number
    return 0


def _parts(table: Table) -> Iterator[list[int]]:
    """Columns of each part: the leading ones (without groups the first), then as many others as fit."""
    leading = list(range(table.leading)) if table.groups else [0]
    blocks: list[list[int]] = []
    for index in range(len(table.columns)):
        if index in leading:
            continue
        group = table.columns[index].group
        if group and blocks and table.columns[blocks[-1][0]].group == group:
            blocks[-1].append(index)
        else:
            blocks.append([index])
    taken: list[int] = []
    for block in blocks:
        if taken and len(leading) + len(taken) + len(block) > WIDEST:
            yield leading + taken
            taken = []
        taken += block
    yield leading + taken
