"""Changes of the numbers of a cell: run B minus run A on the rows that both scored, with tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..choices import Choices
from ..numbers.cell_values import CellValues, cell_values
from ..selected_pairs import dataset_patients
from .align import Aligned, OnlyIn
from .cell_pairs import Match
from .difference import Difference, subtract
from .flips import RowChanges, row_changes

COMPARED: Final = (
    "pointing",
    "dice_fixed",
    "dice_best",
    "dice_cross_fitted",
    "iou_fixed",
    "iou_best",
    "iou_cross_fitted",
    "auc",
    "auprc",
)
"""Compared numbers."""


@dataclass(frozen=True)
class CellChanges:
    """All changes of a cell, of one protocol.

    images, pairs: shared; unnamed: images of which no patient is named; other_files, other_patients: names of images
    that both have, but not as the same image; whole: of the means over classes; classes: of each class.
    """

    match: Match
    title: str
    protocol: str
    images: int
    pairs: int
    unnamed: int
    other_files: tuple[str, ...]
    other_patients: tuple[str, ...]
    whole: tuple[Difference, ...]
    classes: tuple[Difference, ...]
    rows: RowChanges
    only_a: OnlyIn
    only_b: OnlyIn
    label_changes: tuple[tuple[str, str], ...]
    region_changes: tuple[tuple[str, str], ...]


def cell_changes(both: Aligned, choices: Choices, level: float, keep: int = 100) -> CellChanges:
    """Compares two aligned cells. keep: how many Dice changes of single pairs are listed."""
    patients = dataset_patients(both.match.dataset, both.whole, choices.replicates, choices.seed)
    a, b = (cell_values(*side, patients, choices) for side in (both.a, both.b))
    return CellChanges(
        match=both.match,
        title=both.title,
        protocol=both.a[1].protocol.name,
        images=len(both.shared.cases),
        pairs=len(both.shared.image_of),
        unnamed=a.rows.unnamed,
        other_files=tuple(sorted(case for case, _ in both.shared.conflicts.files)),
        other_patients=tuple(sorted(case for case, _ in both.shared.conflicts.patients)),
        whole=tuple(_changes(a, b, [""], level)),
        classes=tuple(_changes(a, b, both.shared.findings, level)),
        rows=row_changes(both, a.grounding, b.grounding, keep),
        only_a=both.only_a,
        only_b=both.only_b,
        label_changes=both.label_changes,
        region_changes=both.region_changes,
    )


def _changes(a: CellValues, b: CellValues, names: Sequence[str], level: float) -> Iterator[Difference]:
    for metric in (*COMPARED, *a.choices.own):
        for name in names:
            found = subtract(b, a, metric, name, level)
            if found is not None:
                yield found
