"""Differences between two models on the same patients, tested and corrected for their number.

Both models are scored on the (image, finding) pairs, or labels, that both have. The family of Holm's correction is all
comparisons within one number of one dataset (or of the mean over datasets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.recognition.delong import auc_differences
from ...metrics_gpu.statistics.bootstrap import Interval
from ...metrics_gpu.statistics.paired import holm, paired_difference
from ..results.load import CellRows
from ..results.numbers.cell_values import CellValues
from ..results.numbers.run_numbers import Results
from .overlaps import Overlap, Overlaps

__all__ = ["COMPARED", "AucPair", "Difference", "Differences", "find_differences"]

COMPARED: Final = ("pointing", "dice_best", "dice_cross_fitted", "auc")
"""The numbers that are compared."""


@dataclass(frozen=True)
class Difference:
    """`first` minus `second` of a number, a fraction; on one dataset, or (empty) in the mean over `datasets`.

    p: two-sided, of the paired bootstrap; p_holm: corrected. Both None without replicates. shared: the pairs (of AUC:
    labels) both values rest on; left_out: those that only one of the models has.
    """

    dataset: str
    field: str
    first: str
    second: str
    difference: float
    interval: Interval | None
    p: float | None
    p_holm: float | None = None
    datasets: tuple[str, ...] = ()
    shared: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class AucPair:
    """AUC of `first` minus that of `second` for a class, by DeLong's method, which takes images as independent."""

    dataset: str
    name: str
    first: str
    second: str
    images: int
    difference: float
    interval: Interval
    p: float | None
    p_holm: float | None = None


@dataclass(frozen=True)
class Differences:
    """All comparisons of a report, and what every two models share on each dataset."""

    numbers: tuple[Difference, ...]
    classes: tuple[AucPair, ...]
    overlaps: tuple[Overlap, ...] = ()

    def of(self, dataset: str, field: str, first: str, second: str) -> Difference | None:
        """The comparison of a number, None where one of the two models has none."""
        wanted = (dataset, field, first, second)
        return next((d for d in self.numbers if (d.dataset, d.field, d.first, d.second) == wanted), None)


def find_differences(results: Results) -> Differences:
    """Every two models (no baselines) on each dataset and in the mean over the datasets that both have."""
    numbers: list[Difference] = []
    classes: list[AucPair] = []
    overlaps = Overlaps(results)
    for dataset in results.datasets:
        models = [cell.model for cell in results.column(dataset) if cell.competes]
        for field in COMPARED:
            numbers += _corrected([d for a, b in combinations(models, 2) for d in _on(overlaps, dataset, field, a, b)])
        classes += _delong(
            dataset, [results.rows[model, dataset] for model in models if (model, dataset) in results.rows]
        )
    models = [model for model in results.models if any(cell.competes for cell in results.row(model))]
    if len(results.datasets) > 1:
        for field in COMPARED:
            numbers += _corrected(
                [d for a, b in combinations(models, 2) for d in _over(results, overlaps, field, a, b)]
            )
    return Differences(tuple(numbers), tuple(classes), overlaps.all)


def _on(overlaps: Overlaps, dataset: str, field: str, first: str, second: str) -> Iterator[Difference]:
    found = overlaps.of(dataset, first, second)
    if found is None:
        return
    overlap, cells = found
    a, b = (cell.number(field).value for cell in cells)
    if a is None or b is None:
        return
    drawn = [cell.drawn(field) for cell in cells]
    extent = overlap.extent(field)
    tested = _difference(a, b, drawn)
    yield Difference(dataset, field, first, second, *tested, shared=extent.shared, left_out=extent.left_out)


def _over(results: Results, overlaps: Overlaps, field: str, first: str, second: str) -> Iterator[Difference]:
    cells: dict[tuple[str, str], CellValues] = {}
    shared = left_out = 0
    for dataset in results.datasets:
        found = overlaps.of(dataset, first, second)
        if found is None:
            continue
        overlap, there = found
        if all(cell.number(field).value is not None for cell in there):
            cells[first, dataset], cells[second, dataset] = there
            shared += overlap.extent(field).shared
            left_out += overlap.extent(field).left_out
    both = tuple(dataset for model, dataset in cells if model == first)
    met = replace(results, cells=cells)
    a, b = (met.mean_number(model, field, both).value for model in (first, second))
    if len(both) < 2 or a is None or b is None:
        return
    tested = _difference(a, b, [met.mean_drawn(model, field, both) for model in (first, second)])
    yield Difference("", field, first, second, *tested, datasets=both, shared=shared, left_out=left_out)


def _difference(
    a: float, b: float, drawn: Sequence[NDArray[np.float64] | None]
) -> tuple[float, Interval | None, float | None]:
    """a - b with its interval and p, where replicates of both were drawn."""
    if drawn[0] is None or drawn[1] is None:
        return a - b, None, None
    found = paired_difference(a, b, drawn[0], drawn[1])
    return found.difference, found.interval, found.p


def _delong(dataset: str, cells: Sequence[CellRows]) -> Iterator[AucPair]:
    """Every two models for every class that all of them have, on the images that all of them read."""
    cells = [cell for cell in cells if cell.scored]
    if len(cells) < 2:
        return
    places = [{cell.case_ids[case]: image for image, case in enumerate(cell.case_of)} for cell in cells]
    common = [case for case in places[0] if all(case in place for place in places[1:])]
    index = [np.array([place[case] for case in common], np.intp) for place in places]
    for name in cells[0].findings:
        if not all(name in cell.findings for cell in cells) or not common:
            continue
        column = [cell.findings.index(name) for cell in cells]
        label = cells[0].labels[index[0], column[0]]
        known = label >= 0
        truth = label[known]
        if min(int((truth == 1).sum()), int((truth == 0).sum())) < 2:
            continue
        scores = [cell.logits[i, c][known] for cell, i, c in zip(cells, index, column, strict=True)]
        yield from _corrected(
            [
                AucPair(dataset, name, cells[i].model, cells[j].model, len(truth), d.difference, d.interval, d.p)
                for (i, j), d in auc_differences(scores, truth).items()
            ]
        )


_Tested = TypeVar("_Tested", Difference, AucPair)


def _corrected(found: Sequence[_Tested]) -> list[_Tested]:
    """The same with Holm's p values, all of them one family."""
    return [replace(item, p_holm=p) for item, p in zip(found, holm([item.p for item in found]), strict=True)]
