"""The numbers of a cell: which there are, what they rest on, and each with its interval and its bootstrap replicates.

Intervals follow the rules of metrics_gpu/statistics/intervals.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.recognition.scores import Recognition
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ....metrics_gpu.statistics.intervals import (
    MANY_PATIENTS,
    Interval,
    Shares,
    mean_interval,
    meaningful,
    percentile_interval,
    pointing_interval,
    shares,
)
from ....metrics_gpu.statistics.measured_numbers import Measured
from ..choices import Choices
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

_VARIANTS = {("auprc", "trapezoid"): "auprc_trapezoid", ("f1", "best"): "f1_best"}


def find_numbers(
    found: Mapping[str, Grounding | Recognition], choices: Choices, sample: Sample
) -> dict[tuple[str, str], Measured]:
    """All numbers of a cell by field and class; those of the dataset have an empty name.

    found: the sources of `FIELDS`; sample: what they rest on.
    """
    numbers = {}
    for name, (source, key) in FIELDS.items():
        scores = found[source]
        key = _VARIANTS.get((key, getattr(choices, key, "")), key)
        values: dict[str, float | None] = {item.name: getattr(item, key) for item in scores.classes}
        if isinstance(scores, Grounding):
            kind = choices.mean
            values[""] = getattr(getattr(scores, kind), key)
        elif key == "accuracy":
            kind, values[""] = "micro", scores.hamming  # over all known (image, class) cells
        else:
            kind, values[""] = "macro", macro_mean(values.values())
        if source == "pair" and len(scores.classes) != len(found["recognition"].classes):
            values[""] = None  # a mean over only some classes is not comparable with the others
        drawn, replicates = dict[str, Float](), scores.drawn
        if replicates is not None and key in replicates.classes and any(item.n for item in scores.classes):
            drawn = dict(zip(replicates.names, replicates.classes[key].T, strict=True))
            drawn[""] = replicates.of(key, kind)
        for part, value in values.items():
            if value is not None:
                interval = find_interval(scores, key, part, drawn.get(part), sample)
                numbers[name, part] = Measured(value, interval, drawn=drawn.get(part))
    return numbers


def find_interval(
    scores: Grounding | Recognition, key: str, name: str, drawn: Float | None, sample: Sample, level: float = 0.95
) -> Interval | None:
    """The interval of a field for a class, or (no name) for the dataset; None where it would mean nothing.

    scores: with the field. drawn: its replicates, float64 [B].
    """
    if drawn is None:
        return None
    if isinstance(scores, Grounding):
        used = [item.name for item in scores.classes if item.n]
        if key == "pointing" and (name or len(used) == 1):
            own = sample.pairs_of(name or used[0])
            return pointing_interval(scores.each[key][own], sample.pair_patient[own], drawn, level)
        parts = sample.shares(scores.each[key], name)
        return mean_interval(drawn, parts, level, None if key == "delta_dice" else (0.0, 1.0))
    names = [item.name for item in scores.classes if name in ("", item.name) and getattr(item, key) is not None]
    # F1 and accuracy are defined without a positive, and so are their means over classes.
    ranked = key.startswith("au") or (name and key != "accuracy")
    if sample.read < MANY_PATIENTS or (ranked and not sample.ranked(names)):
        return None
    return percentile_interval(drawn, level)


def grounding_interval(scores: Grounding, key: str, name: str, sample: Sample, level: float = 0.95) -> Interval | None:
    """`find_interval` of a field of `scores`, with its own replicates; no name: the unweighted mean over classes."""
    drawn = None if scores.drawn is None else scores.drawn.of(key, name or "macro")
    return find_interval(scores, key, name, drawn, sample, level)


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
        own = self.pairs_of(name)
        columns = self.class_of[own]
        if self.pooled and not name:
            own = own[~np.isnan(values[own])]
            columns = np.zeros(len(own), np.intp)
        return shares(values[own], columns, self.pair_patient[own], len(self.names))

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
        found = np.zeros(len(self.names))
        for name in names:
            if name not in self._auc_parts:
                column = self.findings.index(name)
                known = self.labels[:, column] >= 0
                label, score = self.labels[known, column], self.logits[known, column]
                self._auc_parts[name] = auc_parts(score, label, self.image_patient[known], len(self.names))
            found += self._auc_parts[name] / len(names)
        return found


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
