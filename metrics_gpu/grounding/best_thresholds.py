"""Best thresholds of curves: the search, and cross-fitting on other patients (docs/metrics.md §4.3).

Up to `LEAVE_ONE_OUT` patients with a finding, each is one fold, which needs no random choice. More are divided
into `FOLDS` folds, stratified by finding, `REPEATS` times in different orders. This is done once per dataset, so that
all models share the folds.

The best threshold of a fold is fitted on the drawn patients of the other folds, so each replicate fits it anew. The
curves are rounded to 2^-32: their weighted sums are exact in float64, so that leaving a fold out is a subtraction
without rounding, levels that are equally good stay so, and no sum depends on the order of the pairs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import SEED, macro_curve
from ..statistics.exact_sums import exact_values, ratio
from ..statistics.products import product
from ..sweep.counts import Counts, dice_curves, iou_curves
from ..sweep.sweep_options import level
from .protocols import GroundingOptions, Mean

Float = NDArray[np.float64]

FIXED: Final = level(0.5)


def best_levels(curves: Sequence[Float], options: GroundingOptions) -> list[NDArray[np.intp]]:
    """The level at which each curve is read, intp [...]: its best one, of equal ones the first. The curves [..., 101]
    are Dice, IoU and further ones, or the first of these; IoU is read as `options.iou_at` says. Where a curve is not
    defined (NaN), its value is not either, and the level means nothing."""
    first = level(options.tau_from)
    joint = options.iou_at == "joint"
    read = [curves[0] if joint and place == 1 else curve for place, curve in enumerate(curves)]
    return [np.asarray(first + np.argmax(curve[..., first:], axis=-1)) for curve in read]


def at_level(curve: NDArray[np.float64], k: NDArray[np.intp] | int) -> NDArray[np.float64]:
    """float64 [...]: each curve of [..., 101] at its level, or all at the same."""
    index = np.broadcast_to(np.asarray(k, np.intp), curve.shape[:-1])[..., None]
    values: NDArray[np.float64] = np.take_along_axis(curve, index, axis=-1)[..., 0]
    return values


def model_levels(
    datasets: Sequence[tuple[Counts, NDArray[np.integer]]],
    options: GroundingOptions | None = None,
    own: Sequence[Sequence[Float]] = (),
) -> tuple[int, ...] | None:
    """One threshold for all datasets of a model, best for the mean over datasets of the mean over classes, as `options`
    weigh them.

    datasets: the counts and the class of each pair, per dataset. own: further curves, each with its values [P, 101] per
    dataset. Returns the levels of Dice, IoU and these for `grounding`, None if there is no pair at all. Raises
    ValueError if a pair has no region.
    """
    options = options or GroundingOptions(unit="per_model")
    nonempty = [place for place, (counts, _) in enumerate(datasets) if len(counts)]
    if not nonempty:
        return None
    sizes = [np.array(len(datasets[place][0])) for place in nonempty]
    built_in = ([curves(counts) for counts, _ in datasets] for curves in (dice_curves, iou_curves))
    means = [
        mean_curve(
            [dataset_curve(curves[place], datasets[place][1], options.mean) for place in nonempty],
            sizes,
            options.mean_datasets,
        )
        for curves in (*built_in, *own)
    ]
    return tuple(map(int, best_levels(means, options)))


def dataset_curve(curves: Float, class_of: NDArray[np.integer], mean: Mean) -> Float:
    """The mean over classes, float64 [101], of the mean of the curves [P, 101] of each class; P > 0."""
    members = [np.flatnonzero(class_of == c) for c in np.unique(class_of)]
    means = [curves[pairs].mean(axis=0) for pairs in members]
    return mean_curve(means, [np.array(len(pairs)) for pairs in members], mean)


def mean_curve(curves: Sequence[Float], numbers: Sequence[NDArray[np.number]], mean: Mean) -> Float:
    """Mean float64 [..., 101] of the curves that are defined, NaN where none is: unweighted, or (`micro`) weighted by
    `numbers` of pairs [...], one for each curve. Levels that are equally good for each curve stay so."""
    if mean == "macro":
        return macro_curve(curves)
    weights = np.stack(numbers).astype(np.float64)[..., None]
    total = weights.sum(axis=0)
    return ratio(exact_values(np.where(weights > 0, np.stack(curves) * weights, 0.0)).sum(axis=0), total)


LEAVE_ONE_OUT: Final = 500
"""The largest number of patients of which each is left out alone."""
FOLDS: Final = 10  # docs/metrics.md §4.3
REPEATS: Final = 5  # in different orders, so that a result depends less on one random division


def patient_folds(has: NDArray[np.bool_], seed: int = SEED, *, halves: int = 0) -> NDArray[np.intp]:
    """Fold of each patient of a dataset, intp [R, G]; R is 1, or `REPEATS` where many patients have a finding.

    halves: if above 0, two folds in this many repeats, however few the patients.

    has: bool [G, C], whether the truth gives a patient a finding; -1 for a patient without any, where there are folds.
    In each repeat patients are taken in another order (PCG64). Finding by finding, the one with the fewest patients
    first, each patient without a fold gets the one with the fewest patients of the finding; of equal ones that with the
    fewest patients, then the first. Raises ValueError for another shape.
    """
    has = np.asarray(has)
    if has.ndim != 2:
        raise ValueError(f"has must have the shape [G, C], got {has.shape}")
    if not halves and has.any(axis=1).sum() <= LEAVE_ONE_OUT:
        return np.arange(len(has), dtype=np.intp)[None]
    generator = np.random.Generator(np.random.PCG64(seed))
    count, repeats = (2, halves) if halves else (FOLDS, REPEATS)
    orders = (generator.permutation(len(has)) for _ in range(repeats))
    folds: NDArray[np.intp] = np.stack([_divided(has, order, count) for order in orders])
    return folds


def pair_folds(
    folds: NDArray[np.intp], class_of: NDArray[np.integer], patient_of: NDArray[np.integer]
) -> NDArray[np.intp]:
    """Fold of each pair within its class, intp [R, P]. folds: [R, G], of `patient_folds`; class_of, patient_of: [P].

    It is the patient's, but where one fold holds more than half of the patients of a class, each of them is left out
    alone in that repeat: too few others would be left to fit on, or none.
    """
    fold_of: NDArray[np.intp] = folds[:, patient_of]
    for c in np.unique(class_of) if len(folds) > 1 else ():
        pairs = np.flatnonzero(class_of == c)
        members = np.unique(patient_of[pairs])
        for repeat, of_member in enumerate(folds[:, members]):
            if 2 * np.bincount(of_member).max() > len(members):
                fold_of[repeat, pairs] = patient_of[pairs]
    return fold_of


def _divided(has: NDArray[np.bool_], order: NDArray[np.integer], count: int) -> NDArray[np.intp]:
    """Fold of each patient, one of `count`, intp [G]. has: bool [G, C], whether a patient has a finding."""
    fold = np.full(len(has), -1, np.intp)
    total = np.zeros(count, np.intp)
    for c in np.argsort(has.sum(axis=0), kind="stable"):
        placed = has[:, c] & (fold >= 0)
        placed_in = np.bincount(fold[placed], minlength=count)
        heap = [(int(placed_in[f]), int(total[f]), f) for f in range(count)]
        heapq.heapify(heap)
        for patient in order[(has[:, c] & (fold < 0))[order]]:
            of_class, of_all, f = heap[0]
            fold[patient] = f
            heapq.heapreplace(heap, (of_class + 1, of_all + 1, f))
        total = np.bincount(fold[fold >= 0], minlength=count)
    return fold


def cross_fitted(
    curves: Sequence[Float],
    fold_of: NDArray[np.integer],
    patient_of: NDArray[np.intp],
    weights: NDArray[np.uint16],
    options: GroundingOptions,
    *,
    keep: bool = False,
) -> tuple[Float, Float]:
    """Dice and IoU, or one other score, of the pairs of a class at thresholds fitted on the folds that they are not in,
    mean over repeats: sums over the drawn pairs, float64 [K, 1 + B], NaN where these are of a single fold, so that
    there is nothing to fit on; and of each pair in the estimate, float64 [K, P].

    curves: of the K scores, float64 [P, 101] each, rounded here by `exact_values`. fold_of: integers [R, P], one fold
    for a patient. patient_of: [P], columns of `weights` [1 + B, G], whose first row is the estimate. keep: the
    replicates keep the thresholds of the estimate.
    """
    kinds, curves = len(curves), [exact_values(curve) for curve in curves]
    patients, of_patient = np.unique(patient_of, return_inverse=True)
    drawn = weights[:, patients].astype(np.float64)
    scores = [_totals(curve, of_patient) for curve in curves]
    number = np.bincount(of_patient).astype(np.float64)[:, None]  # of the pairs of each patient
    searched = [number, *scores[: 1 if options.iou_at == "joint" else kinds]]
    all_patients = [product(drawn, totals) for totals in searched]
    sums, of_pairs = np.zeros((kinds, len(fold_of), len(weights))), np.zeros((kinds, len(fold_of), len(of_patient)))
    for repeat, folds in enumerate(fold_of):
        for fold in np.unique(folds):
            pairs = np.flatnonzero(folds == fold)
            members = np.unique(of_patient[pairs])
            weight = drawn[:, members]
            rows = np.flatnonzero(weight.any(axis=1))  # the others add nothing
            weight = weight[rows]
            fitted = rows[:1] if keep else rows
            rest = []
            for whole, totals in zip(all_patients, searched, strict=True):
                # Exact: the curves are multiples of 2^-32, so that the rest of a sum is the sum of the rest.
                part = _of_members(weight[: len(fitted)], totals[members])
                np.subtract(whole if len(fitted) == len(whole) else whole[fitted], part, out=part)
                rest.append(part)
            levels = (best_levels(rest[1:], options) * kinds)[:kinds]
            alone = rest[0][:, 0] == 0
            for curve_index, (found_level, score, curve) in enumerate(zip(levels, scores, curves, strict=True)):
                values = np.einsum("rp,rp->r", weight, np.ascontiguousarray(score[members].T)[found_level])
                sums[curve_index, repeat, rows] += np.where(alone, np.nan, values)
                of_pairs[curve_index, repeat, pairs] = np.nan if alone[0] else curve[pairs, found_level[0]]
    return sums.mean(axis=1), exact_values(of_pairs.mean(axis=1))


def _of_members(weight: Float, totals: Float) -> Float:
    """`product`; of a single patient without BLAS, which takes twice as long."""
    return weight * totals if len(totals) == 1 else product(weight, totals)


def _totals(values: Float, patient_of: NDArray[np.intp]) -> Float:
    """Sums of `values` [N, K] over the items of each patient, float64 [G, K]; patients are 0..G-1, all with an item."""
    order = np.argsort(patient_of, kind="stable")
    starts = np.flatnonzero(np.diff(patient_of[order], prepend=-1))
    totals: Float = np.add.reduceat(values[order], starts, axis=0) if len(starts) else values
    return totals
