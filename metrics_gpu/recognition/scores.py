"""Recognition metrics per class and dataset (docs/metrics.md §7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws, Replicates, drawn_or_not, macro_mean, mean_over_classes
from ..statistics.measured_numbers import Measured

Float = NDArray[np.float64]

FIELDS: Final = ("auc", "auprc", "auprc_trapezoid", "f1", "f1_best", "accuracy")
"""Numbers of a class that have replicates, in the order of the walk's columns."""

_AVERAGED: Final = ("auc", "auprc", "f1", "accuracy")


@dataclass(frozen=True)
class ClassRecognition:
    """Recognition of one class over the images whose label is known.

    n, positives: known labels and how many are 1; prevalence: positives / n.
    auc: area under the ROC curve, half credit for ties; None unless both label values occur.
    auprc: average precision; None without a positive. auprc_trapezoid: area under the linearly joined precision-recall
        curve, which is too high for few positives (CARZero's scripts).
    f1, accuracy: at p >= 0.5; F1 is 0 where it would divide by zero. None where n = 0.
    f1_best: F1 at the threshold that is best for these very images, so in-sample; f1_logit: that threshold as a logit,
        the largest of equally good ones (MedKLIP, MAVL); None where n = 0.
    """

    name: str
    n: int
    positives: int
    prevalence: float | None = None
    auc: float | None = None
    auprc: float | None = None
    f1: float | None = None
    accuracy: float | None = None
    auprc_trapezoid: float | None = None
    f1_best: float | None = None
    f1_logit: float | None = None


@dataclass(frozen=True)
class Recognition:
    """Recognition of one model on one dataset.

    auc, auprc, f1, accuracy: unweighted means over the classes where they are defined.
    hamming: share of known (image, class) cells predicted right.
    excluded: for each of the four means, the classes it leaves out.
    drawn: bootstrap replicates of `FIELDS`, None without draws: of each class, in `macro` of the means over
        the classes that are defined in a replicate, and in `micro` of hamming under the field `accuracy`.
    """

    classes: tuple[ClassRecognition, ...]
    auc: float | None
    auprc: float | None
    f1: float | None
    accuracy: float | None
    hamming: float | None
    excluded: dict[str, tuple[str, ...]]
    drawn: Replicates | None = field(default=None, repr=False, compare=False)

    def number(self, field: str, name: str = "") -> Measured:
        """One of `FIELDS` with its replicates, of a class or (no name) of all classes: their mean, of accuracy
        `hamming`; empty where it is not defined."""
        used = [item for item in self.classes if name in ("", item.name)]
        mean = "micro" if field == "accuracy" else "macro"
        value = macro_mean(getattr(item, field) for item in used)
        if mean == "micro" and not name:
            value = self.hamming
        if value is None:
            return Measured()
        drawn = None if self.drawn is None else self.drawn.of(field, name or mean)
        return Measured(value, n=sum(item.n for item in used), drawn=drawn)


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
    macro = dict(zip(FIELDS, (mean_over_classes(column) for column in values), strict=True))
    with np.errstate(invalid="ignore"):
        hamming = right / cells
    classes = tuple(_class_scores(name, labels[:, c], values[:, 0, c], best_logit[c]) for c, name in enumerate(names))
    excluded = {
        field: tuple(scores.name for scores in classes if getattr(scores, field) is None) for field in _AVERAGED
    }
    drawn = None
    if draws is not None:
        drawn = Replicates(
            tuple(names),
            {field: column[1:] for field, column in zip(FIELDS, values, strict=True)},
            {field: column[1:] for field, column in macro.items()},
            {"accuracy": hamming[1:]},
        )
    means = {field: _defined(macro[field][0]) for field in _AVERAGED}
    return Recognition(classes, **means, hamming=_defined(hamming[0]), excluded=excluded, drawn=drawn)


def _walked(
    logits: NDArray[np.floating], labels: NDArray[np.integer], patient: NDArray[np.int64], weights: NDArray[np.uint16]
) -> tuple[Float, Float, Float, Float]:
    """For each row of weights [R, G] the fields float64 [F, R, C], and over all classes the cells predicted right and
    those known, both [R]; and the logit of the best F1 of each class [C].

    The images of a class are sorted by their score once; a row is then one pass over them, which gives AUC, average
    precision, F1 and accuracy exactly, ties included.
    """
    from .walk import walk  # compiles on import, so only when needed

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


def _class_scores(name: str, labels: NDArray[np.integer], row: Float, best_logit: float) -> ClassRecognition:
    n, positives = int((labels >= 0).sum()), int((labels == 1).sum())
    fields = {field: _defined(value) for field, value in zip(FIELDS, row, strict=True)}
    prevalence = positives / n if n else None
    return ClassRecognition(name, n, positives, prevalence, f1_logit=_defined(best_logit), **fields)


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


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
