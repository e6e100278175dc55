"""Grounding metrics as pure functions of stored counts: pointing game, Dice, IoU, thresholds, floors.

Definitions: docs/metrics.md §4 (Dice, IoU, best threshold, floor), §5 (pointing game), §8 (means). Every value is
a fraction in [0, 1], only `delta_dice` is in percentage points. All searches but `cross_fit` choose the threshold on
the same pairs they are scored on, so the `best` values are in-sample and stand beside their floor, the all-ones mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.aggregate import macro_mean, micro_mean
from ..sweep.counts import Counts
from ..sweep.thresholds import LEVELS, level
from .curves import dice_curves, iou_curves, pointing_hits
from .options import GroundingOptions, IouAt, Ties, Unit
from .search import FIXED, best_levels, macro_curve

__all__ = [
    "Grounding",
    "GroundingOptions",
    "GroundingScores",
    "IouAt",
    "Ties",
    "Unit",
    "check_pairs",
    "dice_curves",
    "grounding",
    "iou_curves",
    "pointing_hits",
    "with_floor",
]

_MEANS: Final = (
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
    dataset's value) and their mean weighted by pairs (`micro`)."""

    options: GroundingOptions
    classes: tuple[GroundingScores, ...]
    macro: GroundingScores
    micro: GroundingScores


def grounding(
    counts: Counts,
    class_of: NDArray[np.integer],
    names: Sequence[str],
    options: GroundingOptions | None = None,
    *,
    half_of: NDArray[np.integer] | None = None,
    levels: tuple[int, int] | None = None,
    hits: NDArray[np.float64] | None = None,
    pixels: int | None = None,
) -> Grounding:
    """Scores of one (model, dataset) from the counts of its P pairs.

    class_of: integers [P], index into `names` of each pair's class; a class may have no pair.
    half_of: integers [P] of 0 and 1, for `cross_fit` only: which half each pair's patient is in (`patient_halves`).
    levels: for `per_model` only: levels of Dice and IoU, from `model_levels` over all datasets.
    hits: float [P], pointing hits to use instead of the counts' own, as those within a tolerance
        (`tolerance.tolerant_hits`).
    pixels: of the evaluation grid, for the floor; needed only for counts whose first threshold does not mark them all
        (another normalisation or comparison than the default's).
    Raises ValueError if an argument does not fit, one that `options.unit` needs is missing, or a pair has no region
    (such pairs are not counted, docs/metrics.md §6).
    """
    options = options or GroundingOptions()
    class_of = check_pairs(len(counts), class_of, len(names), options, half_of, levels)
    dice, iou = with_floor(counts, pixels)
    hits = pointing_hits(counts, options.ties) if hits is None else np.asarray(hits, np.float64)
    if hits.shape != (len(counts),):
        raise ValueError(f"hits must have shape {(len(counts),)}, got {hits.shape}")
    members = [np.flatnonzero(class_of == c) for c in range(len(names))]
    shared = _shared_levels(dice, iou, members, options) if options.unit == "per_dataset" else levels

    classes = []
    for name, pairs in zip(names, members, strict=True):
        if len(pairs) == 0:
            classes.append(GroundingScores(name, 0, 0))
            continue
        halves = None if half_of is None else np.asarray(half_of)[pairs]
        dice_best, iou_best, k, k_iou = _best(dice[pairs, :LEVELS], iou[pairs, :LEVELS], shared, options, halves)
        mean_dice, mean_iou = dice[pairs].mean(axis=0), iou[pairs].mean(axis=0)
        dice_fixed, floor_iou = float(mean_dice[FIXED]), float(mean_iou[LEVELS])
        classes.append(
            GroundingScores(
                name=name,
                n=len(pairs),
                degenerate=int(counts.degenerate[pairs].sum()),
                pointing=float(hits[pairs].mean()),
                dice_fixed=dice_fixed,
                iou_fixed=float(mean_iou[FIXED]),
                dice_best=dice_best,
                iou_best=iou_best,
                best_tau=None if k is None else k / 100,
                iou_tau=None if k_iou is None else k_iou / 100,
                delta_dice=100.0 * (dice_best - dice_fixed),
                floor_dice=float(mean_dice[LEVELS]),
                floor_iou=floor_iou,
                chance=floor_iou,
            )
        )
    return Grounding(options, tuple(classes), _mean("macro", classes, shared), _mean("micro", classes, shared))


