"""Recognition metrics per class and dataset (docs/metrics.md §7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..statistics.aggregate import macro_mean

__all__ = ["ClassRecognition", "Recognition", "check_recognition", "probability", "recognition"]


@dataclass(frozen=True)
class ClassRecognition:
    """Recognition of one class over the images whose label is known.

    n, positives: known labels and how many are 1; prevalence: positives / n.
    auc: area under the ROC curve, half credit for ties; None unless both label values occur.
    auprc: average precision; None without a positive. auprc_trapezoid: area under the linearly joined precision-recall
        curve, which is too kind to few positives (CARZero's scripts).
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
    """

    classes: tuple[ClassRecognition, ...]
    auc: float | None
    auprc: float | None
    f1: float | None
    accuracy: float | None
    hamming: float | None
    excluded: dict[str, tuple[str, ...]]


def probability(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    """sigmoid(logits) in float64, without overflow and without cancellation."""
    return np.exp(-np.logaddexp(0.0, -np.asarray(logits, np.float64)))


def recognition(logits: NDArray[np.floating], labels: NDArray[np.integer], names: Sequence[str]) -> Recognition:
    """Recognition scores of N images and C classes.

    logits: float [N, C]; p = sigmoid(logit). Ranking uses the logits, since p saturates; p >= 0.5 is logit >= 0.
    labels: integers [N, C]: 1, 0, or -1 for unknown.
    Raises ValueError for shapes that do not fit, other label values, or a logit that is not finite.
    """
    logits, labels = check_recognition(logits, labels, names)
    classes = tuple(_one(name, logits[:, c], labels[:, c]) for c, name in enumerate(names))
    known = labels >= 0
    right = ((logits >= 0) == (labels == 1))[known]
    columns = {f: [getattr(scores, f) for scores in classes] for f in ("auc", "auprc", "f1", "accuracy")}
    excluded = {
        field: tuple(name for name, value in zip(names, column, strict=True) if value is None)
        for field, column in columns.items()
    }
    return Recognition(
        classes,
        **{field: macro_mean(column) for field, column in columns.items()},
        hamming=float(right.mean()) if right.size else None,
        excluded=excluded,
    )


def check_recognition(
    logits: NDArray[np.floating], labels: NDArray[np.integer], names: Sequence[str]
) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Both as arrays; ValueError unless they are what `recognition` wants."""
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


def _one(name: str, logits: NDArray[np.floating], labels: NDArray[np.integer]) -> ClassRecognition:
    known = labels >= 0
    truth, score = labels[known] == 1, logits[known].astype(np.float64)
    n, positives = len(truth), int(truth.sum())
    if n == 0:
        return ClassRecognition(name, 0, 0)
    predicted = score >= 0
    hits = int((predicted & truth).sum())
    marked = int(predicted.sum()) + positives
    ranking = _Ranking.of(score, truth)
    f1_best, f1_logit = ranking.best_f1(positives)
    return ClassRecognition(
        name=name,
        n=n,
        positives=positives,
        prevalence=positives / n,
        auc=ranking.auc() if 0 < positives < n else None,
        auprc=ranking.average_precision() if positives else None,
        f1=2 * hits / marked if marked else 0.0,
        accuracy=float((predicted == truth).mean()),
        auprc_trapezoid=ranking.trapezoid() if positives else None,
        f1_best=f1_best,
        f1_logit=f1_logit,
    )


@dataclass(frozen=True, eq=False)
class _Ranking:
    """Images in order of falling score, at each distinct score: the score, positives and images from the top down to
    it, and how many of both have it."""

    score: NDArray[np.float64]
    hits: NDArray[np.float64]
    seen: NDArray[np.float64]
    new_hits: NDArray[np.float64]
    new_seen: NDArray[np.float64]

    @staticmethod
    def of(score: NDArray[np.float64], truth: NDArray[np.bool_]) -> _Ranking:
        order = np.argsort(-score, kind="stable")
        falling: NDArray[np.float64] = score[order]
        last = np.flatnonzero(np.append(falling[1:] != falling[:-1], True))
        hits, seen = np.cumsum(truth[order])[last].astype(np.float64), (last + 1).astype(np.float64)
        return _Ranking(falling[last], hits, seen, np.diff(hits, prepend=0.0), np.diff(seen, prepend=0.0))

    def auc(self) -> float:
        """Share of (positive, negative) pairs in the right order, half credit for ties."""
        alarms = self.new_seen - self.new_hits
        above = self.hits - 0.5 * self.new_hits
        return float((alarms * above).sum() / (self.hits[-1] * (self.seen[-1] - self.hits[-1])))

    def average_precision(self) -> float:
        """Sum over distinct scores of the step in recall times the precision."""
        return float((self.new_hits * self.hits / self.seen).sum() / self.hits[-1])

    def trapezoid(self) -> float:
        """Area under the linearly joined precision-recall curve, which begins at recall 0 with precision 1."""
        precision = self.hits / self.seen
        before = np.append(1.0, precision[:-1])
        return float((self.new_hits * (precision + before)).sum() / 2 / self.hits[-1])

    def best_f1(self, positives: int) -> tuple[float, float]:
        """Largest F1 over the thresholds that are scores, and the largest such threshold."""
        f1 = 2.0 * self.hits / (self.seen + positives)
        best = int(np.argmax(f1))
        return float(f1[best]), float(self.score[best])
