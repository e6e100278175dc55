"""Grounding metrics as pure functions of stored counts: pointing game, Dice, IoU, thresholds, floors.

Definitions: docs/metrics.md §4 (Dice, IoU, best threshold, floor), §5 (pointing game), §8 (means, bootstrap). Every
value is a fraction in [0, 1], only `delta_dice` is in percentage points. All searches but `cross_fit` choose the
threshold on the same pairs they are scored on, so the `best` values are in-sample and are reported with their floor,
the all-ones mask.

Every number is computed in rows: row 0 is the estimate, in which every patient counts once; the others are bootstrap
replicates, weighted by how often each patient was drawn. Per class one product of these weights with sums per
patient gives the mean curves of all rows. The best threshold is either chosen again in each row (`rechosen`: the
interval includes the choice) or taken from the estimate (`fixed`: the interval of the score at that threshold). Means
over classes leave out, per row, the classes without a pair in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..statistics.aggregate import macro_curve, mean_over_classes
from ..statistics.bootstrap import Replicates, drawn_or_not
from ..sweep.thresholds import LEVELS, level
from .curves import pointing_hits
from .grounding_options import GroundingOptions
from .pairs import Float, Pairs, Search, with_floor
from .search import FIXED, at_level, best_levels

__all__ = ["FIELDS", "Grounding", "GroundingScores", "Tau", "grounding", "groundings"]

Tau = Literal["rechosen", "fixed"]
Levels = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Levels of Dice and IoU, both intp [1 + B], or [1] for all rows."""

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
"""Numbers of `GroundingScores` that are means over pairs and have replicates."""

_PLAIN: Final = 5  # columns of the sums ahead of the curves: pointing, floors, and the per-image bests


@dataclass(frozen=True)
class GroundingScores:
    """Scores of one class, or a mean over classes; None where there is no pair.

    n, degenerate: number of pairs and how many of their maps are degenerate.
    pointing: hits / n. dice_fixed, iou_fixed: means over pairs at tau = 0.5.
    dice_best, iou_best: at the best threshold(s); best_tau, iou_tau: those, None where no single one exists.
    delta_dice: dice_best - dice_fixed in percentage points.
    floor_dice, floor_iou: of the all-ones mask. chance: expected pointing of a random pixel, the mean region fraction.
    """

    name: str
    n: int
    degenerate: int
    pointing: float | None = None
    dice_fixed: float | None = None
    iou_fixed: float | None = None
    dice_best: float | None = None
    iou_best: float | None = None
    best_tau: float | None = None
    iou_tau: float | None = None
    delta_dice: float | None = None
    floor_dice: float | None = None
    floor_iou: float | None = None
    chance: float | None = None


