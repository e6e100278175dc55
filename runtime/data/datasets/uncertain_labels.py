"""What uncertain labels count as, the -1 of CheXpert among them (docs/datasets.md §0.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from .case import UNCERTAIN, Case
from .file_rows import Note

POLICIES: Final = ("ignore", "positive", "negative")
"""What an uncertain label can become: unknown, 1 or 0."""

_LABELS: Final = dict(zip(POLICIES, (None, 1, 0), strict=True))


def decided(cases: Sequence[Case], policy: str, notes: list[Note], file: Path) -> tuple[list[Case], int]:
    """The cases with every uncertain label as the policy, one of `POLICIES`, decides it, and the number of them.

    Each finding with uncertain labels is added to `notes`, and so is a region whose label becomes 0. file: of the
    dataset, for the notes.
    """
    counts = Counter(finding for case in cases for finding, label in case.labels.items() if label == UNCERTAIN)
    if not counts:
        return [*cases], 0
    for finding, count in counts.items():
        text = f"uncertain labels of '{finding}': {count}; the policy is {policy}"
        notes.append(Note("uncertain", finding, file, None, text))
    label, settled = _LABELS[policy], []
    for case in cases:
        if UNCERTAIN in case.labels.values():
            for finding in case.regions if policy == "negative" else ():
                if case.labels.get(finding) == UNCERTAIN:
                    text = f"'{case.case_id}' has a region of '{finding}', but its uncertain label counts as 0"
                    notes.append(Note("disagreement", case.case_id, file, case.rows[0] if case.rows else None, text))
            labels = {finding: label if value == UNCERTAIN else value for finding, value in case.labels.items()}
            case = replace(case, labels=labels)
        settled.append(case)
    return settled, counts.total()
