"""The dialect `grid`: cells of 8 columns and 8 rows that are drawn on the image (docs/boxes.md §4)."""

from __future__ import annotations

import re
from typing import Final

from .parsed import Parsed

GRID_SIDE: Final = 8
"""Columns A to H from the left, and rows 1 to 8 from the top."""

_ANSWER: Final = re.compile(r"(?<![a-z])answer\s{0,4}\*{0,2}\s{0,4}:", re.IGNORECASE | re.ASCII)
_CELL: Final = re.compile(r"(?<![a-z0-9])([a-z])(\d{1,40}+)(?![a-z])", re.IGNORECASE | re.ASCII)
_NONE: Final = re.compile(r"\bnone\b", re.IGNORECASE)


def grid(text: str) -> Parsed:
    """`Answer: B3, B4` or `Answer: none`: each cell is a box, in fractions of the image.

    Only the line after the last `Answer:` is read, because C7 and T4 are vertebrae too. Without it, a cell anywhere
    makes the text unparsable; so does a line with a number and neither a cell nor `none`, such as `Answer: B 3`.
    """
    answers = list(_ANSWER.finditer(text))
    if not answers:
        return Parsed(meant=any(_corner(cell) for cell in _CELL.finditer(text)))
    line = text[answers[-1].end() :].partition("\n")[0]
    parsed = Parsed(empty=_NONE.search(line) is not None)
    for cell in _CELL.finditer(line):
        x, y = _corner(cell) or (0.0, 0.0)
        parsed.add((x, y, x + 1 / GRID_SIDE, y + 1 / GRID_SIDE), legal=_corner(cell) is not None)
    parsed.meant = not parsed.empty and any(map(str.isdecimal, line))
    return parsed


def _corner(cell: re.Match[str]) -> tuple[float, float] | None:
    """The upper left corner of a cell; None outside the grid."""
    column, row = ord(cell[1].upper()) - ord("A"), int(cell[2]) - 1
    return (column / GRID_SIDE, row / GRID_SIDE) if column < GRID_SIDE and 0 <= row < GRID_SIDE else None
