"""Grounding metrics as pure functions of stored counts: pointing game, Dice, IoU, thresholds, floors.

Definitions: metrics specification §4 (Dice, IoU, best threshold, floor), §5 (pointing game), §8 (means). Every value is
a fraction in [0, 1], only `delta_dice` is in percentage points. All searches choose the threshold on the same pairs
they are scored on, so the `best` values are optimistic and stand beside their floor, the all-ones mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .aggregate import macro_mean, micro_mean
from .counts import Counts
from .thresholds import level

__all__ = [
    "Grounding",
    "GroundingOptions",
    "GroundingScores",
    "IouAt",
    "Ties",
    "Unit",
    "dice_curves",
    "grounding",
    "iou_curves",
    "pointing_hits",
]

Ties = Literal["first", "any", "expected"]
Unit = Literal["per_class", "per_dataset", "per_image"]
IouAt = Literal["joint", "independent"]

_FIXED: Final = level(0.5)
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
class GroundingOptions:
    """Choices the specification leaves open (metrics specification §14); the defaults are the specification's.

    tau_from: first threshold of the search, 0.0 or 0.01 (parity with the paper's Table 1).
    ties: pointing at tied maxima: the `first` in row-major order; a hit if `any` lies in the region (MedKLIP, MAVL); or
        the `expected` hit, the share of them in the region. Maxima tie if their normalised value is 1.
    unit: what a best threshold is sought for: each class, the whole dataset (by the macro mean) or each pair alone.
    iou_at: IoU at the threshold found for Dice (`joint`) or at its own (`independent`).
    """

    tau_from: float = 0.0
    ties: Ties = "first"
    unit: Unit = "per_class"
    iou_at: IouAt = "joint"

    def __post_init__(self) -> None:
        if self.tau_from not in (0.0, 0.01):
            raise ValueError(f"tau_from is 0.0 or 0.01, got {self.tau_from}")
        for name, kind in (("ties", Ties), ("unit", Unit), ("iou_at", IouAt)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} is one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")


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


def dice_curves(counts: Counts) -> NDArray[np.float64]:
    """Dice of each pair at each threshold, float64 [P, 101]; raises ValueError if a pair has no region."""
    _need_regions(counts)
    return 2.0 * counts.overlap / (counts.area.astype(np.int64) + counts.region[:, None])


def iou_curves(counts: Counts) -> NDArray[np.float64]:
    """IoU of each pair at each threshold, float64 [P, 101]; raises ValueError if a pair has no region."""
    _need_regions(counts)
    return counts.overlap / (counts.area.astype(np.int64) + counts.region[:, None] - counts.overlap)


def pointing_hits(counts: Counts, ties: Ties = "first") -> NDArray[np.float64]:
    """Pointing hit of each pair, float64 [P] in [0, 1]; degenerate maps miss under every rule."""
    if ties == "first":
        return counts.hit.astype(np.float64)
    tied, inside = counts.area[:, -1], counts.overlap[:, -1]
    share = inside / np.maximum(tied, 1)
    hits = share if ties == "expected" else (inside > 0).astype(np.float64)
    return np.where(counts.degenerate, 0.0, hits)


def grounding(
    counts: Counts,
    class_of: NDArray[np.integer],
    names: Sequence[str],
    options: GroundingOptions | None = None,
) -> Grounding:
    """Scores of one (model, dataset) from the counts of its P pairs.

    class_of: integers [P], index into `names` of each pair's class; a class may have no pair.
    Raises ValueError if `class_of` does not fit, or a pair has no region (such pairs are not counted, metrics
    specification §6).
    """
    options = options or GroundingOptions()
    class_of = np.asarray(class_of)
    if class_of.shape != (len(counts),):
        raise ValueError(f"class_of must have shape {(len(counts),)}, got {class_of.shape}")
    if len(class_of) and not (class_of.min() >= 0 and class_of.max() < len(names)):
        raise ValueError(f"class_of must lie in 0..{len(names) - 1}, got {class_of.min()}..{class_of.max()}")
    dice, iou = dice_curves(counts), iou_curves(counts)
    hits = pointing_hits(counts, options.ties)
    members = [np.flatnonzero(class_of == c) for c in range(len(names))]
    shared = _shared_levels(dice, iou, members, options) if options.unit == "per_dataset" else None

    classes = []
    for name, pairs in zip(names, members, strict=True):
        if len(pairs) == 0:
            classes.append(GroundingScores(name, 0, 0))
            continue
        dice_best, iou_best, k, k_iou = _best(dice[pairs], iou[pairs], shared, options)
        mean_dice, mean_iou = dice[pairs].mean(axis=0), iou[pairs].mean(axis=0)
        dice_fixed, floor_iou = float(mean_dice[_FIXED]), float(mean_iou[0])
        classes.append(
            GroundingScores(
                name=name,
                n=len(pairs),
                degenerate=int(counts.degenerate[pairs].sum()),
                pointing=float(hits[pairs].mean()),
                dice_fixed=dice_fixed,
                iou_fixed=float(mean_iou[_FIXED]),
                dice_best=dice_best,
                iou_best=iou_best,
                best_tau=None if k is None else k / 100,
                iou_tau=None if k_iou is None else k_iou / 100,
                delta_dice=100.0 * (dice_best - dice_fixed),
                floor_dice=float(mean_dice[0]),
                floor_iou=floor_iou,
                chance=floor_iou,
            )
        )
    return Grounding(options, tuple(classes), _mean("macro", classes, shared), _mean("micro", classes, shared))


def _need_regions(counts: Counts) -> None:
    empty = np.flatnonzero(counts.region == 0)
    if len(empty):
        raise ValueError(f"{len(empty)} pairs have no region (first: pair {empty[0]}); such pairs are not counted")


def _search(curve: NDArray[np.float64], options: GroundingOptions) -> int:
    """Index of the largest value from `tau_from` on; ties go to the smallest threshold."""
    first = level(options.tau_from)
    return first + int(np.argmax(curve[first:]))


def _shared_levels(
    dice: NDArray[np.float64], iou: NDArray[np.float64], members: list[NDArray[np.intp]], options: GroundingOptions
) -> tuple[int, int] | None:
    """One threshold for Dice and one for IoU, best for the mean over classes; None without pairs."""
    used = [pairs for pairs in members if len(pairs)]
    if not used:
        return None
    k = _search(np.mean([dice[pairs].mean(axis=0) for pairs in used], axis=0), options)
    if options.iou_at == "joint":
        return k, k
    return k, _search(np.mean([iou[pairs].mean(axis=0) for pairs in used], axis=0), options)


def _best(
    dice: NDArray[np.float64], iou: NDArray[np.float64], shared: tuple[int, int] | None, options: GroundingOptions
) -> tuple[float, float, int | None, int | None]:
    """(Dice, IoU, level of Dice, level of IoU) of one class at its best threshold(s)."""
    if options.unit == "per_image":
        first = level(options.tau_from)
        k_each = first + np.argmax(dice[:, first:], axis=1)
        rows = np.arange(len(dice))
        at = iou[rows, k_each] if options.iou_at == "joint" else iou[:, first:].max(axis=1)
        return float(dice[rows, k_each].mean()), float(at.mean()), None, None
    mean_dice, mean_iou = dice.mean(axis=0), iou.mean(axis=0)
    if shared is not None:
        k, k_iou = shared
    else:
        k = _search(mean_dice, options)
        k_iou = k if options.iou_at == "joint" else _search(mean_iou, options)
    return float(mean_dice[k]), float(mean_iou[k_iou]), k, k_iou


def _mean(name: str, classes: Sequence[GroundingScores], shared: tuple[int, int] | None) -> GroundingScores:
    weights = [scores.n for scores in classes]
    columns = {field: [getattr(scores, field) for scores in classes] for field in _MEANS}
    means = {f: macro_mean(c) if name == "macro" else micro_mean(c, weights) for f, c in columns.items()}
    taus = {} if shared is None else {"best_tau": shared[0] / 100, "iou_tau": shared[1] / 100}
    return GroundingScores(name, sum(weights), sum(scores.degenerate for scores in classes), **means, **taus)
