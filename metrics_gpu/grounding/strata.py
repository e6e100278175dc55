"""Grounding by size of the region (docs/metrics.md §10)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .pairs import Pairs
from .protocols import GroundingOptions
from .scores import Grounding, grounding

STRATA: Final = ("tiny", "small", "medium", "large")
EDGES: Final = (0.005, 0.02, 0.08)
"""Region fractions at which the next stratum of `STRATA` begins. A cell of a 14 x 14 grid is 0.51 % of the image."""
TERTILES: Final = ("lower third", "middle third", "upper third")


@dataclass(frozen=True, eq=False)
class Strata:
    """index: intp [P], the stratum of each pair. mean_fraction: of the regions of each stratum, None without a pair.
    grounding: of the strata, each over all classes together and at its best threshold, with replicates for draws."""

    index: NDArray[np.intp]
    mean_fraction: tuple[float | None, ...]
    grounding: Grounding

    def above_chance(self, name: str) -> NDArray[np.float64]:
        """float64 [1 + B]: pointing minus chance of a stratum, since chance grows with the region; NaN without a
        pair."""
        place = self.grounding.names.index(name)
        above: NDArray[np.float64] = self.grounding.rows["pointing"][place] - self.grounding.rows["chance"][place]
        return above


def strata_of(
    region: NDArray[np.integer], pixels: int, *, tertiles: bool = False
) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Stratum of each pair, intp [P], and the strata's names.

    region: integers [P], pixels of each region of `pixels`. tertiles: thirds of these pairs instead of fixed edges;
    equal regions share a stratum, so that thirds may differ in number.
    Raises ValueError for a region without pixels or larger than the grid.
    """
    size = np.asarray(region)
    if len(size) and not (size.min() > 0 and size.max() <= pixels):
        raise ValueError(f"regions must have 1..{pixels} pixels, got {size.min()}..{size.max()}")
    if tertiles:
        ordered = np.sort(size)
        below = np.searchsorted(ordered, size, side="left")
        return np.minimum(3 * below // max(len(size), 1), 2).astype(np.intp), TERTILES
    return np.digitize(size / pixels, EDGES).astype(np.intp), STRATA


def size_strata(
    pairs: Pairs, pixels: int, options: GroundingOptions | None = None, *, tertiles: bool = False
) -> Strata:
    """Grounding of one (model, dataset) per size stratum; a stratum may have no pair.

    pairs: of all classes; they are divided into strata. pixels: of the evaluation grid. Raises ValueError as
    `strata_of` and `grounding`, and for thresholds of a whole model (`per_model`).
    """
    index, names = strata_of(pairs.counts.region, pixels, tertiles=tertiles)
    result = grounding(replace(pairs, class_of=index, names=names, pixels=pixels), options)
    of_strata = [pairs.counts.region[index == number] for number in range(len(names))]
    fractions = tuple(float(regions.mean() / pixels) if len(regions) else None for regions in of_strata)
    return Strata(index, fractions, result)
