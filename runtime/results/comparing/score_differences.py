"""Differences of two models whose scores of the same images are in memory, with paired intervals by patient
(docs/metrics.md §8.4)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....metrics_gpu.recognition.delong import auc_difference as delong_difference
from ....metrics_gpu.recognition.delong import auc_estimate, auc_parts
from ....metrics_gpu.statistics.bootstrap import draw_patients, patient_index
from ....metrics_gpu.statistics.class_means import class_means
from ....metrics_gpu.statistics.intervals import LEAST, Interval, mean_interval, meaningful, shares

Float = NDArray[np.float64]


@dataclass(frozen=True)
class PairedDifference:
    """`value`: b minus a, of fractions; `low`, `high`: the ends of its 95 % interval, None with fewer than
    `LEAST_PATIENTS` patients and where nothing varies. `patients`: how many stand behind it."""

    a: float
    b: float
    value: float
    low: float | None
    high: float | None
    patients: int

    LEAST_PATIENTS: ClassVar[int] = LEAST["patients"]


def mean_difference(
    a: ArrayLike, b: ArrayLike, findings: Sequence[Hashable], patients: Sequence[Hashable]
) -> PairedDifference | None:
    """The difference of two means over findings of the mean over pairs, such as of `dice` or `pointing`.

    a, b: float [P], the same P pairs scored by two models. findings, patients: those of each pair. Patients are drawn
    with replacement, both models together. None without a pair. Raises ValueError for lengths that differ and values
    that are not finite.
    """
    first, second = (np.asarray(values, np.float64) for values in (a, b))
    if not first.shape == second.shape == (len(findings),) == (len(patients),):
        raise ValueError(
            f"pairs, findings and patients must be equally many, got {first.shape}, {second.shape}, {len(findings)} "
            f"and {len(patients)}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("a value of a pair is not finite")
    if not len(first):
        return None
    (class_of, classes), (patient_of, count) = patient_index(findings), patient_index(patients)
    values = np.column_stack([second - first, first, second])
    drawn = class_means(values, class_of, classes, draw_patients(count), patient_of).macro
    interval = mean_interval(drawn[1:, 0], shares(values[:, 0], class_of, patient_of, count), bounds=None)
    value, before, after = map(float, drawn[0])
    return _difference(before, after, value, interval, count)


def auc(scores: ArrayLike, labels: ArrayLike) -> Float:
    """Area under the ROC curve of each finding, float64 [F]; NaN for one without both labels.

    scores: float [N, F]. labels: [N, F], 1, 0, or NaN where unknown. Raises ValueError for shapes that differ, other
    labels and scores that are not finite.
    """
    score, label = _columns(scores, labels)
    found = np.full(score.shape[1], np.nan)
    for column, (known, own) in _with_both_labels(label):
        found[column] = auc_estimate(score[known, column], own).auc
    return found


def auc_difference(
    a: ArrayLike, b: ArrayLike, labels: ArrayLike, patients: Sequence[Hashable]
) -> PairedDifference | None:
    """The difference of two mean AUCs over findings, with DeLong's interval, by patient.

    a, b, labels: [N, F], as in `auc`. patients: those of the N images. Of the findings with at least three patients of
    each label; None where there is none. Raises ValueError as `auc`.
    """
    (first, label), (second, _) = _columns(a, labels), _columns(b, labels)
    if len(patients) != len(label):
        raise ValueError(f"there are {len(label)} images and {len(patients)} patients")
    patient_of, count = patient_index(patients)
    pairs, parts = [], []
    for column, (known, own) in _with_both_labels(label):
        of = patient_of[known]
        if meaningful(positives=len(np.unique(of[own == 1])), negatives=len(np.unique(of[own == 0]))):
            scores = [table[known, column] for table in (first, second)]
            pairs.append([auc_estimate(score, own).auc for score in scores])
            one, two = (auc_parts(score, own, of, count) for score in scores)
            parts.append(two - one)
    if not pairs:
        return None
    before, after = map(float, np.mean(pairs, axis=0))
    value = float(np.mean([two - one for one, two in pairs]))
    return _difference(before, after, value, delong_difference(value, np.mean(parts, axis=0)).interval, count)


def _difference(a: float, b: float, value: float, interval: Interval | None, patients: int) -> PairedDifference:
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return PairedDifference(a, b, value, low, high, patients)


def _columns(scores: ArrayLike, labels: ArrayLike) -> tuple[Float, Float]:
    score, label = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    if score.ndim != 2 or score.shape != label.shape:
        raise ValueError(f"scores and labels must have one shape [N, F], got {score.shape} and {label.shape}")
    return score, label


def _with_both_labels(labels: Float) -> list[tuple[int, tuple[NDArray[np.intp], NDArray[np.int64]]]]:
    """(column, (its images, their labels)) of those that have both labels."""
    if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        raise ValueError("labels must be 1, 0, or NaN where unknown")
    found = []
    for column, values in enumerate(labels.T):
        known = np.flatnonzero(~np.isnan(values))
        own = values[known].astype(np.int64)
        if 0 < own.sum() < len(own):
            found.append((column, (known, own)))
    return found
