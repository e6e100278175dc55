"""Differences between two models on the same patients, tested and corrected for their number.

Both models are scored on the (image, finding) pairs, or labels, that both have. The families of Holm's correction: all
comparisons of one number on one dataset (or of its mean over datasets); and, exploratory, those of the AUC of all
classes of a dataset.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any, Final

import numpy as np

from ....metrics_gpu.statistics.multiple_tests import corrected
from ...host.machine_record import usable_cores
from ..load_rows import CellRows
from ..numbers.cell_values import CellValues, cell_values
from ..numbers.fields import RECOGNITION
from ..numbers.run_numbers import Results
from ..selected_pairs import ScoredPairs
from .align import SharedRows, shared_rows
from .difference import Difference, averaged, subtract

COMPARED: Final = ("pointing", "dice_fixed", "iou_fixed", "dice_best", "dice_cross_fitted", "auc")
"""The numbers that are compared."""

_OF_BOXES: Final = ("dice_fixed", "iou_fixed")  # compared where a model has no best threshold


@dataclass(frozen=True)
class Extent:
    """How many pairs or labels both models have, and how many of both were left out.

    changed: those that both have, but with different regions, or labels; each counts twice in `left_out`. apart: those
    of images that both have under one name, but not as the same image.
    """

    shared: int
    left_out: int
    changed: int = 0
    apart: int = 0

    @property
    def alone(self) -> int:
        """How many were left out because only one of the models has them."""
        return self.left_out - 2 * self.changed - self.apart

    @property
    def nothing(self) -> bool:
        """Whether there are pairs or labels, but none that both have."""
        return not self.shared and self.left_out > 0


@dataclass(frozen=True)
class Overlap:
    """What two models share on a dataset. pairs: with a region, that count; labels: known ones, of scored images.
    files, patients: how many images both have under one name with other files, or other patients."""

    dataset: str
    first: str
    second: str
    pairs: Extent
    labels: Extent
    files: int = 0
    patients: int = 0

    def extent(self, field: str) -> Extent:
        """The extent for a number of `numbers.FIELDS`."""
        return self.labels if field in RECOGNITION else self.pairs


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
        parts = [(cell.rows, cell.scored) for cell in cells]
        if bases[0] == bases[1] and _in_one_order(parts[0][0], parts[1][0]):
            known = cells[0].count("auc")
            return Overlap(dataset, first, second, Extent(cells[0].n, 0), Extent(known, 0)), cells
        shared = shared_rows(parts)
        pairs, changed = len(shared.image_of), len(shared.other_regions)
        images = list(zip(parts, shared.apart, strict=True))
        other = sum(int(np.isin(scored.image_of, places).sum()) for (_, scored), places in images)
        counted = Extent(pairs, sum(len(scored.counts) - pairs for _, scored in parts), changed, other)
        both = all(cell.scored for cell, _ in parts)
        known = int((shared.labels >= 0).sum()) if both else 0
        lost = sum(int((cell.labels >= 0).sum()) - known for cell, _ in parts) if both else 0
        other = sum(int((cell.labels[places] >= 0).sum()) for (cell, _), places in images) if both else 0
        labels = Extent(known, lost, _opposed(parts, shared) if both else 0, other)
        one, two = (self._on(key, shared, place) for place, key in enumerate(keys))
        files, patients = (len(found) for found in (shared.conflicts.files, shared.conflicts.patients))
        return Overlap(dataset, first, second, counted, labels, files, patients), (one, two)

    def _on(self, key: tuple[str, str], shared: SharedRows, place: int) -> CellValues:
        """The numbers of a cell on the shared rows."""
        results = self._results
        whole = results.cells[key]
        rows, scored = whole.rows, whole.scored
        arrays = (shared.images[place], shared.classes[place], shared.pairs[place], shared.labels)
        cut = (*key, shared.patients, *(array.tobytes() for array in arrays))
        if cut not in self._cut:
            model, dataset = key
            if shared.is_whole(place, rows, scored):
                self._cut[cut] = whole
            else:
                values = cell_values(
                    *shared.cut(place, rows, scored),
                    results.patients[dataset],
                    results.choices,
                    results.levels.get(model),
                    whole.reader,
                )
                # Nobody reads the rows that were cut, and one cut has up to 800 bytes for each pair.
                self._cut[cut] = replace(values, rows=rows, scored=scored)
        return self._cut[cut]


@dataclass(frozen=True, kw_only=True)
class ModelDifference(Difference):
    """The model `first` minus the model `second`; on one dataset, or (empty) in the mean over `datasets`.

    left_out: pairs, or labels, that only one of the models has, or that have another region, or label, in each.
    protocol: that of both.
    """

    dataset: str
    first: str
    second: str
    datasets: tuple[str, ...] = ()
    left_out: int = 0
    protocol: str = ""


@dataclass(frozen=True)
class Differences:
    """All comparisons of a report, and what every two models share on each dataset.

    All are of one protocol. numbers: means over classes. classes: the AUC of each class.
    """

    numbers: tuple[ModelDifference, ...]
    classes: tuple[ModelDifference, ...]
    overlaps: tuple[Overlap, ...] = ()

    def of(self, dataset: str, field: str, first: str, second: str) -> ModelDifference | None:
        """The comparison of a number, None if one of the two models does not have it."""
        wanted = (dataset, field, first, second)
        return next((d for d in self.numbers if (d.dataset, d.field, d.first, d.second) == wanted), None)


def find_differences(results: Results) -> Differences:
    """Every two models (no baselines) on each dataset and in the mean over the datasets that both have."""
    models = [model for model in results.models if any(cell.competes for cell in results.row(model))]
    if len(models) < 2:
        return Differences((), ())
    numbers: list[ModelDifference] = []
    classes: list[ModelDifference] = []
    overlaps, fields = Overlaps(results), _compared(results)
    for dataset in results.datasets:
        here = [cell.model for cell in results.column(dataset) if cell.competes]
        for first, second in combinations(here, 2):
            numbers += _on(overlaps, fields, dataset, first, second)
            classes += _of_classes(overlaps, dataset, first, second)
    if len(results.datasets) > 1:
        for first, second in combinations(models, 2):
            numbers += _over(results, overlaps, first, second)
    numbers = corrected(numbers, [(item.dataset, item.field) for item in numbers])
    classes = corrected(classes, [item.dataset for item in classes])
    places = {name: place for place, name in enumerate(dict.fromkeys(item.name for item in classes))}
    classes.sort(key=lambda item: (results.datasets.index(item.dataset), places[item.name]))
    order = list(product((*results.datasets, ""), (*COMPARED, *results.choices.own)))
    numbers.sort(key=lambda item: order.index((item.dataset, item.field)))
    return Differences(tuple(numbers), tuple(classes), overlaps.all)


def _compared(results: Results) -> tuple[str, ...]:
    """Those of `COMPARED` and of the user that are compared: at 0.5 where predicted boxes are among the models."""
    boxed = any(cell.weights == "boxes" for cell in results.finished)
    own = (name for name in results.choices.own if boxed or name.part != "fixed")
    return (*(field for field in COMPARED if boxed or field not in _OF_BOXES), *own)


def _on(overlaps: Overlaps, fields: Sequence[str], dataset: str, first: str, second: str) -> Iterator[ModelDifference]:
    found = overlaps.of(dataset, first, second)
    if found is None:
        return
    overlap, (one, two) = found
    for field in fields:
        item = subtract(one, two, field)
        if item is not None:
            left_out = overlap.extent(field).left_out
            told = {"left_out": left_out, "protocol": one.protocol}
            yield _named(item, dataset=dataset, first=first, second=second, **told)


def _over(results: Results, overlaps: Overlaps, first: str, second: str) -> Iterator[ModelDifference]:
    """Differences of the mean over the datasets on which both have the number."""
    met = {dataset: found for dataset in results.datasets if (found := overlaps.of(dataset, first, second))}
    for field in _compared(results):
        each = {name: item for name, (_, cells) in met.items() if (item := subtract(*cells, field)) is not None}
        if len(each) < 2:
            continue
        weights = [results.weight(met[name][1][0], field) for name in each]
        extents = [met[name][0].extent(field) for name in each]
        item = averaged([*each.values()], weights, 0.95, n=sum(extent.shared for extent in extents))
        left_out = sum(extent.left_out for extent in extents)
        told = {"datasets": tuple(each), "left_out": left_out, "protocol": met[next(iter(each))][1][0].protocol}
        yield _named(item, dataset="", first=first, second=second, **told)


def _of_classes(overlaps: Overlaps, dataset: str, first: str, second: str) -> Iterator[ModelDifference]:
    """AUC of two models for every class, on the labels that both have."""
    found = overlaps.of(dataset, first, second)
    if found is None:
        return
    overlap, (one, two) = found
    told = {"left_out": overlap.labels.left_out, "protocol": one.protocol}
    for name in one.recognition.names:
        item = subtract(one, two, "auc", name)
        if item is not None and item.parts is not None:
            yield _named(item, dataset=dataset, first=first, second=second, **told)


def _in_one_order(one: CellRows, two: CellRows) -> bool:
    """Whether cells have the same images and findings in one order, so that their sums round alike."""
    same = (one.case_ids, one.findings) == (two.case_ids, two.findings)
    return same and np.array_equal(one.case_of, two.case_of)


def _opposed(parts: Sequence[tuple[CellRows, ScoredPairs]], shared: SharedRows) -> int:
    """Labels that both cells know, one as 1 and one as 0."""
    known = [
        cell.labels[np.ix_(images, classes)] >= 0
        for (cell, _), images, classes in zip(parts, shared.images, shared.classes, strict=True)
    ]
    return int((shared.other_labels & known[0] & known[1]).sum())


def _named(found: Difference, **fields: Any) -> ModelDifference:
    return ModelDifference(**vars(found), **fields)
