"""Scores of stated zones and sides, and their means over classes (docs/words.md §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, drawn_or_not
from ..statistics.class_means import class_means

Float = NDArray[np.float64]
Int = NDArray[np.int64]

ZONE_SCORES: Final = (
    "laterality", "laterality_one_sided", "zone_precision", "zone_recall", "zone_f1", "zone_exact",
)  # fmt: skip

_ONE_SIDE: Final = (1, 2)


def zone_scores(stated: Int, true: Int, stated_sides: Int, true_sides: Int) -> dict[str, Float]:
    """`ZONE_SCORES` of P pairs, float64 [P], NaN where one is not defined.

    stated, true: sets of cells, a bit each. stated_sides, true_sides: 1 right, 2 left, 3 both; 0 none, or central ones,
    whose pairs have no laterality.
    """
    both, said, held = (np.bitwise_count(cells).astype(np.float64) for cells in (stated & true, stated, true))
    right = (stated_sides == true_sides).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "laterality": np.where(true_sides == 0, np.nan, right),
            "laterality_one_sided": np.where(np.isin(true_sides, _ONE_SIDE), right, np.nan),
            "zone_precision": both / said,
            "zone_recall": both / held,
            "zone_f1": 2 * both / (said + held),
            "zone_exact": (stated == true).astype(np.float64),
        }


def class_means_of(
    columns: Mapping[str, Float],
    class_of: NDArray[np.intp],
    classes: int,
    draws: Draws | None,
    patients: NDArray[np.intp],
) -> dict[str, tuple[Float, Float]]:
    """Name -> means over the pairs where the number is defined: of each class float64 [1 + B, C], and over the classes
    that have one [1 + B]; row 0 is the estimate. class_of, patients: intp [P]."""
    drawn, patient_of = drawn_or_not(draws, patients, len(class_of))
    means: dict[str, tuple[Float, Float]] = {}
    for name, values in columns.items():
        known = np.flatnonzero(~np.isnan(values))
        found = class_means(values[known, None], class_of[known], classes, drawn, patient_of[known])
        means[name] = found.classes[:, :, 0], found.macro[:, 0]
    return means


def side_table(stated_sides: Int, true_sides: Int) -> Int:
    """int64 [4, 4]: pairs by true and stated sides: right, left, both, none or central."""
    order = np.array([3, 0, 1, 2])
    return np.bincount(4 * order[true_sides] + order[stated_sides], minlength=16).reshape(4, 4)
