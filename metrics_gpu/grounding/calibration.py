"""Post-hoc calibration of saliency: how much of delta Dice can be recovered without using the test pairs.

The calibration of a map is fitted on other patients: a threshold per class, or a monotone map from normalised saliency
to the share of pixels inside the region. A monotone map only renames the levels of the sweep: g(Mn) >= t marks the
pixels of Mn >= tau_k for the first level k with g_k >= t. So counts are enough: a calibrated mask is a level per pair.

A probability cut at 0.5 is right for the most pixels, not for Dice. For calibrated probabilities the cut that is best
for Dice is half of the best Dice (Z. C. Lipton, C. Elkan, B. Naryanaswamy, ECML PKDD 2014), which is known from the
fitting half alone; both cuts are available.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..statistics.products import one_blas_thread
from ..sweep.counts import Counts, dice_curves
from ..sweep.sweep_options import LEVELS, level
from .best_thresholds import FIXED, best_levels, dataset_curve
from .curve_shape import LEVEL_VALUES, level_histogram
from .protocols import GroundingOptions

Float = NDArray[np.float64]
Method = Literal["none", "held_out", "isotonic", "isotonic_half_dice", "beta", "beta_half_dice", "best"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)

EMPTY: Final = LEVELS
"""The level of a cut that no pixel reaches."""
UNFITTED: Final = -1
"""The level of a pair without another patient to fit on."""


def isotonic_map(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> NDArray[np.float32]:
    """Share of pixels inside the region by level, made monotone: float32 [101], never falling.

    pixels, inside: integers [101], sums of `level_histogram` over the fitting pairs. Levels without pixels are
    interpolated. Raises ValueError without any pixel, or if `inside` exceeds `pixels`.
    """
    from sklearn.isotonic import IsotonicRegression

    total, within = _check(pixels, inside)
    used = np.flatnonzero(total)
    model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    model.fit(LEVEL_VALUES[used], within[used] / total[used], sample_weight=total[used])
    return np.asarray(model.predict(LEVEL_VALUES), np.float64).astype(np.float32)


def beta_map(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> NDArray[np.float32]:
    """Beta calibration of the levels: float32 [101], never falling (M. Kull, T. Silva Filho, P. Flach, AISTATS 2017).

    logit g = a log v - b log(1 - v) + c with a, b >= 0, by logistic regression weighted with pixels; a negative
    coefficient is set to 0 and the rest is fitted again. Constant if all pixels agree, or if both coefficients would be
    negative. Arguments and errors as `isotonic_map`.
    """
    from sklearn.linear_model import LogisticRegression

    total, within = _check(pixels, inside)
    share = within.sum() / total.sum()
    constant = np.full(LEVELS, share, np.float64).astype(np.float32)
    if share in (0.0, 1.0):
        return constant
    features = np.column_stack([np.log(LEVEL_VALUES), -np.log1p(-LEVEL_VALUES)])
    rows, target = np.vstack([features, features]), np.repeat([1, 0], LEVELS)
    weight = np.concatenate([within, total - within]) / total.sum() * 1e4  # almost no penalty, and well conditioned
    used = [0, 1]
    while used:
        model = LogisticRegression(C=1e6, max_iter=1000, tol=1e-8)
        model.fit(rows[weight > 0][:, used], target[weight > 0], sample_weight=weight[weight > 0])
        slopes = model.coef_[0]
        if (slopes >= 0).all():
            mapped = model.predict_proba(features[:, used])[:, 1]
            return np.maximum.accumulate(mapped.astype(np.float32))  # rounding must not make it fall
        used = [column for column, slope in zip(used, slopes, strict=True) if slope >= 0]
    return constant


def cut(mapped: NDArray[np.float32], threshold: float) -> int:
    """The first level whose calibrated value float32 [101] is at least `threshold`; EMPTY if none is."""
    return int(np.searchsorted(mapped, np.float32(threshold), side="left"))


def half_dice(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> float:
    """Half of the best Dice that one level reaches over all fitting pixels together, the cut that is best for Dice."""
    total, within = _check(pixels, inside)
    marked, right = total[::-1].cumsum(), within[::-1].cumsum()
    return float((right / (marked + within.sum())).max())


def calibrated_levels(
    counts: Counts,
    class_of: NDArray[np.integer],
    fold_of: NDArray[np.integer],
    methods: Sequence[Method] = METHODS,
    options: GroundingOptions | None = None,
) -> dict[Method, NDArray[np.intp]]:
    """Method -> the level that cuts each pair, intp [P] in 0..101, fitted per class on the patients of other folds.

    class_of, fold_of: integers [P]; folds as one repeat of `pair_folds`. `none` is tau = 0.5; `best` is the best
    threshold on these very pairs, so in-sample; the others are cross-fitted, and `UNFITTED` where all pairs of a
    class lie in one fold. options: of `grounding`, whose scores `best` and (with `cross_fit`) `held_out` then agree
    with: no level lies below `tau_from`, and `unit`, per_class or per_dataset, is the unit of the search for `best`.
    Raises ValueError for another method or unit, shapes that do not fit, and, for methods with a map, as
    `level_histogram`.
    """
    options = options or GroundingOptions()
    if options.unit not in ("per_class", "per_dataset"):
        raise ValueError(f"the unit of the best threshold is per_class or per_dataset, not {options.unit}")
    class_of, fold_of = np.asarray(class_of), np.asarray(fold_of)
    for method in methods:
        if method not in METHODS:
            raise ValueError(f"a method of calibration is one of {', '.join(METHODS)}, got {method!r}")
    if class_of.shape != (len(counts),) or fold_of.shape != (len(counts),):
        raise ValueError(f"class_of and fold_of must both hold {len(counts)} values")
    levels = {method: np.full(len(counts), FIXED if method == "none" else UNFITTED, np.intp) for method in methods}
    dice = dice_curves(counts)
    maps = {name: fit for name, fit in _MAPS.items() if any(method.startswith(name) for method in methods)}
    pixels, inside = level_histogram(counts) if maps else (counts.area, counts.overlap)
    classes = np.unique(class_of)
    if "best" in methods and options.unit == "per_dataset" and len(classes):
        levels["best"][:] = _best(dataset_curve(dice, class_of, options.mean), options)
    # A class at a time, and a fold of it at a time: what is fitted never sees a pair of the patients it is applied to.
    for c in classes:
        of_class = class_of == c
        if "best" in methods and options.unit == "per_class":
            levels["best"][of_class] = _best(dice[of_class].mean(axis=0), options)
        for fold in np.unique(fold_of[of_class]):
            scored, fitting = of_class & (fold_of == fold), of_class & (fold_of != fold)
            if not fitting.any():
                continue
            if "held_out" in methods:
                levels["held_out"][scored] = _best(dice[fitting].mean(axis=0), options)
            taught = pixels[fitting].sum(axis=0), inside[fitting].sum(axis=0)
            for name, fit in maps.items():
                with one_blas_thread():
                    mapped = fit(*taught)
                for method in methods:
                    if method.startswith(name):
                        at = half_dice(*taught) if method.endswith("half_dice") else 0.5
                        levels[method][scored] = max(cut(mapped, at), level(options.tau_from))
    return levels


_MAPS: Final[Mapping[str, Callable[..., NDArray[np.float32]]]] = {"isotonic": isotonic_map, "beta": beta_map}


def _best(curve: Float, options: GroundingOptions) -> int:
    """The level of the best Dice of a mean curve [101]."""
    return int(best_levels(curve, curve, options)[0])


def _check(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> tuple[Float, Float]:
    total, within = np.asarray(pixels, np.float64), np.asarray(inside, np.float64)
    if total.shape != (LEVELS,) or within.shape != (LEVELS,):
        raise ValueError(f"pixels and inside must have shape {(LEVELS,)}, got {total.shape} and {within.shape}")
    if not total.sum() > 0 or (within > total).any() or (within < 0).any():
        raise ValueError("calibration needs pixels, and at each level no more inside the region than there are")
    return total, within
