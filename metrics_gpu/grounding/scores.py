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

from ..statistics.bootstrap import mean_over_classes
from ..statistics.exact_sums import ratio
from ..statistics.measured_numbers import MeasuredRows
from ..sweep.sweep_options import LEVELS
from .best_thresholds import FIXED, at_level, best_levels, mean_curve
from .pairs import ClassSums, Float, Pairs, Sums, class_sums
from .protocols import GroundingOptions

Tau = Literal["rechosen", "fixed"]
Levels = list[NDArray[np.intp]]
"""Levels of Dice, IoU and `Pairs.swept`, each intp [1 + B], or [1] for all rows."""

Search = tuple[GroundingOptions, tuple[int, ...] | None]
"""A search for best thresholds: its options, and for `per_model` alone the levels of the curves (`model_levels`)."""

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
"""Numbers of `Grounding` that are means over pairs and have replicates."""


@dataclass(frozen=True, eq=False)
class Grounding(MeasuredRows):
    """Grounding of one model on one dataset: per class, their unweighted mean over classes with n > 0 (`macro`, the
    dataset's value) and their mean weighted by pairs (`micro`).

    counts: n, degenerate: number of pairs and how many of their maps are degenerate. rows:
    pointing: hits / n. dice_fixed, iou_fixed: means over pairs at tau = 0.5.
    dice_best, iou_best: at the best threshold(s); best_tau, iou_tau: those of the estimate, where a single one exists.
    delta_dice: dice_best - dice_fixed in percentage points.
    floor_dice, floor_iou: of the all-ones mask. chance: expected pointing of a random pixel, the mean region fraction.
    Further rows are of `Pairs.own`: NAME, or of a score at each threshold NAME_fixed, NAME_best and NAME_tau.
    each: all but the thresholds of each pair, at those of the estimate, float64 [P]; NaN where undefined.
    """

    options: GroundingOptions
    each: Mapping[str, Float] = field(repr=False)

    @property
    def unfitted(self) -> tuple[str, ...]:
        """Classes whose threshold cannot be cross-fitted, since all their pairs are of one patient."""
        return tuple(name for name in self.names if self.count("n", name) and self.value("dice_best", name) is None)


def grounding(
    pairs: Pairs,
    options: GroundingOptions | None = None,
    *,
    levels: tuple[int, ...] | None = None,
    tau: Tau = "rechosen",
) -> Grounding:
    """Scores of one (model, dataset) from the counts of its pairs, and their replicates where the pairs have draws.

    levels: for `per_model` only: levels of Dice, IoU and `Pairs.swept`, from `model_levels` over all datasets;
    replicates keep them, as they keep the folds of `cross_fit`. Raises ValueError if an argument does not fit, one that
    `options.unit` needs is missing, a patient was not drawn from, or a pair has no region (a pair without a region is
    not counted, docs/metrics.md §6).
    """
    return groundings(pairs, [(options or GroundingOptions(), levels)], tau)[0]


def groundings(pairs: Pairs, searches: Sequence[Search], tau: Tau = "rechosen") -> list[Grounding]:
    """`grounding` for several searches, at little more than the cost of one: the sums are shared.

    The searches may differ only in `unit` and levels. Raises ValueError as `grounding`, and for other differences.
    """
    if tau not in get_args(Tau):
        raise ValueError(f"tau is one of {', '.join(get_args(Tau))}, got {tau!r}")
    first, _ = searches[0]
    for options, levels in searches:
        if replace(options, unit=first.unit) != first:
            raise ValueError("searches that share sums may differ in their unit only")
        if (levels is not None) != (options.unit == "per_model"):
            raise ValueError("per_model needs levels, and only per_model")
        if levels is not None and not all(0 <= k < LEVELS for k in levels):
            raise ValueError(f"levels must lie in 0..{LEVELS - 1}, got {levels}")
        if levels is not None and len(levels) != 2 + len(pairs.swept):
            raise ValueError(f"levels must be {2 + len(pairs.swept)}, got {levels}")
    crossed = any(options.unit == "cross_fit" for options, _ in searches)
    if crossed and pairs.fold_of is None:
        raise ValueError("cross_fit needs fold_of")
    classes = class_sums(pairs, first, crossed, tau == "fixed")
    return [_scored(pairs, classes, search, tau) for search in searches]


