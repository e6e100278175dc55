"""The numbers of a cell: which there are, what they rest on, and each with its interval and its bootstrap replicates.

Intervals follow the rules of metrics_gpu/statistics/intervals.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.recognition.scores import Recognition
from ....metrics_gpu.statistics.intervals import (
    MANY_PATIENTS,
    Shares,
    mean_interval,
    meaningful,
    percentile_interval,
    pointing_interval,
    shares,
)
from ....metrics_gpu.statistics.measured_numbers import Measured
from ..load_rows import CellRows
from ..selected_pairs import Patients, ScoredPairs

FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "pointing": ("grounding", "pointing"),
    "dice_best": ("grounding", "dice_best"),
    "iou_best": ("grounding", "iou_best"),
    "dice_fixed": ("grounding", "dice_fixed"),
    "iou_fixed": ("grounding", "iou_fixed"),
    "delta_dice": ("grounding", "delta_dice"),
    "floor_dice": ("grounding", "floor_dice"),
    "floor_iou": ("grounding", "floor_iou"),
    "chance": ("grounding", "chance"),
    "dice_cross_fitted": ("cross_fitted", "dice_best"),
    "iou_cross_fitted": ("cross_fitted", "iou_best"),
    "delta_cross_fitted": ("cross_fitted", "delta_dice"),
    "auc": ("recognition", "auc"),
    "auprc": ("recognition", "auprc"),
    "f1": ("recognition", "f1"),
    "accuracy": ("recognition", "accuracy"),
    "pair_f1": ("pair", "f1"),
    "pair_accuracy": ("pair", "accuracy"),
}
"""A number's name -> the source it comes from and its field there."""

GROUNDING: Final = tuple(name for name, (source, _) in FIELDS.items() if source in ("grounding", "cross_fitted"))
RECOGNITION: Final = tuple(name for name, (source, _) in FIELDS.items() if source in ("recognition", "pair"))

BEST: Final = ("dice_best", "iou_best", "delta_dice")
"""The fields that rest on a best threshold."""

Float = NDArray[np.float64]


def number_of(scores: Grounding | Recognition, key: str, name: str, sample: Sample, level: float = 0.95) -> Measured:
    """A field of `scores` for a class, or (no name) for all, with its replicates and its interval.

    There is no interval where it would mean nothing. sample: what the scores rest on.
    """
    micro = sample.pooled if isinstance(scores, Grounding) else key == "accuracy"
    number = scores.number(key, name or ("micro" if micro else "macro"))
    if number.drawn is None:
        return number
    if isinstance(scores, Grounding):
        with_pairs = [item for item in scores.names if scores.count("n", item)]
        if key == "pointing" and (name or len(with_pairs) == 1):
            pairs = sample.pairs_of(name or with_pairs[0])
            hits, patients = scores.each[key][pairs], sample.pair_patient[pairs]
            return replace(number, interval=pointing_interval(hits, patients, number.drawn, level))
        parts, bounds = sample.shares(scores.each[key], name), None if key == "delta_dice" else (0.0, 1.0)
        return replace(number, interval=mean_interval(number.drawn, parts, level, bounds))
    names = [item for item in scores.names if name in ("", item) and scores.value(key, item) is not None]
    # F1 and accuracy are defined without a positive, and so are their means over classes.
    ranked = key.startswith("au") or (name and key != "accuracy")
    if sample.read < MANY_PATIENTS or (ranked and not sample.ranked(names)):
        return number
    return replace(number, interval=percentile_interval(number.drawn, level))


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs and images of a cell.

    names: of the dataset's patients, each with the dataset, so that no two datasets share one. findings: the classes.
    class_of, pair_patient: [P], of the pairs. image_patient: [N], of the readable images; labels: [N, C]; logits:
    float [N, C], C = 0 where there are no scores. seed: of all resampling. pooled: whether a mean over classes is
    weighted by their pairs.
    """

    names: tuple[str, ...]
    findings: tuple[str, ...]
    class_of: NDArray[np.intp]
    pair_patient: NDArray[np.intp]
    image_patient: NDArray[np.intp]
    labels: NDArray[np.int8]
    logits: NDArray[np.floating]
    seed: int
    pooled: bool
    _ranked: dict[str, bool] = field(default_factory=dict, init=False)
    _auc_parts: dict[str, Float] = field(default_factory=dict, init=False)

    def pairs_of(self, name: str) -> NDArray[np.intp]:
        """Indices of the pairs of a class, or (no name) of all."""
        if not name:
            return np.arange(len(self.class_of))
        return np.flatnonzero(self.class_of == self.findings.index(name))

    def shares(self, values: Float, name: str = "") -> Shares | None:
        """What patients add to the mean of `values` [P] over the pairs of a class, or (no name) over classes."""
        indices = self.pairs_of(name)
        columns = self.class_of[indices]
        if self.pooled and not name:
            indices = indices[~np.isnan(values[indices])]
            columns = np.zeros(len(indices), np.intp)
        return shares(values[indices], columns, self.pair_patient[indices], len(self.names))

    def ranked(self, names: Iterable[str]) -> bool:
        """Whether intervals and tests of AUC mean something: enough patients with and without each finding."""
        for name in names:
            if name not in self._ranked:
                label = self.labels[:, self.findings.index(name)]
                counts = (len(np.unique(self.image_patient[label == value])) for value in (1, 0))
                self._ranked[name] = meaningful(**dict(zip(("positives", "negatives"), counts, strict=True)))
            if not self._ranked[name]:
                return False
        return True

    @cached_property
    def read(self) -> int:
        """The number of patients with a readable image."""
        return len(np.unique(self.image_patient))

    def auc_parts(self, names: Iterable[str]) -> Float | None:
        """What patients add to the deviation of the mean AUC of classes; None if it has no test."""
        from ....metrics_gpu.recognition.delong import auc_parts

        names = list(names)
        if not (names and self.logits.shape[1] and self.ranked(names)):
            return None
        total = np.zeros(len(self.names))
        for name in names:
            if name not in self._auc_parts:
                column = self.findings.index(name)
                labelled = self.labels[:, column] >= 0
                label, score = self.labels[labelled, column], self.logits[labelled, column]
                self._auc_parts[name] = auc_parts(score, label, self.image_patient[labelled], len(self.names))
            total += self._auc_parts[name] / len(names)
        return total


def sample_of(rows: CellRows, pairs: ScoredPairs, patients: Patients, seed: int, *, pooled: bool = False) -> Sample:
    """What the numbers of a cell rest on; `pairs`: those that count, with their patients."""
    assert pairs.patient_of is not None
    return Sample(
        names=tuple(f"{patients.dataset}/{name}" for name in patients.number),
        findings=pairs.names,
        class_of=pairs.class_of,
        pair_patient=pairs.patient_of,
        image_patient=patients.of_images(rows),
        labels=rows.labels,
        logits=rows.logits[:, : len(rows.findings) if rows.scored else 0],
        seed=seed,
        pooled=pooled,
    )
