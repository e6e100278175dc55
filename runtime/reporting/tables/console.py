"""Tables -> text in the terminal, or in the file or pipe that takes its place. No word and no number is broken."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, zip_longest
from typing import IO, TYPE_CHECKING

from ....engines.visible_text import visible_text
from .table import Item, Table, cell_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STYLES = {"best": "bold", "second": "underline", "": ""}
_WIDTH_OF_A_FILE = 200
_GAP = "  "
_TEXT = 30  # longer texts are wrapped at their spaces
_HEADING = 10  # and headings that are longer


def make_console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """A console as wide as the terminal; wide enough not to break tables where the output is a file or a pipe.

    `stderr`: for what is told on the way while the output itself is data. `file`: takes the place of both.
    """
    from .visible_console import VisibleConsole

    if file is not None:
        return VisibleConsole(file=file, width=_WIDTH_OF_A_FILE, color_system=None)
    plain = not (sys.stderr if stderr else sys.stdout).isatty() and "COLUMNS" not in os.environ
    return VisibleConsole(width=_WIDTH_OF_A_FILE if plain else None, stderr=stderr)


def shown(text: str, style: str = "") -> Text:
    """A text of files for the console, with hidden signs shown before its width is measured."""
    from rich.text import Text

    return Text(visible_text(text), style=style)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Prints a sentence, in a terminal wrapped between words; a file or a pipe takes it as one line."""
    text = visible_text(text)
    lines = _wrapped(text, console.width) if console.is_terminal else [text]
    console.print(shown("\n".join(lines), style), soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """Prints a table. One that is wider than the console is turned, if it can be and then has fewer parts, and split
    into parts with the same leading columns; one whose leading columns are too wide is printed as a list."""
    console.print()
    print_line(console, table.title, "bold")
    for line in table.stamps:
        print_line(console, line, "bold red")
    for lines in _drawn(table, console.width):
        console.print()
        for text in lines:
            console.print(text, soft_wrap=True)
    console.print()
    for line in table.notes:
        print_line(console, line, "dim")
    if table.legend:
        print_line(console, f'What columns, values and intervals mean: "{table.legend_title}" in tables.md', "dim")


def _drawn(table: Table, width: int) -> list[list[Text]]:
    """The lines of each part of the table, in the form with the fewest parts."""
    found = []
    for form in [table, table.turned()] if table.turns else [table]:
        parts = list(form.parts(_measure(form), width))
        fits = all(_measure(part)(range(len(part.columns))) <= width for part in parts)
        found.append([list(_lines(part)) for part in parts] if fits else [list(_listed(form, width))])
    return min(found, key=len)


def _measure(table: Table) -> Callable[[Sequence[int]], float]:
    return partial(table.width, widths=_widths(table), gap=len(_GAP), size=_size)


def _widths(table: Table) -> list[int]:
    """Of each column: as wide as the cells, but for long texts, which are wrapped; never narrower than a word."""
    widths = []
    for index, column in enumerate(table.columns):
        lines = [line for row in table.rows for line in cell_of(row[index]).lines]
        words = [_size(word) for line in (column.title, *lines) for word in line.split()]
        longest = max(map(_size, lines), default=0)
        widths.append(max(1, *words, min(longest, _TEXT), min(_size(column.title), _HEADING)))
    return widths


def _lines(table: Table) -> Iterator[Text]:
    """The drawing, line by line."""
    from rich.text import Text

    widths = _widths(table)
    spans, groups = [], []
    for group, members in groupby(range(len(widths)), key=lambda index: table.columns[index].group):
        own = list(members)
        span = sum(widths[index] for index in own) + len(_GAP) * (len(own) - 1)
        widths[own[-1]] += max(0, _size(group) - span)
        spans.append(max(span, _size(group)))
        groups.append([Text(group)])
    right = [index >= table.leading and not table.is_text(index) for index in range(len(widths))]
    if table.groups:
        yield from _rows(groups, spans, [False] * len(groups))
    heads = [
        [Text(line) for line in _wrapped(column.title, width)]
        for column, width in zip(table.columns, widths, strict=True)
    ]
    yield from _rows(heads, widths, right)
    yield Text("\u2500" * (sum(widths) + len(_GAP) * (len(widths) - 1)))
    for row in table.rows:
        yield from _rows([_texts(item, width) for item, width in zip(row, widths, strict=True)], widths, right)


def _listed(table: Table, width: int) -> Iterator[Text]:
    """Each row as a list of its columns, for names that are too long for a table."""
    from rich.text import Text

    for row in table.rows:
        for index, (column, item) in enumerate(zip(table.columns, row, strict=True)):
            lines = cell_of(item).lines
            name = f"{column.group}: {column.title}" if column.group else column.title
            indent = "  " if index >= table.leading else ""
            if lines:
                for line in _wrapped(f"{name}: {', '.join(lines)}", width - len(indent)):
                    yield Text(f"{indent}{line}", style=_STYLES[cell_of(item).mark])
        yield Text("")


def _rows(cells: Sequence[Sequence[Text]], widths: Sequence[int], right: Sequence[bool]) -> Iterator[Text]:
    """The lines of a row of cells, each of which has its own number of lines."""
    from rich.text import Text

    for parts in zip_longest(*cells):
        padded = []
        for part, width, side in zip(parts, widths, right, strict=True):
            text = part or Text("")
            space = Text(" " * (width - _size(text.plain)))
            padded.append(space + text if side else text + space)
        line = Text(_GAP).join(padded)
        line.rstrip()
        yield line


def _texts(item: Item, width: int) -> list[Text]:
    """The value, and below it in grey the other parts of the cell."""
    from rich.text import Text

    cell = cell_of(item)
    texts: list[Text] = []
    for place, line in enumerate(cell.lines):
        for text in _wrapped(line, width):
            value = place == 0 and cell.text and not texts
            texts.append(Text(text, style="" if value else "dim"))
            if value:
                texts[-1].stylize(_STYLES[cell.mark], 0, len(cell.text))
    return texts


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines that are broken at spaces alone; a word that is longer than a line stands alone on one."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and _size(lines[-1]) + 1 + _size(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _size(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
