"""Changes of the numbers of a cell: B minus A on the rows both scored, with paired intervals and p values."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.grounding.replicates import grounding_replicates
from ...metrics_gpu.grounding.scores import Grounding, grounding
from ...metrics_gpu.recognition.delong import auc_difference
from ...metrics_gpu.recognition.replicates import recognition_replicates
from ...metrics_gpu.recognition.scores import Recognition, recognition
from ...metrics_gpu.statistics.bootstrap import Draws, Interval, Replicates, draw_patients
from ...metrics_gpu.statistics.paired import paired_difference
from .align import Aligned, OnlyIn, Side
from .flips import RowChanges, row_changes
from .matching import Match

__all__ = ["METRICS", "CellChanges", "Change", "Resampling", "cell_changes"]

METRICS: Final[Mapping[str, str]] = {
    "pointing": "pointing",
    "dice_fixed": "Dice at 0.5",
    "dice_best": "Dice, best",
    "iou_fixed": "IoU at 0.5",
    "iou_best": "IoU, best",
    "auc": "AUC",
    "auprc": "AUPRC",
}
"""Compared numbers and how they are printed."""

_RANKING: Final = ("auc", "auprc")


@dataclass(frozen=True)
class Resampling:
    """Bootstrap replicates (0 for none), the seed, and the level of intervals."""

    replicates: int
    seed: int
    level: float = 0.95

    def draws(self, patients: int, dataset: str) -> Draws | None:
        """Resamples of a dataset's patients, of a seed of its own."""
        if not self.replicates or not patients:
            return None
        return draw_patients(patients, self.replicates, self.seed + zlib.crc32(dataset.encode()))


@dataclass(frozen=True)
class Change:
    """A number in both runs, as fractions. finding: a class, empty for the mean over classes.

    n: pairs, or images with a label, it rests on. change: b - a. interval, p: paired bootstrap over patients.
    delong, delong_p: of the AUC of one class. adjusted: the p value after Holm's correction, DeLong's where there is
    one. replicates: float64 [B] of the change of a mean over classes, NaN where undefined.
    """

    metric: str
    finding: str
    n: int
    a: float
    b: float
    interval: Interval | None = None
    p: float | None = None
    delong: Interval | None = None
    delong_p: float | None = None
    adjusted: float | None = None
    replicates: NDArray[np.float64] | None = None

    @property
    def change(self) -> float:
        """b - a."""
        return self.b - self.a

    @property
    def tested(self) -> float | None:
        """The p value that is corrected."""
        return self.p if self.delong_p is None else self.delong_p


@dataclass(frozen=True)
class CellChanges:
    """All changes of a cell. images, pairs: shared; whole: of the means over classes; classes: of each class."""

    match: Match
    title: str
    images: int
    pairs: int
    whole: tuple[Change, ...]
    classes: tuple[Change, ...]
    rows: RowChanges
    only_a: OnlyIn
    only_b: OnlyIn
    label_changes: tuple[tuple[str, str], ...]
    region_changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Numbers:
    """One run's numbers of the shared rows, with their replicates."""

    grounding: Grounding
    recognition: Recognition
    drawn: Mapping[str, Replicates]


def cell_changes(both: Aligned, resampling: Resampling, keep: int = 100) -> CellChanges:
    """Compares two aligned cells. keep: how many Dice changes of single pairs are listed."""
    draws = resampling.draws(both.patients, both.match.dataset)
    one, two = (_numbers(both, side, draws) for side in (both.a, both.b))
    return CellChanges(
        match=both.match,
        title=both.title,
        images=len(both.cases),
        pairs=len(both.image_of),
        whole=tuple(_changes(both, one, two, resampling, [""])),
        classes=tuple(_changes(both, one, two, resampling, both.findings)),
        rows=row_changes(both, one.grounding, two.grounding, keep),
        only_a=both.only_a,
        only_b=both.only_b,
        label_changes=both.label_changes,
        region_changes=both.region_changes,
    )


def _numbers(both: Aligned, side: Side, draws: Draws | None) -> _Numbers:
    names = both.findings if both.a.scored and both.b.scored else ()
    logits, labels = side.logits[:, : len(names)], both.labels[:, : len(names)]
    pair_patients = both.patient_of[both.image_of]
    found = grounding(side.counts, both.class_of, both.findings, side.options, hits=side.hits, pixels=side.pixels)
    drawn: dict[str, Replicates] = {}
    if draws is not None and len(both.image_of):
        drawn["grounding"] = grounding_replicates(
            side.counts,
            both.class_of,
            both.findings,
            draws,
            pair_patients,
            side.options,
            hits=side.hits,
            pixels=side.pixels,
        )
    if draws is not None and names and len(logits):
        drawn["recognition"] = recognition_replicates(logits, labels, names, draws, both.patient_of)
    return _Numbers(found, recognition(logits, labels, names), drawn)


def _changes(
    both: Aligned, one: _Numbers, two: _Numbers, resampling: Resampling, findings: tuple[str, ...] | list[str]
) -> Iterator[Change]:
    for metric in METRICS:
        if not both.fixed and metric.endswith("_fixed"):
            continue  # the protocol has no such threshold
        for finding in findings:
            a, b = _value(one, metric, finding), _value(two, metric, finding)
            if a is None or b is None:
                continue
            found = Change(metric, finding, _n(both, metric, finding), a, b)
            found = _tested(found, one, two, resampling.level)
            yield _delong(found, both, resampling.level) if metric == "auc" and finding else found


def _value(numbers: _Numbers, metric: str, finding: str) -> float | None:
    source: Recognition | Grounding = numbers.recognition if metric in _RANKING else numbers.grounding
    found: object = source.macro if isinstance(source, Grounding) else source
    if finding:
        found = next((item for item in source.classes if item.name == finding), None)
    value: float | None = getattr(found, metric, None)
    return value


def _n(both: Aligned, metric: str, finding: str) -> int:
    if metric in _RANKING:
        labels = both.labels[:, both.findings.index(finding)] if finding else both.labels
        return int((labels >= 0).sum())
    return int((both.class_of == both.findings.index(finding)).sum()) if finding else len(both.class_of)


def _tested(change: Change, one: _Numbers, two: _Numbers, level: float) -> Change:
    source = "recognition" if change.metric in _RANKING else "grounding"
    if source not in one.drawn:
        return change
    a, b = (numbers.drawn[source].of(change.metric, change.finding or "macro") for numbers in (one, two))
    found = paired_difference(change.b, change.a, b, a, level)
    kept = None if change.finding else b - a  # only means over findings go into means over datasets
    return replace(change, interval=found.interval, p=found.p, replicates=kept)


def _delong(change: Change, both: Aligned, level: float) -> Change:
    c = both.findings.index(change.finding)
    known = both.labels[:, c] >= 0
    labels = both.labels[known, c]
    if min(int((labels == 1).sum()), int((labels == 0).sum())) < 2:
        return change
    found = auc_difference(both.b.logits[known, c], both.a.logits[known, c], labels, level)
    return replace(change, delong=found.interval, delong_p=found.p)
