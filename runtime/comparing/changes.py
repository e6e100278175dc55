"""Changes of the numbers of a cell: run B minus run A on the rows that both scored, with tests."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...metrics_gpu.statistics.bootstrap import draw_patients
from ..results.choices import Choices
from ..results.numbers.cell_values import CellValues, cell_values
from ..results.patients import Patients, Resampling
from .align import Aligned, OnlyIn
from .cell_pairs import Match
from .difference import Difference, delong, subtract
from .flips import RowChanges, row_changes

__all__ = ["COMPARED", "CellChanges", "cell_changes"]

COMPARED: Final = ("pointing", "dice_fixed", "dice_best", "iou_fixed", "iou_best", "auc", "auprc")
"""Compared numbers."""


@dataclass(frozen=True)
class CellChanges:
    """All changes of a cell. images, pairs: shared; whole: of the means over classes; classes: of each class."""

    match: Match
    title: str
    images: int
    pairs: int
    whole: tuple[Difference, ...]
    classes: tuple[Difference, ...]
    rows: RowChanges
    only_a: OnlyIn
    only_b: OnlyIn
    label_changes: tuple[tuple[str, str], ...]
    region_changes: tuple[tuple[str, str], ...]


def cell_changes(both: Aligned, resampling: Resampling, keep: int = 100) -> CellChanges:
    """Compares two aligned cells. keep: how many Dice changes of single pairs are listed."""
    patients = _patients(both, resampling)
    choices = Choices(replicates=resampling.replicates, seed=resampling.seed)
    a, b = (cell_values(*side, patients, choices) for side in (both.a, both.b))
    return CellChanges(
        match=both.match,
        title=both.title,
        images=len(both.shared.cases),
        pairs=len(both.shared.image_of),
        whole=tuple(_changes(a, b, [""], resampling.level)),
        classes=tuple(_of_classes(both, a, b, resampling.level)),
        rows=row_changes(both, a.grounding, b.grounding, keep),
        only_a=both.only_a,
        only_b=both.only_b,
        label_changes=both.label_changes,
        region_changes=both.region_changes,
    )


def _patients(both: Aligned, resampling: Resampling) -> Patients:
    """The patients of the shared images, drawn with the dataset's own seed."""
    names = list(dict.fromkeys(both.shared.patients))
    seed = resampling.seed + zlib.crc32(both.match.dataset.encode())
    draws = draw_patients(len(names), resampling.replicates, seed) if resampling.replicates and names else None
    return Patients({name: place for place, name in enumerate(names)}, draws)


def _changes(a: CellValues, b: CellValues, names: Sequence[str], level: float) -> Iterator[Difference]:
    for metric in COMPARED:
        for name in names:
            found = subtract(b, a, metric, name, level)
            if found is not None:
                yield found


def _of_classes(both: Aligned, a: CellValues, b: CellValues, level: float) -> Iterator[Difference]:
    """Changes of each class; the AUC has DeLong's test too."""
    sides = (both.b[0], both.a[0])
    for found in _changes(a, b, both.shared.findings, level):
        tested = delong(sides, found.name, level).get((0, 1)) if found.field == "auc" else None
        yield replace(found, delong=tested.interval, p_delong=tested.p) if tested else found
