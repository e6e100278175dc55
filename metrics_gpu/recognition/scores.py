"""Recognition metrics per class and dataset (docs/metrics.md §7)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, drawn_or_not, mean_over_classes
from ..statistics.exact_sums import ratio
from ..statistics.measured_numbers import MeasuredRows

Float = NDArray[np.float64]

FIELDS: Final = ("auc", "auprc", "auprc_trapezoid", "f1", "f1_best", "accuracy")
"""Numbers of a class that have replicates, in the order of the walk's columns."""

FEW_STEPS: Final = 4_000_000
"""Images x classes x rows of weights up to which NumPy takes less than loading compiled code: 40 ms against 0.3 s."""

AVERAGED: Final = ("auc", "auprc", "f1", "accuracy")
"""Numbers whose `macro` is reported."""


class Recognition(MeasuredRows):
    """Recognition of one model on one dataset, over the images whose label is known; `macro` is the unweighted mean
    over the classes where a number is defined.

    counts: n, positives: known labels and how many are 1. rows:
    prevalence: positives / n.
    auc: area under the ROC curve, half credit for ties; undefined unless both label values occur.
    auprc: average precision; undefined without a positive. auprc_trapezoid: area under the linearly joined
        precision-recall curve, which is too high for few positives (CARZero's scripts).
    f1, accuracy: at p >= 0.5; F1 is 0 where it would divide by zero. Undefined where n = 0. `micro` of accuracy, alone
        defined of all: the share of known (image, class) cells predicted right.
    f1_best: F1 at the threshold that is best for these very images, so in-sample; f1_logit: that threshold as a logit,
        the largest of equally good ones (MedKLIP, MAVL); undefined where n = 0.
    """

    @property
    def excluded(self) -> dict[str, tuple[str, ...]]:
        """For each of the four means, the classes it leaves out."""
        return {key: tuple(name for name in self.names if self.value(key, name) is None) for key in AVERAGED}


def probability(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """sigmoid(logits) in float64, without overflow and without cancellation."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(logits, np.float64)))


def recognition(
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
    names: Sequence[str],
    draws: Draws | None = None,
    patient_of: NDArray[np.intp] | None = None,
) -> Recognition:
    """Recognition scores of N images and C classes, and their replicates where `draws` are given.

    logits: float [N, C]; p = sigmoid(logit). Ranking uses the logits, since p saturates; p >= 0.5 is logit >= 0.
    labels: integers [N, C]: 1, 0, or -1 for unknown.
    draws: of the patients of the dataset. patient_of: integers [N], the patient of each image.
    Raises ValueError for shapes that do not fit, other label values, a logit that is not finite, a patient that was not
    drawn from, or draws without patients.
    """
    logits, labels = _checked(logits, labels, names)
    weighting, patient = drawn_or_not(draws, patient_of, len(logits))
    # Two bytes for each patient and replicate, of which classes alone make use.
    weights = weighting.weights if len(names) else np.ones((1 + weighting.replicates, 1), np.uint16)
    values, right, cells, best_logit = _walked(logits, labels, patient.astype(np.int64, copy=False), weights)
    with np.errstate(invalid="ignore"):
        hamming = right / cells
    rows = {
        key: np.vstack(
            [column.T, mean_over_classes(column), hamming if key == "accuracy" else np.full_like(right, np.nan)]
        )
        for key, column in zip(FIELDS, values, strict=True)
    }
    n, positives = (labels >= 0).sum(axis=0), (labels == 1).sum(axis=0)
    alone = np.full((2, len(names) + 2, 1), np.nan)
    alone[0, :-2, 0] = ratio(positives, n)
    alone[1, :-2, 0] = best_logit
    first = {key: rows[key] for key in AVERAGED}
    return Recognition(
        names=tuple(names),
        counts={"n": n, "positives": positives},
        rows={"prevalence": alone[0], **first, **rows, "f1_logit": alone[1]},
    )


def _walked(
    logits: NDArray[np.floating], labels: NDArray[np.integer], patient: NDArray[np.int64], weights: NDArray[np.uint16]
) -> tuple[Float, Float, Float, Float]:
    """For each row of weights [R, G] the fields float64 [F, R, C], and over all classes the cells predicted right and
    those known, both [R]; and the logit of the best F1 of each class [C].

    The images of a class are sorted by their score once; a row is then one pass over them, which gives AUC, average
    precision, F1 and accuracy exactly, ties included.
    """
    if "numba" in sys.modules or labels.size * len(weights) > FEW_STEPS:
        from .walk import walk  # compiles on import, so only when needed
    else:
        from .small_walk import small_walk as walk

    values = np.full((len(FIELDS), len(weights), labels.shape[1]), np.nan)
    right, cells = np.zeros(len(weights)), np.zeros(len(weights))
    best_logit = np.full(labels.shape[1], np.nan)
    for c in range(labels.shape[1]):
        index = np.flatnonzero(labels[:, c] >= 0)
        if len(index) == 0:
            continue
        order = index[np.argsort(-logits[index, c].astype(np.float64), kind="stable")]
        score = logits[order, c].astype(np.float64)
        last = np.append(score[1:] != score[:-1], True)  # the last image of each distinct score
        truth = labels[order, c] == 1
        walked = walk(weights, patient[order], truth, last, patient[order][truth], int((score >= 0).sum()))
        values[:, :, c] = walked[:, : len(FIELDS)].T
        right += walked[:, len(FIELDS)]
        cells += walked[:, len(FIELDS) + 1]
        best_logit[c] = score[int(walked[0, len(FIELDS) + 2])]
    return values, right, cells, best_logit


def _checked(
    logits: NDArray[np.floating], labels: NDArray[np.integer], names: Sequence[str]
) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Both as arrays; raises ValueError unless they are valid arguments of `recognition`."""
    logits, labels = np.asarray(logits), np.asarray(labels)
    if logits.ndim != 2 or logits.shape[1] != len(names) or labels.shape != logits.shape:
        raise ValueError(
            f"logits and labels must both have shape [N, {len(names)}], got {logits.shape} and {labels.shape}"
        )
    if not np.isin(labels, (-1, 0, 1)).all():
        raise ValueError("labels must be 1, 0 or -1 (unknown)")
    if not np.isfinite(logits).all():
        image, column = np.argwhere(~np.isfinite(logits))[0]
        raise ValueError(f"the logit of image {image}, class {names[column]!r} is {logits[image, column]}")
    return logits, labels