@dataclass(frozen=True)
class Grounding:
    """Grounding of one model on one dataset: per class, their unweighted mean over classes with n > 0 (`macro`, the
    dataset's value) and their mean weighted by pairs (`micro`).

    drawn: bootstrap replicates of `FIELDS`, NaN where no pair was drawn; None where the pairs have no draws.
    """

    options: GroundingOptions
    classes: tuple[GroundingScores, ...]
    macro: GroundingScores
    micro: GroundingScores
    drawn: Replicates | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Weighted sums of some pairs of a class, in 1 + B rows: n [R], plain [R, 5], dice [R, 101], iou [R, 101]."""

    n: Float
    plain: Float
    dice: Float
    iou: Float

    @property
    def curves(self) -> tuple[Float, Float]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.dice / self.n[:, None], self.iou / self.n[:, None]


@dataclass(frozen=True, eq=False)
class _Class:
    """Sums of a class, of all its pairs and of those in each half of the patients; no halves where not needed."""

    whole: _Sums
    halves: tuple[_Sums, ...]


def grounding(
    pairs: Pairs,
    options: GroundingOptions | None = None,
    *,
    levels: tuple[int, int] | None = None,
    tau: Tau = "rechosen",
) -> Grounding:
    """Scores of one (model, dataset) from the counts of its pairs, and their replicates where the pairs have draws.

    levels: for `per_model` only: levels of Dice and IoU, from `model_levels` over all datasets; replicates keep them,
    as they keep the halves of `cross_fit`. Raises ValueError if an argument does not fit, one that `options.unit` needs
    is missing, a patient was not drawn from, or a pair has no region (such pairs are not counted, docs/metrics.md §6).
    """
    return groundings(pairs, [Search(options or GroundingOptions(), levels)], tau)[0]


def groundings(pairs: Pairs, searches: Sequence[Search], tau: Tau = "rechosen") -> list[Grounding]:
    """`grounding` for several searches, at little more than the cost of one: the sums are shared.

    The searches may differ only in `unit` and levels. Raises ValueError as `grounding`, and for other differences.
    """
    if tau not in get_args(Tau):
        raise ValueError(f"tau is one of {', '.join(get_args(Tau))}, got {tau!r}")
    first = searches[0].options
    if any(replace(search.options, unit=first.unit) != first for search in searches):
        raise ValueError("searches that share sums may differ in their unit only")
    halved = any(search.options.unit == "cross_fit" for search in searches)
    if halved and pairs.half_of is None:
        raise ValueError("cross_fit needs half_of")
    classes = _sums(pairs, first, halved)
    return [_scored(pairs, classes, search, tau) for search in searches]


def _sums(pairs: Pairs, options: GroundingOptions, halved: bool) -> list[_Class]:
    counts, class_of = pairs.counts, np.asarray(pairs.class_of)
    draws, patient_of = drawn_or_not(pairs.draws, pairs.patient_of, len(counts))
    dice, iou = with_floor(counts, pairs.pixels)
    hits = pointing_hits(counts, options.ties) if pairs.hits is None else np.asarray(pairs.hits, np.float64)
    plain = [np.ones(len(counts)), hits, dice[:, LEVELS], iou[:, LEVELS], *_each_best(dice, iou, options)]
    table = np.column_stack([*plain, dice[:, :LEVELS], iou[:, :LEVELS]])

    def drawn(chosen: NDArray[np.bool_]) -> Float:
        members = np.flatnonzero(chosen)
        return draws.sums(patient_of[members], table[members])

    classes = []
    for c in range(len(pairs.names)):
        own = class_of == c
        if not halved:
            classes.append(_Class(_split(drawn(own)), ()))
            continue
        halves = [drawn(own & (np.asarray(pairs.half_of) == half)) for half in (0, 1)]
        whole = halves[0] + halves[1]
        whole[0] = table[own].sum(axis=0)  # the estimate is the same to the last bit with and without halves
        classes.append(_Class(_split(whole), tuple(map(_split, halves))))
    return classes


def _split(sums: Float) -> _Sums:
    curves = sums[:, 1 + _PLAIN :]
    return _Sums(sums[:, 0], sums[:, 1 : 1 + _PLAIN], curves[:, :LEVELS], curves[:, LEVELS:])


def _each_best(dice: Float, iou: Float, options: GroundingOptions) -> tuple[Float, Float]:
    """Dice and IoU of each pair at its own best threshold."""
    first = level(options.tau_from)
    if len(dice) == 0:
        return np.zeros(0), np.zeros(0)
    k = first + np.argmax(dice[:, first:LEVELS], axis=1)
    own = iou[:, first:LEVELS].max(axis=1) if options.iou_at == "independent" else at_level(iou, k)
    return at_level(dice, k), own


def _scored(pairs: Pairs, classes: Sequence[_Class], search: Search, tau: Tau) -> Grounding:
    unit, found = search.options.unit, _levels(classes, search)
    if tau == "fixed":
        found = [[(k[:1], k_iou[:1]) for k, k_iou in levels] for levels in found]
    each = [_values(one, levels, unit) for one, levels in zip(classes, found, strict=True)]
    if each:
        weights = np.column_stack([one.whole.n for one in classes])
        values = {name: np.column_stack([own[name] for own in each]) for name in FIELDS}
    else:
        weights = np.zeros((1 if pairs.draws is None else 1 + pairs.draws.replicates, 0))
        values = dict.fromkeys(FIELDS, weights)
    macro = {name: mean_over_classes(value) for name, value in values.items()}
    micro = {name: mean_over_classes(value, weights) for name, value in values.items()}

    members = [np.asarray(pairs.class_of) == c for c in range(len(pairs.names))]
    degenerate = pairs.counts.degenerate
    scores = []
    for c, (name, own) in enumerate(zip(pairs.names, members, strict=True)):
        rows = {field: value[:, c] for field, value in values.items()}
        scores.append(_estimate(name, degenerate[own], rows, _taus(found[c]) if own.any() else {}))
    shared: dict[str, float] = {}
    if search.levels is not None or (unit == "per_dataset" and len(degenerate)):
        shared = _taus([_fixed(search.levels)] if search.levels is not None else found[0])
    drawn = None
    if pairs.draws is not None:
        parts = ({name: value[1:] for name, value in part.items()} for part in (values, macro, micro))
        drawn = Replicates(tuple(pairs.names), *parts)
    return Grounding(
        options=search.options,
        classes=tuple(scores),
        macro=_estimate("macro", degenerate, macro, shared),
        micro=_estimate("micro", degenerate, micro, shared),
        drawn=drawn,
    )


def _levels(classes: Sequence[_Class], search: Search) -> list[list[Levels]]:
    """For each class the levels to read: one pair of all its pairs, or one for each half of `cross_fit`, found on the
    other; none where each pair has its own."""
    options = search.options
    if search.levels is not None:
        return [[_fixed(search.levels)] for _ in classes]
    if options.unit == "per_image":
        return [[] for _ in classes]
    if options.unit == "cross_fit":
        return [[best_levels(*half.curves, options) for half in reversed(one.halves)] for one in classes]
    curves = [one.whole.curves for one in classes]
    if options.unit == "per_dataset" and curves:
        dice, iou = (macro_curve(kind) for kind in zip(*curves, strict=True))
        shared = best_levels(dice, iou, options)
        return [[shared] for _ in classes]
    return [[best_levels(dice, iou, options)] for dice, iou in curves]


def _fixed(levels: tuple[int, int]) -> Levels:
    return np.array(levels[:1], np.intp), np.array(levels[1:], np.intp)


def _values(one: _Class, levels: Sequence[Levels], unit: str) -> dict[str, Float]:
    """The numbers of a class, float64 [1 + B] each; `levels`: as `_levels`, of all pairs or of each half."""
    n, plain = one.whole.n, one.whole.plain
    parts = one.halves if unit == "cross_fit" else (one.whole,)
    if unit == "per_image":
        dice, iou = plain[:, 3], plain[:, 4]
    else:
        dice = np.sum([at_level(part.dice, k) for part, (k, _) in zip(parts, levels, strict=True)], axis=0)
        iou = np.sum([at_level(part.iou, k) for part, (_, k) in zip(parts, levels, strict=True)], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dice_fixed, dice_best, floor_iou = one.whole.dice[:, FIXED] / n, dice / n, plain[:, 2] / n
        return {
            "pointing": plain[:, 0] / n,
            "dice_fixed": dice_fixed,
            "iou_fixed": one.whole.iou[:, FIXED] / n,
            "dice_best": dice_best,
            "iou_best": iou / n,
            "delta_dice": 100.0 * (dice_best - dice_fixed),
            "floor_dice": plain[:, 1] / n,
            "floor_iou": floor_iou,
            "chance": floor_iou,
        }


def _estimate(
    name: str, degenerate: NDArray[np.bool_], rows: Mapping[str, Float], taus: Mapping[str, float]
) -> GroundingScores:
    """Row 0 of the numbers of some pairs; None where one is not defined."""
    numbers = {field: None if np.isnan(row[0]) else float(row[0]) for field, row in rows.items()}
    return GroundingScores(name, len(degenerate), int(degenerate.sum()), **numbers, **taus)


def _taus(levels: Sequence[Levels]) -> dict[str, float]:
    """The thresholds of the estimate, where a single pair of them exists."""
    return {"best_tau": int(levels[0][0][0]) / 100, "iou_tau": int(levels[0][1][0]) / 100} if len(levels) == 1 else {}
