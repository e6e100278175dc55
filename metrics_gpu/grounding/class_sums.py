"""Weighted sums over the pairs of each class, which every search shares: in the estimate and in each replicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import drawn_or_not
from ..sweep.thresholds import LEVELS, level
from .best_thresholds import FIXED, Fitted, at_level, cross_fitted
from .curves import pointing_hits
from .pairs import Float, Pairs, with_floor
from .protocols import GroundingOptions

__all__ = ["ClassSums", "Sums", "class_sums"]

_PLAIN: Final = 5  # columns of the sums ahead of the curves: pointing, floors, and the per-image bests


@dataclass(frozen=True, eq=False)
class Sums:
    """Weighted sums of some pairs of a class, in 1 + B rows: n [R], plain [R, 5], dice [R, 101], iou [R, 101]."""

    n: Float
    plain: Float
    dice: Float
    iou: Float

    @property
    def curves(self) -> tuple[Float, Float]:
        """Mean Dice and IoU at each threshold."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.dice / self.n[:, None], self.iou / self.n[:, None]


@dataclass(frozen=True, eq=False)
class ClassSums:
    """A class. own: its pairs, intp [P_c]. whole: their sums; pairs: what is summed, as if each pair were a row.
    fitted: its cross-fitted scores, None where no search needs them."""

    own: NDArray[np.intp]
    whole: Sums
    pairs: Sums
    fitted: Fitted | None


def class_sums(pairs: Pairs, options: GroundingOptions, crossed: bool, keep: bool) -> list[ClassSums]:
    """The sums of every class.

    crossed: with cross-fitted scores, for which pairs need folds; keep: their thresholds are those of the estimate in
    each replicate.
    """
    counts, class_of, crossed = pairs.counts, np.asarray(pairs.class_of), crossed and not pairs.masks
    draws, patient_of = drawn_or_not(pairs.draws, pairs.patient_of, len(counts))
    dice, iou = with_floor(counts, pairs.pixels, slice(FIXED, FIXED + 1) if pairs.masks else slice(None))
    hits = pointing_hits(counts, options.ties) if pairs.hits is None else np.asarray(pairs.hits, np.float64)
    best = (dice[:, 0], iou[:, 0]) if pairs.masks else _each_best(dice, iou, options)
    table = np.column_stack([np.ones(len(counts)), hits, dice[:, -1], iou[:, -1], *best, dice[:, :-1], iou[:, :-1]])
    person, weights = patient_of, draws.weights if crossed else None
    if crossed and pairs.draws is None:  # folds are not those of one patient who has all pairs
        person, weights = np.arange(len(counts)), np.ones((1, len(counts)), np.uint16)
    found = []
    for c in range(len(pairs.names)):
        own = np.flatnonzero(class_of == c)
        fitted = None
        if weights is not None and pairs.fold_of is not None:
            curves = dice[own, :LEVELS], iou[own, :LEVELS]
            folds = np.asarray(pairs.fold_of)[:, own]
            fitted = cross_fitted(curves, folds, person[own], weights, options, keep=keep)
        found.append(ClassSums(own, _split(draws.sums(patient_of[own], table[own])), _split(table[own]), fitted))
    return found


def _split(sums: Float) -> Sums:
    dice, iou = np.split(sums[:, 1 + _PLAIN :], 2, axis=1)
    shape = len(sums), LEVELS  # of masks, one column stands for all
    return Sums(sums[:, 0], sums[:, 1 : 1 + _PLAIN], np.broadcast_to(dice, shape), np.broadcast_to(iou, shape))


def _each_best(dice: Float, iou: Float, options: GroundingOptions) -> tuple[Float, Float]:
    """Dice and IoU of each pair at its own best threshold."""
    first = level(options.tau_from)
    if len(dice) == 0:
        return np.zeros(0), np.zeros(0)
    k = first + np.argmax(dice[:, first:LEVELS], axis=1)
    own = iou[:, first:LEVELS].max(axis=1) if options.iou_at == "independent" else at_level(iou, k)
    return at_level(dice, k), own
