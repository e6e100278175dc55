"""Two models on one dataset, each scored on nothing but what both have: the ground of a difference between them."""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ..host.machine import usable_cores
from ..results.basis import common_places, image_names, pair_keys
from ..results.load import CellRows
from ..results.numbers.cell_values import CellValues, cell_values
from ..results.numbers.fields import GROUNDING
from ..results.numbers.run_numbers import Results
from ..results.pairs import ScoredPairs

__all__ = ["Extent", "Overlap", "Overlaps"]

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Extent:
    """How many pairs or labels both models have, and how many were left out because only one has them."""

    shared: int
    left_out: int

    @property
    def apart(self) -> bool:
        """Whether there is something, but nothing that both have."""
        return not self.shared and self.left_out > 0


@dataclass(frozen=True)
class Overlap:
    """What two models share on a dataset. pairs: with a region, that count; labels: known ones, of scored images."""

    dataset: str
    first: str
    second: str
    pairs: Extent
    labels: Extent

    def extent(self, field: str) -> Extent:
        """That of a number of `numbers.FIELDS`."""
        return self.pairs if field in GROUNDING else self.labels


@dataclass(frozen=True, eq=False)
class _Cut:
    """The rows of a cell that another cell has too: places in the cell, and labels, -1 where the two disagree."""

    images: Index
    classes: Index
    pairs: Index
    at: Index
    findings: tuple[str, ...]
    labels: NDArray[np.int8]


class Overlaps:
    """Overlaps of every two models (no baselines) on each dataset. What several comparisons need is computed once."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._cut: dict[Hashable, CellValues] = {}
        keys = [
            (dataset, first.model, second.model)
            for dataset in results.datasets
            for first, second in combinations([cell for cell in results.column(dataset) if cell.competes], 2)
        ]
        # As in `make_results`, the work leaves the interpreter to other threads.
        with ThreadPoolExecutor(usable_cores()) as pool:
            self._met = dict(zip(keys, pool.map(lambda key: self._meet(*key), keys), strict=True))

    @property
    def all(self) -> tuple[Overlap, ...]:
        """Dataset by dataset."""
        return tuple(overlap for overlap, _ in self._met.values())

    def of(self, dataset: str, first: str, second: str) -> tuple[Overlap, tuple[CellValues, CellValues]] | None:
        """What two models share, and the numbers of both on it; None where one of them has no finished cell.

        The best threshold of a whole model (`per_model`) stays the one of all its pairs.
        """
        return self._met.get((dataset, first, second))

    def _meet(self, dataset: str, first: str, second: str) -> tuple[Overlap, tuple[CellValues, CellValues]]:
        results, keys = self._results, ((first, dataset), (second, dataset))
        cells = (results.cells[keys[0]], results.cells[keys[1]])
        bases = [results.bases.get(key) for key in keys]
        if bases[0] == bases[1]:
            known = sum(item.n for item in cells[0].recognition.classes)
            return Overlap(dataset, first, second, Extent(cells[0].n, 0), Extent(known, 0)), cells
        rows, pairs = [results.rows[key] for key in keys], [results.pairs[key] for key in keys]
        one, two = _cut(rows[0], rows[1], pairs[0], pairs[1])
        shared = len(one.pairs)
        counted = Extent(shared, sum(len(scored.counts) - shared for scored in pairs))
        both = rows[0].scored and rows[1].scored
        known = int((one.labels >= 0).sum()) if both else 0
        labels = Extent(known, sum(int((cell.labels >= 0).sum()) - known for cell in rows) if both else 0)
        return Overlap(dataset, first, second, counted, labels), (self._on(keys[0], one), self._on(keys[1], two))

    def _on(self, key: tuple[str, str], cut: _Cut) -> CellValues:
        """The numbers of a cell on a part of its rows."""
        results = self._results
        rows, scored = results.rows[key], results.pairs[key]
        places = (cut.images.tobytes(), cut.classes.tobytes(), cut.pairs.tobytes(), cut.labels.tobytes())
        if key + places not in self._cut:
            model, dataset = key
            whole = results.cells[key]
            if _is_whole(rows, scored, cut):
                self._cut[key + places] = whole
            else:
                there = _cut_rows(rows, scored, cut)
                self._cut[key + places] = cell_values(
                    *there, results.patients[dataset], results.choices, results.levels.get(model), whole.reader
                )
        return self._cut[key + places]


def _cut(one: CellRows, two: CellRows, pairs_one: ScoredPairs, pairs_two: ScoredPairs) -> tuple[_Cut, _Cut]:
    images = common_places(image_names(one), image_names(two))
    classes = common_places(one.findings, two.findings)
    keys = [pair_keys(*side) for side in zip((pairs_one, pairs_two), images, classes, strict=True)]
    pairs = common_places(*keys)
    at = np.array([keys[0][place] for place in pairs[0]], np.intp).reshape(-1, 2)
    findings = tuple(one.findings[place] for place in classes[0])
    label_one, label_two = (cell.labels[np.ix_(i, c)] for cell, i, c in zip((one, two), images, classes, strict=True))
    labels = np.where(label_one == label_two, label_one, np.int8(-1))
    cuts = [_Cut(i, c, p, at, findings, labels) for i, c, p in zip(images, classes, pairs, strict=True)]
    return cuts[0], cuts[1]


def _is_whole(rows: CellRows, scored: ScoredPairs, cut: _Cut) -> bool:
    """Whether nothing is cut off, so that the numbers of the cell are those sought."""
    if cut.labels.shape != rows.labels.shape or len(cut.pairs) != len(scored.counts):
        return False
    return bool((cut.labels == rows.labels[np.ix_(cut.images, cut.classes)]).all())


def _cut_rows(rows: CellRows, scored: ScoredPairs, cut: _Cut) -> tuple[CellRows, ScoredPairs]:
    cases = rows.case_of[cut.images]
    counts = scored.counts.take(cut.pairs)
    image_of, class_of = cut.at[:, 0], cut.at[:, 1]
    there = replace(
        rows,
        cases=len(cases),
        missing=0,
        unreadable=0,
        findings=cut.findings,
        case_ids=tuple(rows.case_ids[case] for case in cases),
        patients=tuple(rows.patients[case] for case in cases),
        case_of=np.arange(len(cases)),
        labels=cut.labels,
        logits=rows.logits[np.ix_(cut.images, cut.classes)],
        negatives=rows.negatives[np.ix_(cut.images, cut.classes)],
        counts=counts,
        image_of=image_of,
        class_of=class_of,
        rescued=np.zeros(len(counts), np.bool_),  # not asked of a part
    )
    hits = None if scored.hits is None else scored.hits[cut.pairs]
    return there, replace(scored, counts=counts, image_of=image_of, class_of=class_of, hits=hits)
