"""Draws the grid of the dialect `grid` into an image: lines, and a label for each column and row."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..data.answers.dialects.grid_cells import GRID_SIDE

_FONT: Final = {
    "A": (14, 17, 17, 31, 17, 17, 17),
    "B": (30, 17, 17, 30, 17, 17, 30),
    "C": (14, 17, 16, 16, 16, 17, 14),
    "D": (30, 17, 17, 17, 17, 17, 30),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "F": (31, 16, 16, 30, 16, 16, 16),
    "G": (14, 17, 16, 23, 17, 17, 14),
    "H": (17, 17, 17, 31, 17, 17, 17),
    "1": (4, 12, 4, 4, 4, 4, 14),
    "2": (14, 17, 1, 6, 8, 16, 31),
    "3": (30, 1, 1, 14, 1, 1, 30),
    "4": (2, 6, 10, 18, 31, 2, 2),
    "5": (31, 16, 30, 1, 1, 17, 14),
    "6": (6, 8, 16, 30, 17, 17, 14),
    "7": (31, 1, 2, 4, 8, 8, 8),
    "8": (14, 17, 17, 14, 17, 17, 14),
}
"""5 x 7 bitmaps, a number of five bits for each row: no font of the machine decides a pixel."""

_PIXELS_PER_LINE: Final = 512


def with_grid(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy of uint8 [H, W] with white lines on black edges, letters of columns, and numbers of rows."""
    drawn = grey.copy()
    height, width = drawn.shape
    thick = max(1, max(height, width) // _PIXELS_PER_LINE)
    lines = [(axis, number * side // GRID_SIDE) for axis, side in ((0, height), (1, width)) for number in range(1, 8)]
    for margin, level in ((thick, 0), (0, 255)):  # all edges lie below all lines
        for axis, position in lines:
            start = max(0, position - thick // 2 - margin)
            span = slice(start, position - thick // 2 + thick + margin)
            drawn[(span, slice(None)) if axis == 0 else (slice(None), span)] = level
    for number in range(GRID_SIDE):
        _write(drawn, chr(ord("A") + number), (3 * thick, (2 * number + 1) * width // (2 * GRID_SIDE)), thick)
        _write(drawn, str(number + 1), ((2 * number + 1) * height // (2 * GRID_SIDE), 3 * thick), thick)
    return drawn


def _write(drawn: NDArray[np.uint8], sign: str, corner: tuple[int, int], scale: int) -> None:
    bits = np.array([[row >> (4 - column) & 1 for column in range(5)] for row in _FONT[sign]], np.bool_)
    glyph = np.kron(bits, np.ones((2 * scale, 2 * scale), np.bool_)).astype(np.bool_)
    patch = drawn[
        corner[0] : corner[0] + glyph.shape[0] + 2 * scale, corner[1] : corner[1] + glyph.shape[1] + 2 * scale
    ]
    patch[:] = 0
    inner = patch[scale:, scale:]
    shown = glyph[: inner.shape[0], : inner.shape[1]]
    inner[: shown.shape[0], : shown.shape[1]][shown] = 255
