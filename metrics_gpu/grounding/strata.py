"""Grounding by size of the region (docs/metrics.md §10)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .pairs import Pairs
from .protocols import GroundingOptions
from .scores import Grounding, GroundingScores, grounding

STRATA: Final = ("tiny", "small", "medium", "large")
EDGES: Final = (0.005, 0.02, 0.08)
"""Region fractions at which the next stratum of `STRATA` begins. A cell of a 14 x 14 grid is 0.51 % of the image."""
TERTILES: Final = ("lower third", "middle third", "upper third")


@dataclass(frozen=True)
class Stratum:
    """One stratum: its scores over all classes together (at the best threshold of the stratum), the mean region
    fraction, and pointing minus chance, since chance grows with the region. None where it has no pair."""

    scores: GroundingScores
    mean_fraction: float | None
    above_chance: float | None


@dataclass(frozen=True, eq=False)
class Strata:
    """index: intp [P], the stratum of each pair. grounding: of the strata as classes, with replicates for draws."""

    index: NDArray[np.intp]
    strata: tuple[Stratum, ...]
    grounding: Grounding


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
    strata = []
    for number, scores in enumerate(result.classes):
        chosen = pairs.counts.region[index == number]
        fraction = float(chosen.mean() / pixels) if len(chosen) else None
        above = None if scores.pointing is None or scores.chance is None else scores.pointing - scores.chance
        strata.append(Stratum(scores, fraction, above))
    return Strata(index, tuple(strata), result)
