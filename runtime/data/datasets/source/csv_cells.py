"""Cells of a table that say nothing, and labels as pandas, R and CheXpert write them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..case import UNCERTAIN
from ..file_rows import fail

BLANKS: Final = frozenset({"", "nan", "none", "null", "na", "n/a", "#n/a", "<na>", "nat", "nil"})
"""The texts that programs write for a missing value, in lower case."""

_LABELS: Final[dict[str, int | None]] = {
    "0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1, "-1": UNCERTAIN, "-1.0": UNCERTAIN,
    **dict.fromkeys(BLANKS),
}  # fmt: skip


def is_blank(cell: str) -> bool:
    """Whether a cell says nothing: it is empty, or has "nan" or the like."""
    return not cell or cell.strip().lower() in BLANKS


def read_label(cell: str) -> int | None:
    """1, 0, `UNCERTAIN` for -1, or None for a blank cell: CheXpert leaves blank what a report does not mention.

    Raises ValueError, with the rest of a sentence, for anything else.
    """
    if cell in _LABELS:
        return _LABELS[cell]
    text = cell.strip().lower()
    if text in _LABELS:
        return _LABELS[text]
    try:
        return {0.0: 0, 1.0: 1, -1.0: UNCERTAIN}[float(text)]
    except (KeyError, ValueError):
        raise ValueError(f"is {cell[:40]!r}, not 0 or 1, -1 for uncertain, or blank") from None


def label_of(cell: str, file: Path, row: int, what: str) -> int | None:
    """`read_label` of a cell of a file. what: the cell in the message, as its subject. Raises DataError."""
    try:
        return read_label(cell)
    except ValueError as error:
        raise fail(file, row, f"{what} {error}") from None
