"""The pairs that grounding scores, and the weighted sums over the pairs of each class that every search shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, drawn_or_not
from ..statistics.exact_sums import exact_values
from ..sweep.counts import Counts, dice_curves, iou_curves
from ..sweep.pointing import pointing_hits
from ..sweep.sweep_options import LEVELS
from .best_thresholds import FIXED, at_level, best_levels, cross_fitted
from .protocols import GroundingOptions

Float = NDArray[np.float64]

_PLAIN: Final = 5  # columns of the sums ahead of the curves: pointing, floors, and the per-image bests


@dataclass(frozen=True, eq=False)
class Pairs:
    """The P pairs of one (model, dataset) that count.

    class_of: integers [P], index into `names` of each pair's class; a class may have no pair.
    fold_of: integers [R, P], the fold of each pair in R repeats (`pair_folds`); `cross_fit` needs it.
    hits: float [P], pointing hits to use instead of the counts' own, as those within a tolerance
        (`tolerance.tolerant_hits`).
    pixels: of the evaluation grid, for the floor; needed only for counts whose first threshold does not mark all pixels
        (another normalisation or comparison than the default's).
    draws: of the patients of the dataset, for replicates; patient_of: integers [P], the patient of each pair.
    masks: the counts are of masks, equal at every threshold above 0: nothing is searched, and what the scores say
        of a best threshold is what they say of the fixed one.
    own: name -> float64 [P], further scores of each pair, which are averaged as pointing is.
    Raises ValueError if they do not fit together.
    """

    counts: Counts
    class_of: NDArray[np.integer]
    names: Sequence[str]
    fold_of: NDArray[np.integer] | None = None
    hits: Float | None = None
    pixels: int | None = None
    draws: Draws | None = None
    patient_of: NDArray[np.intp] | None = None
    masks: bool = False
    own: Mapping[str, Float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pairs, classes, class_of = len(self.counts), len(self.names), np.asarray(self.class_of)
        if class_of.shape != (pairs,):
            raise ValueError(f"class_of must have shape {(pairs,)}, got {class_of.shape}")
        if pairs and not (class_of.min() >= 0 and class_of.max() < classes):
            raise ValueError(f"class_of must lie in 0..{classes - 1}, got {class_of.min()}..{class_of.max()}")
        if self.fold_of is not None and (np.ndim(self.fold_of) != 2 or np.shape(self.fold_of)[1] != pairs):
            raise ValueError(f"fold_of must have shape [R, {pairs}], got {np.shape(self.fold_of)}")
        if self.hits is not None and np.shape(self.hits) != (pairs,):
            raise ValueError(f"hits must have shape {(pairs,)}, got {np.shape(self.hits)}")


def with_floor(counts: Counts, pixels: int | None = None, levels: slice = slice(None)) -> tuple[Float, Float]:
    """Dice and IoU of each pair at each threshold and, as last column, of the all-ones mask: two float64 [P, 102].

    levels: the thresholds to take. Raises ValueError if a pair has no region, or has more pixels than `pixels`.
    """
    dice, iou = dice_curves(counts, levels), iou_curves(counts, levels)
    size = counts.area[:, 0] if pixels is None else np.full(len(counts), pixels)
    if (size < np.maximum(counts.area[:, 0], counts.region)).any():
        raise ValueError(f"the evaluation grid has more pixels than {pixels}")
    if pixels is None and not counts.marks_every_pixel:
        raise ValueError("these counts do not mark every pixel at their first threshold: give the number of pixels")
    region = counts.region.astype(np.int64)
    floor_dice, floor_iou = 2.0 * region / (size + region), region / np.maximum(size, 1)
    return np.column_stack([dice, exact_values(floor_dice)]), np.column_stack([iou, exact_values(floor_iou)])


@dataclass(frozen=True, eq=False)
class Sums:
    """Weighted sums of some pairs of a class, in 1 + B rows: n [R], plain [R, 5], own [R, M], dice, iou [R, 101]."""

    n: Float
    plain: Float
    own: Float
    dice: Float
    iou: Float


@dataclass(frozen=True, eq=False)
class ClassSums:
    """A class. members: its pairs, intp [P_c]. totals: their sums; pairs: what is summed, as if each pair were a row.
    fitted: its cross-fitted scores, as `cross_fitted` gives them; None where no search needs them."""

    members: NDArray[np.intp]
    totals: Sums
    pairs: Sums
    fitted: tuple[Float, Float] | None


def class_sums(pairs: Pairs, options: GroundingOptions, crossed: bool, keep: bool) -> list[ClassSums]:
    """The sums of every class.

    crossed: with cross-fitted scores, for which pairs need folds; keep: each
    replicate keeps the thresholds of the estimate.
    """
    counts, class_of, crossed = pairs.counts, np.asarray(pairs.class_of), crossed and not pairs.masks
    draws, patient_of = drawn_or_not(pairs.draws, pairs.patient_of, len(counts))
    dice, iou = with_floor(counts, pairs.pixels, slice(FIXED, FIXED + 1) if pairs.masks else slice(None))
    hits = pointing_hits(counts, options.ties) if pairs.hits is None else pairs.hits
    best = dice[:, 0], iou[:, 0]
    if not pairs.masks:  # each pair at its own best threshold
        k, k_iou = best_levels(dice[:, :LEVELS], iou[:, :LEVELS], options)
        best = at_level(dice, k), at_level(iou, k_iou)
    own = [exact_values(values) for values in pairs.own.values()]
    plain = [np.ones(len(counts)), hits, dice[:, -1], iou[:, -1], *best]
    table = np.column_stack([*plain, *own, dice[:, :-1], iou[:, :-1]])
    person, weights = patient_of, draws.weights if crossed else None
    if crossed and pairs.draws is None:  # without draws one patient has all pairs, which no fold can divide
        person, weights = np.arange(len(counts)), np.ones((1, len(counts)), np.uint16)
    sums = []
    for c in range(len(pairs.names)):
        members = np.flatnonzero(class_of == c)
        fitted = None
        if weights is not None and pairs.fold_of is not None:
            curves = dice[members, :LEVELS], iou[members, :LEVELS]
            folds = np.asarray(pairs.fold_of)[:, members]
            fitted = cross_fitted(curves, folds, person[members], weights, options, keep=keep)
        drawn_sums = draws.sums(patient_of[members], table[members])
        sums.append(ClassSums(members, _split(drawn_sums, len(own)), _split(table[members], len(own)), fitted))
    return sums


def _split(sums: Float, own: int) -> Sums:
    first = 1 + _PLAIN + own
    dice, iou = np.split(sums[:, first:], 2, axis=1)
    shape = len(sums), LEVELS  # counts of masks have one column for all levels
    plain, extra = sums[:, 1 : 1 + _PLAIN], sums[:, 1 + _PLAIN : first]
    return Sums(sums[:, 0], plain, extra, np.broadcast_to(dice, shape), np.broadcast_to(iou, shape))
