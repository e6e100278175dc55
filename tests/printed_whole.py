"""Whether a table in a terminal breaks a word or a number."""

from __future__ import annotations

import io
from collections import Counter

from rich.cells import cell_len
from rich.console import Console
from xbench_fast.runtime.reporting.tables.console import print_table
from xbench_fast.runtime.reporting.tables.table import Table, cell_of


def shown(table: Table, width: int) -> str:
    """The table as a terminal of this width gets it."""
    stream = io.StringIO()
    print_table(Console(width=width, file=stream, force_terminal=True, color_system=None), table)
    return stream.getvalue()


def check_whole(table: Table, width: int) -> None:
    """Asserts that each word of the cells, headings and sentences stands whole on a line, and no line is too long for a
    reason but one long word."""
    text = shown(table, width)
    found = Counter(word.rstrip(",:") for line in text.splitlines() for word in line.split())
    wanted = Counter(
        word for row in table.rows for item in row for line in cell_of(item).lines for word in line.split()
    )
    for word, count in wanted.items():
        assert found[word.rstrip(",:")] >= count, f"'{word}' {count} times in '{table.title}', {width} columns:\n{text}"
    others = [
        table.title,
        *table.stamps,
        *table.notes,
        *(f"{c.group} {c.title}" for c in table.columns[table.leading if table.turns else 0 :]),
    ]
    for word in " ".join(others).split():
        assert found[word.rstrip(",:")], f"'{word}' in '{table.title}', {width} columns:\n{text}"
    longest = max(map(cell_len, text.split()))
    for line in text.splitlines():
        assert cell_len(line) <= max(width, longest + 2), f"{line!r} in {width} columns"
