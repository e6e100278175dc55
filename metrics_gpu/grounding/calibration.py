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
from typing import Any, Final, Literal, get_args

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
    """Share of pixels inside the region by level, made monotone: float32 [..., 101], never falling.

    pixels, inside: integers [..., 101], sums of `level_histogram` over the fitting pairs. Levels without pixels are
    interpolated. Raises ValueError without any pixel, or if `inside` exceeds `pixels`.
    """
    from sklearn.isotonic import isotonic_regression

    total, within = _check(pixels, inside)
    mapped = np.empty(total.shape, np.float32)
    for place in np.ndindex(total.shape[:-1]):
        used = total[place] > 0
        weight = total[place][used]
        rising = isotonic_regression(within[place][used] / weight, sample_weight=weight, y_min=0.0, y_max=1.0)
        mapped[place] = np.interp(LEVEL_VALUES, LEVEL_VALUES[used], rising)
    return mapped


_PENALTY: Final = 1e-6
"""Of the squared coefficients, which must stay finite where a level separates the region from the rest."""
_STEPS: Final = 200
_TOLERANCE: Final = 1e-12
"""Gain of the likelihood of a step, by the weight of all pixels, below which the fit is at its end."""


def beta_map(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> NDArray[np.float32]:
    """Beta calibration of the levels: float32 [..., 101], never falling (M. Kull, T. Silva Filho, P. Flach, AISTATS
    2017).

    logit g = a log v - b log(1 - v) + c with a, b >= 0, by logistic regression weighted with pixels; a negative
    coefficient is set to 0 and the rest is fitted again. Constant if all pixels agree, or if both coefficients would be
    negative. Arguments and errors as `isotonic_map`.
    """
    total, within = (counts.reshape(-1, LEVELS) for counts in _check(pixels, inside))
    share = within.sum(axis=1) / total.sum(axis=1)
    mapped = np.repeat(share[:, None], LEVELS, axis=1).astype(np.float32)
    features = np.column_stack([np.log(LEVEL_VALUES), -np.log1p(-LEVEL_VALUES)])
    open_maps, open_used = np.flatnonzero((share > 0) & (share < 1)), np.ones((len(share), 2), bool)
    while len(open_maps):
        again = []
        for used in np.unique(open_used[open_maps], axis=0):
            of_kind = open_maps[(open_used[open_maps] == used).all(axis=1)]
            fit = _logistic(features[:, used], total[of_kind], within[of_kind])
            slopes = fit[:, 1:]
            good = (slopes >= 0).all(axis=1)
            curves = _sigmoid(fit[good, :1] + slopes[good] @ features[:, used].T).astype(np.float32)
            mapped[of_kind[good]] = np.maximum.accumulate(curves, axis=1)  # rounding must not make it fall
            open_used[np.ix_(of_kind[~good], used)] = slopes[~good] >= 0
            again.append(of_kind[~good])
        open_maps = np.concatenate(again)
        open_maps = open_maps[open_used[open_maps].any(axis=1)]
    return mapped.reshape(np.shape(pixels))


def _logistic(features: Float, total: Float, within: Float) -> Float:
    """Intercept and coefficients float64 [K, 1 + F] of K logistic regressions of the share `within` / `total` [K, 101]
    on `features` [101, F], by Newton's method with halved steps. Each step solves all of them at once."""
    columns = np.column_stack([np.ones(len(features)), features])
    penalty = np.append(0.0, np.full(features.shape[1], _PENALTY))
    size = total.sum(axis=1, keepdims=True) / 1e4  # weights of 10,000 in all, however large the maps are
    total, within = total / size, within / size

    def loss(fit: Float, of: NDArray[np.intp]) -> Float:
        logit = fit @ columns.T
        cost = total[of] * np.logaddexp(0.0, logit) - within[of] * logit
        return np.asarray(cost.sum(axis=1) + (penalty * fit**2).sum(axis=1) / 2)

    share = within.sum(axis=1) / total.sum(axis=1)
    fits = np.zeros((len(total), columns.shape[1]))
    fits[:, 0] = np.log(share / (1 - share))
    moving = np.arange(len(fits))
    best = loss(fits, moving)
    for _ in range(_STEPS):
        if not len(moving):
            break
        fit = fits[moving]
        chance = _sigmoid(fit @ columns.T)
        slope = (total[moving] * chance - within[moving]) @ columns + penalty * fit
        curve = np.einsum("kl,li,lj->kij", total[moving] * chance * (1 - chance), columns, columns) + np.diag(penalty)
        step = np.linalg.solve(curve, slope[..., None])[..., 0]
        gain = np.zeros(len(moving))
        for _ in range(40):
            short = np.flatnonzero(~(gain > 0))
            if not len(short):
                break
            tried = fit[short] - step[short]
            gain[short] = best[moving[short]] - loss(tried, moving[short])
            step[short[~(gain[short] > 0)]] /= 2
        better = gain > 0
        fits[moving[better]] -= step[better]
        best[moving[better]] -= gain[better]
        moving = moving[gain > _TOLERANCE * 1e4]
    return fits


def _sigmoid(logit: Float) -> Float:
    return np.asarray(np.exp(-np.logaddexp(0.0, -logit)))


def cut(mapped: NDArray[np.float32], threshold: float | Float) -> NDArray[np.intp]:
    """intp [...]: the first level whose calibrated value float32 [..., 101] is at least `threshold`; EMPTY if none is.

    threshold: one, or one for each map, [...].
    """
    reached = mapped >= np.asarray(threshold, np.float32)[..., None]
    return LEVELS - np.asarray(reached.sum(axis=-1), np.intp)


def half_dice(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> Float:
    """Half of the best Dice that one level reaches over all fitting pixels together, the cut that is best for Dice:
    float64 [...] of [..., 101]."""
    total, within = _check(pixels, inside)
    marked, right = (counts[..., ::-1].cumsum(axis=-1) for counts in (total, within))
    return np.asarray((right / (marked + within.sum(axis=-1, keepdims=True))).max(axis=-1))


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
    for c in classes:
        of_class = np.flatnonzero(class_of == c)
        if "best" in methods and options.unit == "per_class":
            levels["best"][of_class] = _best(dice[of_class].mean(axis=0), options)
        folds, fold = np.unique(fold_of[of_class], return_inverse=True)
        if len(folds) < 2:
            continue
        # All pairs less those of a fold: what is fitted never sees a pair of the patients it is applied to. The sums
        # are exact, of integers and of Dice in units, so that the subtraction rounds nothing.
        others = len(of_class) - np.bincount(fold)
        if "held_out" in methods:
            levels["held_out"][of_class] = _best(_without(dice[of_class], fold) / others[:, None], options)[fold]
        if not maps:
            continue
        taught = _without(pixels[of_class], fold), _without(inside[of_class], fold)
        with one_blas_thread():
            mapped = {name: fit(*taught) for name, fit in maps.items()}
        for method in methods:
            for name in maps:
                if method.startswith(name):
                    at = half_dice(*taught) if method.endswith("half_dice") else 0.5
                    found = np.maximum(cut(mapped[name], at), level(options.tau_from))
                    levels[method][of_class] = found[fold]
    return levels


_MAPS: Final[Mapping[str, Callable[..., NDArray[np.float32]]]] = {"isotonic": isotonic_map, "beta": beta_map}


def _without(values: NDArray[Any], fold: NDArray[np.intp]) -> NDArray[Any]:
    """The sum of rows [n, 101] of all folds but one, [F, 101] for F folds."""
    order = np.argsort(fold, kind="stable")
    starts = np.searchsorted(fold[order], np.arange(fold.max() + 1))
    return np.asarray(values.sum(axis=0) - np.add.reduceat(values[order], starts, axis=0))


def _best(curves: Float, options: GroundingOptions) -> NDArray[np.intp]:
    """The level of the best Dice of mean curves [..., 101], intp [...]."""
    return best_levels([curves], options)[0]


def _check(pixels: NDArray[np.integer], inside: NDArray[np.integer]) -> tuple[Float, Float]:
    total, within = np.asarray(pixels, np.float64), np.asarray(inside, np.float64)
    if total.shape[-1:] != (LEVELS,) or within.shape != total.shape:
        raise ValueError(f"pixels and inside must have shape [..., {LEVELS}], got {total.shape} and {within.shape}")
    if not (total.sum(axis=-1) > 0).all() or (within > total).any() or (within < 0).any():
        raise ValueError("calibration needs pixels, and at each level no more inside the region than there are")
    return total, within