def check_pairs(
    pairs: int,
    class_of: NDArray[np.integer],
    classes: int,
    options: GroundingOptions,
    half_of: NDArray[np.integer] | None,
    levels: tuple[int, int] | None,
) -> NDArray[np.integer]:
    """`class_of` as an array; ValueError unless all arguments of `grounding` fit together."""
    class_of = np.asarray(class_of)
    if class_of.shape != (pairs,):
        raise ValueError(f"class_of must have shape {(pairs,)}, got {class_of.shape}")
    if len(class_of) and not (class_of.min() >= 0 and class_of.max() < classes):
        raise ValueError(f"class_of must lie in 0..{classes - 1}, got {class_of.min()}..{class_of.max()}")
    if (half_of is not None) != (options.unit == "cross_fit"):
        raise ValueError("cross_fit needs half_of, and only cross_fit")
    if (levels is not None) != (options.unit == "per_model"):
        raise ValueError("per_model needs levels, and only per_model")
    if half_of is not None and (np.shape(half_of) != (pairs,) or not np.isin(half_of, (0, 1)).all()):
        raise ValueError(f"half_of must hold {pairs} values of 0 and 1")
    if levels is not None and not all(0 <= k < LEVELS for k in levels):
        raise ValueError(f"levels must lie in 0..{LEVELS - 1}, got {levels}")
    return class_of


def with_floor(counts: Counts, pixels: int | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Dice and IoU of each pair at each threshold and, as column 101, of the all-ones mask: two float64 [P, 102].

    Raises ValueError if a pair has no region, or has more pixels than `pixels`.
    """
    dice, iou = dice_curves(counts), iou_curves(counts)
    every = counts.area[:, 0] if pixels is None else np.full(len(counts), pixels)
    if (every < np.maximum(counts.area[:, 0], counts.region)).any():
        raise ValueError(f"the evaluation grid has more pixels than {pixels}")
    if pixels is None and ((counts.overlap[:, 0] != counts.region).any() or len(np.unique(every)) > 1):
        raise ValueError("these counts do not mark every pixel at their first threshold: give the number of pixels")
    region = counts.region.astype(np.int64)
    floor_dice, floor_iou = 2.0 * region / (every + region), region / np.maximum(every, 1)
    return np.column_stack([dice, floor_dice]), np.column_stack([iou, floor_iou])


def _shared_levels(
    dice: NDArray[np.float64], iou: NDArray[np.float64], members: list[NDArray[np.intp]], options: GroundingOptions
) -> tuple[int, int] | None:
    """One threshold for Dice and one for IoU, best for the mean over classes; None without pairs."""
    used = [pairs for pairs in members if len(pairs)]
    if not used:
        return None
    curves = [macro_curve([scores[pairs, :LEVELS].mean(axis=0) for pairs in used]) for scores in (dice, iou)]
    k, k_iou = best_levels(curves[0], curves[1], options)
    return int(k), int(k_iou)


def _best(
    dice: NDArray[np.float64],
    iou: NDArray[np.float64],
    shared: tuple[int, int] | None,
    options: GroundingOptions,
    half_of: NDArray[np.integer] | None,
) -> tuple[float, float, int | None, int | None]:
    """(Dice, IoU, level of Dice, level of IoU) of one class at its best threshold(s)."""
    if options.unit == "per_image":
        first = level(options.tau_from)
        k_each = first + np.argmax(dice[:, first:], axis=1)
        rows = np.arange(len(dice))
        at = iou[rows, k_each] if options.iou_at == "joint" else iou[:, first:].max(axis=1)
        return float(dice[rows, k_each].mean()), float(at.mean()), None, None
    if half_of is not None:
        dice_sum = iou_sum = 0.0
        for half in (0, 1):
            scored, other = half_of == half, half_of != half
            k_other = k_iou_other = FIXED
            if other.any():
                found = best_levels(dice[other].mean(axis=0), iou[other].mean(axis=0), options)
                k_other, k_iou_other = int(found[0]), int(found[1])
            dice_sum += float(dice[scored, k_other].sum())
            iou_sum += float(iou[scored, k_iou_other].sum())
        return dice_sum / len(dice), iou_sum / len(dice), None, None
    mean_dice, mean_iou = dice.mean(axis=0), iou.mean(axis=0)
    if shared is not None:
        k, k_iou = shared
    else:
        levels = best_levels(mean_dice, mean_iou, options)
        k, k_iou = int(levels[0]), int(levels[1])
    return float(mean_dice[k]), float(mean_iou[k_iou]), k, k_iou


def _mean(name: str, classes: Sequence[GroundingScores], shared: tuple[int, int] | None) -> GroundingScores:
    weights = [scores.n for scores in classes]
    columns = {field: [getattr(scores, field) for scores in classes] for field in _MEANS}
    means = {f: macro_mean(c) if name == "macro" else micro_mean(c, weights) for f, c in columns.items()}
    taus = {} if shared is None else {"best_tau": shared[0] / 100, "iou_tau": shared[1] / 100}
    return GroundingScores(name, sum(weights), sum(scores.degenerate for scores in classes), **means, **taus)
