"""Bootstrap replicates of a cell and the intervals of every number it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.replicates import Search, searched_replicates
from ....metrics_gpu.recognition.replicates import recognition_replicates
from ....metrics_gpu.statistics.bootstrap import Interval, Replicates, percentile_intervals
from ..load import CellRows
from ..pairs import ScoredPairs
from ..patients import Patients

__all__ = ["Recognised", "Spread", "spread_of"]

Recognised = tuple[NDArray[np.floating], NDArray[np.integer], Sequence[str]]
"""logits [N, C], labels [N, C] and the names of C classes."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Replicates by source (`grounding`, `cross_fitted`, `recognition`, `pair`) and percentile intervals.

    Best thresholds are chosen anew in each replicate, those of `cross_fitted` on the other half of the drawn patients.
    """

    replicates: Mapping[str, Replicates]
    intervals: Mapping[tuple[str, str, str], Interval | None]

    def interval(self, source: str, field: str, name: str) -> Interval | None:
        """Interval of a field for a class, `macro` or `micro`; None where no replicate defines it."""
        return self.intervals.get((source, field, name))

    def drawn(self, source: str, field: str, name: str) -> NDArray[np.float64] | None:
        """float64 [B]: replicates of a field for a class, `macro` or `micro`; None where there are none."""
        found = self.replicates.get(source)
        if found is None or (name not in ("macro", "micro") and name not in found.names):
            return None
        if field not in {"macro": found.macro, "micro": found.micro}.get(name, found.classes):
            return None
        return found.of(field, name)


def spread_of(
    cell: CellRows,
    pairs: ScoredPairs,
    patients: Patients,
    searches: Mapping[str, Search],
    recognised: Mapping[str, Recognised],
) -> Spread | None:
    """Replicates of all numbers of a cell; None if nothing is to be drawn.

    searches: source -> how its best thresholds are sought.
    recognised: source -> what is recognised.
    """
    draws = patients.draws
    if draws is None:
        return None
    of_image = patients.of_images(cell)
    of_pair = of_image[pairs.image_of]
    replicates: dict[str, Replicates] = {}
    if len(pairs.counts):
        found = searched_replicates(
            pairs.counts,
            pairs.class_of,
            cell.findings,
            draws,
            of_pair,
            list(searches.values()),
            half_of=patients.half[of_pair],
            hits=pairs.hits,
            pixels=pairs.pixels,
        )
        replicates.update(zip(searches, found, strict=True))
    for source, (logits, labels, names) in recognised.items():
        if names and len(logits):
            replicates[source] = recognition_replicates(logits, labels, names, draws, of_image)
    return Spread(replicates, dict(_intervals(replicates)))


def _intervals(replicates: Mapping[str, Replicates]) -> Iterator[tuple[tuple[str, str, str], Interval | None]]:
    for source, found in replicates.items():
        for field, values in found.classes.items():
            for name, interval in zip(found.names, percentile_intervals(values), strict=True):
                yield (source, field, name), interval
        for whole, fields in (("macro", found.macro), ("micro", found.micro)):
            columns = np.column_stack(list(fields.values())) if fields else np.zeros((0, 0))
            for field, interval in zip(fields, percentile_intervals(columns), strict=True):
                yield (source, field, whole), interval
