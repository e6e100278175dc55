"""Notes that a number cannot be believed with: they fail the audit, and every evaluation repeats them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ..files import Note

__all__ = ["FAILING_NOTES", "note_warnings"]

FAILING_NOTES: Final = frozenset(
    {
        "alike_classes",
        "doubtful_lines",
        "inverted",
        "not_binary",
        "one_patient",
        "placeholder_patient",
        "same_image",
        "unread_mask",
    }
)
"""Kinds of notes (docs/datasets.md §0.1) after which a dataset has not passed its audit."""


def note_warnings(notes: Iterable[Note]) -> dict[str, str]:
    """Kind -> sentence with the first note of each failing kind and the number of the others."""
    failing = [note for note in notes if note.kind in FAILING_NOTES]
    counts = Counter(note.kind for note in failing)
    warnings: dict[str, str] = {}
    for note in failing:
        others = counts[note.kind] - 1
        more = f" (and {others} more of this kind)" if others else ""
        warnings.setdefault(note.kind, f"{note}{more}.")
    return warnings
