"""The rows that two cells share, on (case, finding), and those that only one of them has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..results.choices import Choices
from ..results.comparability import SharedRows, check_protocols, image_names, shared_rows
from ..results.load import CellRows, StoredRun
from ..results.pairs import ScoredPairs, scored_pairs
from .cell_pairs import Match

__all__ = ["Aligned", "OnlyIn", "Side", "align"]

NOT_READ, NOT_THERE = "no readable image", "not in the run"


@dataclass(frozen=True)
class OnlyIn:
    """What only one of two runs has.

    rows: scored (case, finding) rows. cases: (case, why the other has none). findings: classes. pairs: (case, finding)
    of shared rows whose region is counted in this run alone.
    """

    rows: int
    cases: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def total(self) -> int:
        """Rows and pairs together."""
        return self.rows + len(self.pairs)


Side = tuple[CellRows, ScoredPairs]
"""One run's part of the shared rows."""


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two cells on the rows that both scored: those of run A, those of run B, and what only one of them has; `whole`:
    both with all their rows.

    label_changes, region_changes: (case, finding) whose label or region differs: the truth changed, and they are not
    compared.
    """

    match: Match
    title: str
    shared: SharedRows
    a: Side
    b: Side
    only_a: OnlyIn
    only_b: OnlyIn
    whole: tuple[CellRows, CellRows]

    @property
    def label_changes(self) -> tuple[tuple[str, str], ...]:
        return self.shared.names(np.argwhere(self.shared.other_labels))

    @property
    def region_changes(self) -> tuple[tuple[str, str], ...]:
        return self.shared.names(self.shared.other_regions)


def align(run_a: StoredRun, run_b: StoredRun, match: Match, choices: Choices) -> Aligned:
    """Reads both cells and keeps what they share.

    Raises RunError when they were swept by different protocols, whose numbers are not comparable, or cannot be read.
    """
    one, two = run_a.cell(match.model_a, match.dataset), run_b.cell(match.model_b, match.dataset)
    where = f"{match.models} on {match.dataset}"
    names = [str(run.path) for run in (run_a, run_b)] if run_a.path != run_b.path else [match.model_a, match.model_b]
    check_protocols(where, list(zip(names, (one, two), strict=True)))
    whole = (one, scored_pairs(run_a, one, choices)), (two, scored_pairs(run_b, two, choices))
    shared = shared_rows(whole)
    a, b = (shared.cut(place, *cell) for place, cell in enumerate(whole))
    return Aligned(
        match=match,
        title=str(one.entry["title"]),
        shared=shared,
        a=a,
        b=b,
        only_a=_only(one, two, shared.names(shared.alone[0])),
        only_b=_only(two, one, shared.names(shared.alone[1])),
        whole=(one, two),
    )


def _only(cell: CellRows, other: CellRows, pairs: tuple[tuple[str, str], ...]) -> OnlyIn:
    names = image_names(cell)
    known, listed = set(image_names(other)), set(other.case_ids)
    cases = [(case, NOT_READ if case in listed else NOT_THERE) for case, turn in names if (case, turn) not in known]
    findings = tuple(name for name in cell.findings if name not in other.findings)
    rows = len(cases) * len(cell.findings) + (len(names) - len(cases)) * len(findings)
    return OnlyIn(rows, tuple(cases), findings, pairs)
