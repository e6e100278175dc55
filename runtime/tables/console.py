"""Tables -> text in the terminal, or in the file or pipe that takes its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .table import Item, Table, cell_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["make_console", "print_table"]

_STYLES = {"best": "bold", "second": "underline", "": ""}
_WIDTH_OF_A_FILE = 200


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; wide enough not to break tables where the output is a file or a pipe.

    `stderr`: for what is told on the way while the output itself is data.
    """
    from rich.console import Console

    plain = not (sys.stderr if stderr else sys.stdout).isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH_OF_A_FILE if plain else None, stderr=stderr)


def print_table(console: Console, table: Table) -> None:
    """Prints a table; one that is wider than the console is split at its groups, leading columns repeated."""
    from rich.text import Text

    console.print()
    console.print(Text(table.title, style="bold"), soft_wrap=True)
    for line in table.stamps:
        console.print(Text(line, style="bold red"), soft_wrap=True)
    widths = [_width(table, index) for index in range(len(table.columns))]
    for part in table.parts(lambda indices: _total(widths, indices) <= console.width):
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
        grid.add_row(*map(_text, row))
    console.print(grid)


def _text(item: Item) -> Text:
    """The value, and below it in grey the other parts of the cell."""
    from rich.text import Text

    cell = cell_of(item)
    text = Text(cell.text, style=_STYLES[cell.mark])
    for line in cell.lines[1:]:
        text.append(f"\n{line}", style="not bold not underline dim")
    return text


def _width(table: Table, index: int) -> int:
    column = table.columns[index]
    lines = [line for row in table.rows for line in cell_of(row[index]).lines]
    return max(len(text) for text in (column.title, _group_head(table, index), *lines))


def _total(widths: Sequence[int], indices: Sequence[int]) -> int:
    return sum(widths[index] + 3 for index in indices)  # the width of the box between two columns


def _group_head(table: Table, index: int) -> str:
    """The group's name above its first column only; repeated, it would make every column as wide as itself."""
    group = table.columns[index].group
    return group if index == 0 or table.columns[index - 1].group != group else ""
