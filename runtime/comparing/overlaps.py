"""Two models on one dataset, both scored only on the pairs and labels that both have, before they are subtracted."""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations

from ..host.machine import usable_cores
from ..results.comparability import SharedRows, shared_rows
from ..results.numbers.cell_values import CellValues, cell_values
from ..results.numbers.fields import GROUNDING
from ..results.numbers.run_numbers import Results

__all__ = ["Extent", "Overlap", "Overlaps"]


@dataclass(frozen=True)
class Extent:
    """How many pairs or labels both models have, and how many were left out because only one has them."""

    shared: int
    left_out: int

    @property
    def apart(self) -> bool:
        """Whether there are pairs or labels, but none that both have."""
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
        """The extent for a number of `numbers.FIELDS`."""
        return self.pairs if field in GROUNDING else self.labels


class Overlaps:
    """Overlaps of every two models (no baselines) on each dataset. Shared results are computed once."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._cut: dict[Hashable, CellValues] = {}
        keys = [
            (dataset, first.model, second.model)
            for dataset in results.datasets
            for first, second in combinations([cell for cell in results.column(dataset) if cell.competes], 2)
        ]
        # As in `make_results`, the work releases the interpreter lock.
        with ThreadPoolExecutor(usable_cores()) as pool:
            self._met = dict(zip(keys, pool.map(lambda key: self._meet(*key), keys), strict=True))

    @property
    def all(self) -> tuple[Overlap, ...]:
        """All overlaps, ordered by dataset."""
        return tuple(overlap for overlap, _ in self._met.values())

    def of(self, dataset: str, first: str, second: str) -> tuple[Overlap, tuple[CellValues, CellValues]] | None:
        """What two models share, and the numbers of both on it; None if one of them has no finished cell.

        The best threshold of a whole model (`per_model`) remains that of all its pairs.
        """
        return self._met.get((dataset, first, second))

    def _meet(self, dataset: str, first: str, second: str) -> tuple[Overlap, tuple[CellValues, CellValues]]:
        results, keys = self._results, ((first, dataset), (second, dataset))
        cells = (results.cells[keys[0]], results.cells[keys[1]])
        bases = [results.bases.get(key) for key in keys]
        if bases[0] == bases[1]:
            known = sum(item.n for item in cells[0].recognition.classes)
            return Overlap(dataset, first, second, Extent(cells[0].n, 0), Extent(known, 0)), cells
        parts = [(results.rows[key], results.pairs[key]) for key in keys]
        shared = shared_rows(parts)
        pairs = len(shared.image_of)
        counted = Extent(pairs, sum(len(scored.counts) - pairs for _, scored in parts))
        both = all(cell.scored for cell, _ in parts)
        known = int((shared.labels >= 0).sum()) if both else 0
        labels = Extent(known, sum(int((cell.labels >= 0).sum()) - known for cell, _ in parts) if both else 0)
        one, two = (self._on(key, shared, place) for place, key in enumerate(keys))
        return Overlap(dataset, first, second, counted, labels), (one, two)

    def _on(self, key: tuple[str, str], shared: SharedRows, place: int) -> CellValues:
        """The numbers of a cell on the shared rows."""
        results = self._results
        rows, scored = results.rows[key], results.pairs[key]
        arrays = (shared.images[place], shared.classes[place], shared.pairs[place], shared.labels)
        cut = (*key, *(array.tobytes() for array in arrays))
        if cut not in self._cut:
            model, dataset = key
            whole = results.cells[key]
            if shared.is_whole(place, rows, scored):
                self._cut[cut] = whole
            else:
                self._cut[cut] = cell_values(
                    *shared.cut(place, rows, scored),
                    results.patients[dataset],
                    results.choices,
                    results.levels.get(model),
                    whole.reader,
                )
        return self._cut[cut]
