"""Notes that every evaluation repeats; most of them also fail the audit, as no number can be believed with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from ..file_rows import Note

FAILING_NOTES: Final = frozenset(
    {
        "alike_classes",
        "class_folder",
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


REPEATED_NOTES: Final = FAILING_NOTES | {"crowd", "invalid_shape"}
"""Kinds that an evaluation repeats as warnings: those, and what a number can mean in two ways."""


def note_warnings(notes: Iterable[Note], kinds: Collection[str] = FAILING_NOTES) -> dict[str, str]:
    """Kind -> sentence with the first note of each of these kinds and the number of the others."""
    chosen = [note for note in notes if note.kind in kinds]
    counts = Counter(note.kind for note in chosen)
    warnings: dict[str, str] = {}
    for note in chosen:
        others = counts[note.kind] - 1
        more = f" (and {others} more of this kind)" if others else ""
        warnings.setdefault(note.kind, f"{note}{more}.")
    return warnings
