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

_PLAIN: Final = 4  # columns of the sums ahead of the others: their number, pointing, and floors


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
    own: name -> further scores of each pair: float64 [P], which are averaged as pointing is, or [P, 101], at each
        threshold, of which the best is searched as that of Dice.
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

    @property
    def swept(self) -> tuple[str, ...]:
        """Those of `own` that have a score at each threshold."""
        return tuple(name for name, values in self.own.items() if values.ndim == 2)

    @property
    def plain(self) -> tuple[str, ...]:
        """The others of `own`."""
        return tuple(name for name, values in self.own.items() if values.ndim == 1)


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
    """Weighted sums of some pairs of a class, in 1 + B rows: n, hits, floors of Dice and IoU [R]; own [R, M], of
    `Pairs.plain`; bests [R, K] of Dice, IoU and `Pairs.swept`, of each pair at its own threshold; their curves, K of
    [R, 101]."""

    n: Float
    hits: Float
    floor_dice: Float
    floor_iou: Float
    own: Float
    bests: Float
    curves: Sequence[Float]


@dataclass(frozen=True, eq=False)
class ClassSums:
    """A class. members: its pairs, intp [P_c]. totals: their sums; pairs: what is summed, as if each pair were a row.
    fitted: its K cross-fitted scores, as `cross_fitted` gives them; None where no search needs them."""

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
    read = slice(FIXED, FIXED + 1) if pairs.masks else slice(None)
    dice, iou = with_floor(counts, pairs.pixels, read)
    hits = pointing_hits(counts, options.ties) if pairs.hits is None else pairs.hits
    curves = [dice[:, :-1], iou[:, :-1], *(exact_values(pairs.own[name][:, read]) for name in pairs.swept)]
    best = [curve[:, 0] for curve in curves]
    if not pairs.masks:  # each pair at its own best threshold
        best = [at_level(curve, k) for curve, k in zip(curves, best_levels(curves, options), strict=True)]
    own = [exact_values(pairs.own[name]) for name in pairs.plain]
    table = np.column_stack([np.ones(len(counts)), hits, dice[:, -1], iou[:, -1], *own, *best, *curves])
    person, weights = patient_of, draws.weights if crossed else None
    if crossed and pairs.draws is None:  # without draws one patient has all pairs, which no fold can divide
        person, weights = np.arange(len(counts)), np.ones((1, len(counts)), np.uint16)
    sums = []
    for c in range(len(pairs.names)):
        members = np.flatnonzero(class_of == c)
        fitted = None
        if weights is not None and pairs.fold_of is not None:
            of_class = [curve[members] for curve in curves]
            folds = np.asarray(pairs.fold_of)[:, members]
            parts = [
                cross_fitted(searched, folds, person[members], weights, options, keep=keep)
                for searched in (of_class[:2], *([curve] for curve in of_class[2:]))
            ]
            of_rows, of_pairs = (np.concatenate(scores) for scores in zip(*parts, strict=True))
            fitted = of_rows, of_pairs
        drawn_sums = draws.sums(patient_of[members], table[members])
        totals, each = (_split(rows, len(own), len(curves)) for rows in (drawn_sums, table[members]))
        sums.append(ClassSums(members, totals, each, fitted))
    return sums


def _split(sums: Float, own: int, kinds: int) -> Sums:
    first = _PLAIN + own
    curves = np.split(sums[:, first + kinds :], kinds, axis=1)
    shape = len(sums), LEVELS  # counts of masks have one column for all levels
    whole = [np.broadcast_to(curve, shape) for curve in curves]
    n, hits, floor_dice, floor_iou = sums[:, :_PLAIN].T
    return Sums(n, hits, floor_dice, floor_iou, sums[:, _PLAIN:first], sums[:, first : first + kinds], whole)
