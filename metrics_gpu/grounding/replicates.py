"""Bootstrap replicates of every number of `grounding.grounding`, as matrix products (docs/metrics.md §8.2).

Per class one product of the count matrix with sums per patient gives the mean curves of all replicates; the best
threshold is then either chosen anew in each replicate (`rechosen`: the interval covers the choice too) or kept as the
estimate's (`fixed`: the interval of the score at that threshold). Means over classes leave out, per replicate, the
classes of which no pair was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, Replicates
from ..sweep.counts import Counts
from ..sweep.thresholds import LEVELS, level
from .curves import pointing_hits
from .options import GroundingOptions
from .scores import check_pairs, with_floor
from .search import FIXED, at_level, best_levels, macro_curve

__all__ = ["FIELDS", "GroundingReplicates", "Search", "Tau", "grounding_replicates", "searched_replicates"]

Float = NDArray[np.float64]
Tau = Literal["rechosen", "fixed"]

FIELDS: Final = (
    "pointing",
    "dice_fixed",
    "iou_fixed",
    "dice_best",
    "iou_best",
    "delta_dice",
    "floor_dice",
    "floor_iou",
    "chance",
)
_PLAIN: Final = 5  # columns of the sums ahead of the curves: pointing, floors, and the per-image bests


@dataclass(frozen=True, eq=False)
class GroundingReplicates(Replicates):
    """Replicates of one (model, dataset), NaN where a class has no drawn pair.

    names: the classes. tau: whether best thresholds were `rechosen` or `fixed`; label: `cross_fitted` or `in_sample`.
    classes: field -> float64 [B, C]; macro, micro: field -> float64 [B]. `delta_dice` is in percentage points.
    """

    tau: Tau
    label: str


@dataclass(frozen=True, eq=False)
class _Sums:
    """Drawn sums of some pairs of a class: n [B], plain [B, 5], dice [B, 101], iou [B, 101]."""

    n: Float
    plain: Float
    dice: Float
    iou: Float

    @property
    def curves(self) -> tuple[Float, Float]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.dice / self.n[:, None], self.iou / self.n[:, None]


@dataclass(frozen=True)
class Search:
    """One way to seek best thresholds: its options, and for `per_model` the levels of Dice and IoU."""

    options: GroundingOptions
    levels: tuple[int, int] | None = None


def grounding_replicates(
    counts: Counts,
    class_of: NDArray[np.integer],
    names: Sequence[str],
    draws: Draws,
    patient_of: NDArray[np.intp],
    options: GroundingOptions | None = None,
    *,
    tau: Tau = "rechosen",
    half_of: NDArray[np.integer] | None = None,
    levels: tuple[int, int] | None = None,
    hits: Float | None = None,
    pixels: int | None = None,
) -> GroundingReplicates:
    """Replicates of `grounding.grounding(counts, class_of, names, options, ...)`, whose arguments they share.

    draws: of the patients of the dataset. patient_of: integers [P], the patient of each pair.
    `per_model` levels are always kept, since they come from several datasets; cross_fit keeps the halves.
    Raises ValueError as `grounding.grounding`, and for another `tau` or a patient that was not drawn from.
    """
    options = options or GroundingOptions()
    check_pairs(len(counts), class_of, len(names), options, half_of, levels)
    searches = [Search(options, levels)]
    return searched_replicates(
        counts, class_of, names, draws, patient_of, searches, tau=tau, half_of=half_of, hits=hits, pixels=pixels
    )[0]


def searched_replicates(
    counts: Counts,
    class_of: NDArray[np.integer],
    names: Sequence[str],
    draws: Draws,
    patient_of: NDArray[np.intp],
    searches: Sequence[Search],
    *,
    tau: Tau = "rechosen",
    half_of: NDArray[np.integer] | None = None,
    hits: Float | None = None,
    pixels: int | None = None,
) -> list[GroundingReplicates]:
    """`grounding_replicates` for several searches, for little more than the price of one: the drawn sums are shared.

    The searches differ in `unit` and levels only. Raises ValueError as `grounding_replicates`, and if they differ more.
    """
    if tau not in get_args(Tau):
        raise ValueError(f"tau is one of {', '.join(get_args(Tau))}, got {tau!r}")
    first = searches[0].options
    for search in searches:
        if replace(search.options, unit=first.unit) != first:
            raise ValueError("searches that share sums may differ in their unit only")
        halves = half_of if search.options.unit == "cross_fit" else None
        class_of = check_pairs(len(counts), class_of, len(names), search.options, halves, search.levels)
    patient_of = draws.check(patient_of, len(counts))
    dice, iou = with_floor(counts, pixels)
    hits = pointing_hits(counts, first.ties) if hits is None else np.asarray(hits, np.float64)
    if hits.shape != (len(counts),):
        raise ValueError(f"hits must have shape {(len(counts),)}, got {hits.shape}")
    table = np.column_stack(
        [np.ones(len(counts)), hits, dice[:, LEVELS], iou[:, LEVELS], *_each_best(dice, iou, first)]
    )
    table = np.column_stack([table, dice[:, :LEVELS], iou[:, :LEVELS]])
    halves = np.zeros(len(counts), np.int8) if half_of is None else np.asarray(half_of)

    def sums(drawn: Draws) -> list[list[_Sums]]:
        members = [[(class_of == c) & (halves == half) for half in (0, 1)] for c in range(len(names))]
        return [[_sums(drawn, table, patient_of, chosen) for chosen in both] for both in members]

    parts = sums(draws)
    # A draw of everybody once is the estimate itself: the same code finds the thresholds that `fixed` keeps.
    estimate = parts if tau == "rechosen" else sums(Draws(np.ones((1, draws.patients), np.uint16), draws.seed))
    wholes = [_both(one, other) for one, other in parts]
    fits = wholes if tau == "rechosen" else [_both(one, other) for one, other in estimate]
    return [
        _replicates(names, parts, wholes, _fit(estimate, fits, search.options, search.levels), search.options, tau)
        for search in searches
    ]


def _replicates(
    names: Sequence[str],
    parts: list[list[_Sums]],
    wholes: list[_Sums],
    fitted: list[list[Levels]],
    options: GroundingOptions,
    tau: Tau,
) -> GroundingReplicates:
    columns: dict[str, list[Float]] = {field: [] for field in FIELDS}
    for (first, second), whole, found in zip(parts, wholes, fitted, strict=True):
        n, plain = whole.n, whole.plain
        if options.unit == "per_image":
            dice_best, iou_best = plain[:, 3], plain[:, 4]
        else:
            dice_best = at_level(first.dice, found[0][0]) + at_level(second.dice, found[1][0])
            iou_best = at_level(first.iou, found[0][1]) + at_level(second.iou, found[1][1])
        with np.errstate(invalid="ignore", divide="ignore"):
            values = {
                "pointing": plain[:, 0] / n,
                "dice_fixed": whole.dice[:, FIXED] / n,
                "iou_fixed": whole.iou[:, FIXED] / n,
                "dice_best": dice_best / n,
                "iou_best": iou_best / n,
                "delta_dice": 100.0 * (dice_best / n - whole.dice[:, FIXED] / n),
                "floor_dice": plain[:, 1] / n,
                "floor_iou": plain[:, 2] / n,
                "chance": plain[:, 2] / n,
            }
        for field, column in values.items():
            columns[field].append(column)
    classes = {field: np.column_stack(column) for field, column in columns.items()}
    weight = np.column_stack([whole.n for whole in wholes])
    macro = {field: macro_curve(column) for field, column in columns.items()}
    with np.errstate(invalid="ignore", divide="ignore"):
        micro = {f: np.nansum(value * weight, axis=1) / weight.sum(axis=1) for f, value in classes.items()}
    return GroundingReplicates(tuple(names), classes, macro, micro, tau, options.label)


def _both(one: _Sums, other: _Sums) -> _Sums:
    return _Sums(one.n + other.n, one.plain + other.plain, one.dice + other.dice, one.iou + other.iou)


def _each_best(dice: Float, iou: Float, options: GroundingOptions) -> tuple[Float, Float]:
    """Dice and IoU of each pair at its own best threshold."""
    first = level(options.tau_from)
    if len(dice) == 0:
        return np.zeros(0), np.zeros(0)
    k = first + np.argmax(dice[:, first:LEVELS], axis=1)
    own = iou[:, first:LEVELS].max(axis=1) if options.iou_at == "independent" else at_level(iou, k)
    return at_level(dice, k), own


def _sums(draws: Draws, table: Float, patient_of: NDArray[np.intp], chosen: NDArray[np.bool_]) -> _Sums:
    pairs = np.flatnonzero(chosen)
    sums = draws.sums(patient_of[pairs], table[pairs])
    curves = sums[:, 1 + _PLAIN :]
    return _Sums(sums[:, 0], sums[:, 1 : 1 + _PLAIN], curves[:, :LEVELS], curves[:, LEVELS:])


Levels = tuple[NDArray[np.intp] | int, NDArray[np.intp] | int]


def _fit(
    parts: list[list[_Sums]], sums: list[_Sums], options: GroundingOptions, levels: tuple[int, int] | None
) -> list[list[Levels]]:
    """For each class and half the levels of Dice and IoU to read, one per replicate of `parts` or one for all."""
    if levels is not None:
        return [[levels, levels] for _ in parts]
    if options.unit == "cross_fit":
        found = []
        for first, second in parts:
            one, other = best_levels(*second.curves, options), best_levels(*first.curves, options)
            found.append([_one_or_all(one), _one_or_all(other)])
        return found
    wholes = [both.curves for both in sums]
    if options.unit == "per_dataset" and wholes:
        shared = _one_or_all(
            best_levels(macro_curve([dice for dice, _ in wholes]), macro_curve([iou for _, iou in wholes]), options)
        )
        return [[shared, shared] for _ in parts]
    each = [_one_or_all(best_levels(dice, iou, options)) for dice, iou in wholes]
    return [[found, found] for found in each]


def _one_or_all(found: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Levels:
    """Levels of a single replicate hold for every replicate."""
    return (int(found[0][0]), int(found[1][0])) if len(found[0]) == 1 else found