def _scored(pairs: Pairs, classes: Sequence[ClassSums], search: Search, tau: Tau) -> Grounding:
    options, levels = search
    unit, read_levels = options.unit, _levels(classes, options, levels)
    kept = [None if rows is None else [row[:1] for row in rows] for rows in read_levels]
    if tau == "fixed":
        read_levels = kept
    fits = [one.fitted if unit == "cross_fit" else None for one in classes]
    fields = (*FIELDS, *pairs.plain, *(f"{name}_{of}" for name in pairs.swept for of in ("fixed", "best")))
    rows = [
        _values(pairs, one.totals, read, fit[0] if fit else None)
        for one, read, fit in zip(classes, read_levels, fits, strict=True)
    ]
    if rows:
        weights = np.column_stack([one.totals.n for one in classes])
        values = {name: np.column_stack([estimates[name] for estimates in rows]) for name in fields}
    else:
        weights = np.zeros((1 if pairs.draws is None else 1 + pairs.draws.replicates, 0))
        values = dict.fromkeys(fields, weights)
    degenerate = pairs.counts.degenerate
    each = {name: np.full(len(degenerate), np.nan) for name in fields}
    taus = np.full((2 + len(pairs.swept), len(classes) + 2, 1), np.nan)
    for c, one in enumerate(classes):
        fit = fits[c]
        for key, value in _values(pairs, one.pairs, kept[c], fit[1] if fit else None).items():
            each[key][one.members] = value
        if len(one.members):
            taus[:, c, 0] = _taus(kept[c])
    if levels is not None or (unit == "per_dataset" and len(degenerate)):
        taus[:, -2:, 0] = _taus(_fixed(levels) if levels is not None else kept[0])[:, None]
    means = {
        name: np.vstack([value.T, mean_over_classes(value), mean_over_classes(value, weights)])
        for name, value in values.items()
    }
    first = FIELDS[: FIELDS.index("iou_best") + 1]
    return Grounding(
        names=tuple(pairs.names),
        counts={
            "n": np.array([len(one.members) for one in classes], np.intp),
            "degenerate": np.array([degenerate[one.members].sum() for one in classes], np.intp),
        },
        rows={
            **{name: means[name] for name in first},
            "best_tau": taus[0],
            "iou_tau": taus[1],
            **{name: means[name] for name in fields if name not in first},
            **{f"{name}_tau": tau for name, tau in zip(pairs.swept, taus[2:], strict=True)},
        },
        options=options,
        each=each,
    )


def _levels(
    classes: Sequence[ClassSums], options: GroundingOptions, levels: tuple[int, ...] | None
) -> list[Levels | None]:
    """For each class the levels to read; None where each pair, or each fold, has its own."""
    if levels is not None:
        return [_fixed(levels)] * len(classes)
    if options.unit in ("per_image", "cross_fit"):
        return [None] * len(classes)
    curves = [[ratio(sums, one.totals.n[:, None]) for sums in one.totals.curves] for one in classes]
    if options.unit == "per_dataset" and curves:
        numbers = [one.totals.n for one in classes]
        means = [mean_curve(measure, numbers, options.mean) for measure in zip(*curves, strict=True)]
        return [best_levels(means, options)] * len(classes)
    return [best_levels(of_class, options) for of_class in curves]


def _fixed(levels: tuple[int, ...]) -> Levels:
    return [np.array([k], np.intp) for k in levels]


def _values(pairs: Pairs, sums: Sums, levels: Levels | None, fitted: Float | None) -> dict[str, Float]:
    """The numbers of the rows of `sums`: at `levels`, or (None) of each pair at its own best threshold, or with the
    `fitted` sums of Dice, IoU and `Pairs.swept`."""
    best = [*(sums.bests.T if fitted is None else fitted)]
    if fitted is None and levels is not None:
        best = [at_level(curve, k) for curve, k in zip(sums.curves, levels, strict=True)]
    means = {
        "pointing": sums.hits,
        "floor_dice": sums.floor_dice,
        "floor_iou": sums.floor_iou,
        "chance": sums.floor_iou,
        **dict(zip(pairs.plain, sums.own.T, strict=True)),
    }
    for name, curve, values in zip(("dice", "iou", *pairs.swept), sums.curves, best, strict=True):
        means |= {f"{name}_fixed": curve[:, FIXED], f"{name}_best": values}
    values = {name: ratio(total, sums.n) for name, total in means.items()}
    return {**values, "delta_dice": 100.0 * (values["dice_best"] - values["dice_fixed"])}


def _taus(levels: Levels | None) -> Float:
    """float64 [K], or NaN for all: the thresholds of the estimate for each curve, NaN where no single one exists."""
    return np.array(np.nan) if levels is None else np.array([int(k[0]) / 100 for k in levels])
