"""Tables -> terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .table import Table

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_table"]


def print_table(console: Console, table: Table) -> None:
    """Prints a table; one that is wider than the console is broken at its groups, leading columns repeated."""
    from rich.text import Text

    console.print()
    console.print(Text(table.title, style="bold"), soft_wrap=True)
    for line in table.stamps:
        console.print(Text(line, style="bold red"), soft_wrap=True)
    for part in _parts(table, console.width):
        _print_part(console, part)
    for line in table.notes:
        console.print(Text(line, style="dim"), soft_wrap=True)


def _print_part(console: Console, table: Table) -> None:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(table.columns):
        head = f"{_group_head(table, index)}\n{column.title}" if table.groups else column.title
        grid.add_column(Text(head), justify="left" if index < max(table.leading, 1) else "right", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


def _parts(table: Table, width: int) -> Iterator[Table]:
    """Pieces of the table made of whole groups, as many as fit `width`."""
    if not table.groups:
        yield table
        return
    sizes = [_width(table, index) for index in range(len(table.columns))]
    lead = list(range(table.leading))
    taken: list[int] = []
    for group in table.groups:
        members = [index for index, column in enumerate(table.columns) if column.group == group]
        if taken and sum(sizes[index] for index in lead + taken + members) > width:
            yield _only(table, lead + taken)
            taken = []
        taken += members
    yield _only(table, lead + taken)


def _width(table: Table, index: int) -> int:
    column = table.columns[index]
    texts = [column.title, _group_head(table, index), *(row[index] for row in table.rows)]
    return max(len(text) for text in texts) + 3  # what the box puts between two columns


def _group_head(table: Table, index: int) -> str:
    """The group's name above its first column only; repeated it would make every column as wide as itself."""
    group = table.columns[index].group
    return group if index == 0 or table.columns[index - 1].group != group else ""


def _only(table: Table, indices: list[int]) -> Table:
    columns = tuple(table.columns[index] for index in indices)
    return Table(table.title, columns, tuple(tuple(row[index] for index in indices) for row in table.rows))
