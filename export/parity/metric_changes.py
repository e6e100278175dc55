"""The effect of lower precision on the metrics: pointing hits that flip, and the change of pointing, Dice and AUC.

All numbers are those of an evaluation by the default protocol (docs/metrics.md §2 to §5): pointing and Dice at 0.5 of
the swept map, AUC of the mean logit of a finding's positive prompts, and means over findings. Intervals are paired:
both graphs are resampled together, by patient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.grounding.curves import dice_curves
from ...metrics_gpu.recognition.delong import auc_difference, auc_estimate, auc_parts
from ...metrics_gpu.statistics.bootstrap import Draws, Interval, draw_patients, patient_index
from ...metrics_gpu.statistics.intervals import mean_interval, meaningful, shares
from ...metrics_gpu.sweep.masks import GRID, pack_masks
from ...metrics_gpu.sweep.sweep import sweep
from .probes import probe_images

__all__ = ["METRICS", "Outcome", "Tally", "TrialImage", "outcome", "probe_cases"]

Floats = NDArray[np.float32]
METRICS: Final = ("pointing", "dice", "auc")
"""The numbers whose change is given with an interval."""
_HALF = 50  # the level of the threshold 0.5
_WORST = 5
_WHOLE = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class TrialImage:
    """One image: `name` for the report, pixels uint8 [1, S, S] as the graph takes them, regions on the evaluation grid
    as packed bits uint8 [224, 28] by finding, the labels that are known, the part of the image that the model sees, and
    the patient."""

    name: str
    pixels: NDArray[np.uint8]
    regions: Mapping[int, NDArray[np.uint8]]
    labels: Mapping[int, bool]
    frame: tuple[float, float, float, float] = _WHOLE
    patient: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one graph answers for an image: logits [F], and hit and Dice of each finding with a region."""

    logits: Floats
    hits: Mapping[int, bool]
    dice: Mapping[int, float]


def outcome(case: TrialImage, logits: Floats, maps: Floats) -> Outcome:
    """The outcome of logits [F] and maps [F, h, w]."""
    asked = list(case.regions)
    if not asked:
        return Outcome(logits, {}, {})
    masks, frames = np.stack([case.regions[number] for number in asked]), np.tile(case.frame, (len(asked), 1))
    counts = sweep(np.ascontiguousarray(maps[asked]), masks, frames=frames.astype(np.float64))
    dice = dice_curves(counts)[:, _HALF]
    return Outcome(
        logits,
        dict(zip(asked, counts.hit.tolist(), strict=True)),
        dict(zip(asked, dice.tolist(), strict=True)),
    )


@dataclass
class Tally:
    """Collects cases one by one; `findings` are the names of the columns of logits and maps."""

    findings: tuple[str, ...]
    _scores: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))
    _labels: list[list[float]] = field(default_factory=list)
    _patients: list[str] = field(default_factory=list)
    _pairs: list[dict[str, Any]] = field(default_factory=list)
    _places: list[tuple[int, int]] = field(default_factory=list)  # image and finding of each pair

    def add(self, case: TrialImage, before: Outcome, after: Outcome) -> None:
        """The outcomes of the float32 graph and of the lowered one."""
        for scores, found in zip(self._scores, (before, after), strict=True):
            scores.append(found.logits)
        self._labels.append([case.labels.get(number, np.nan) for number in range(len(self.findings))])
        for number in case.regions:
            self._places.append((len(self._patients), number))
            self._pairs.append(
                {
                    "image": case.name,
                    "finding": self.findings[number],
                    "hit": [found.hits[number] for found in (before, after)],
                    "dice": [found.dice[number] for found in (before, after)],
                    "logit": [float(found.logits[number]) for found in (before, after)],
                }
            )
        self._patients.append(case.patient or case.name)

    def summary(self) -> dict[str, Any]:
        """Numbers for the report: pairs [float32, lowered] of counts and means, largest changes, the worst pairs.

        `changes` has lowered minus float32 of each of `METRICS` with its 95 % interval, None without one. AUC is null
        where no finding has both positive and negative images, hits and Dice where there are no regions.
        """
        hits = np.array([pair["hit"] for pair in self._pairs], bool).reshape(-1, 2)
        dice = np.array([pair["dice"] for pair in self._pairs], float).reshape(-1, 2)
        columns = self._columns()
        tables = [np.stack(scores) if scores else np.zeros((0, len(self.findings))) for scores in self._scores]
        aucs = [[auc_estimate(table[of, n], label).auc for table in tables] for n, of, label in columns]
        auc = np.array(aucs, float).reshape(-1, 2)
        ordered = sorted(self._pairs, key=lambda pair: (pair["hit"][0] == pair["hit"][1], -_gap(pair["dice"])))
        changes = {"pointing": self._mean_change(hits.astype(float)), "dice": self._mean_change(dice)}
        return {
            "images": len(self._labels),
            "findings": len(self.findings),
            "pairs": len(self._pairs),
            "hits": [int(count) for count in hits.sum(0)] if len(hits) else None,
            "hits_flipped": int((hits[:, 0] != hits[:, 1]).sum()),
            "dice": _means(dice),
            "dice_change": _largest(dice),
            "auc": _means(auc),
            "auc_change": _largest(auc),
            "changes": {**changes, "auc": self._auc_change(auc, columns, tables)},
            "worst": [pair for pair in ordered[:_WORST] if pair["hit"][0] != pair["hit"][1] or _gap(pair["dice"]) > 0],
        }

    def _columns(self) -> list[tuple[int, NDArray[np.intp], NDArray[np.int64]]]:
        """Finding, its images and their labels, of the findings that have both labels."""
        labels = np.array(self._labels, float).reshape(-1, len(self.findings))
        found = []
        for number in range(len(self.findings)):
            known = np.flatnonzero(~np.isnan(labels[:, number]))
            own = labels[known, number].astype(np.int64)
            if 0 < own.sum() < len(own):
                found.append((number, known, own))
        return found

    def _mean_change(self, values: NDArray[np.float64]) -> dict[str, float | None] | None:
        """The change of the mean over findings of the mean over pairs; values: [P, 2]."""
        if not len(values):
            return None
        images, class_of = np.array(self._places, np.intp).T
        patient_of, patients = patient_index([self._patients[image] for image in images])
        gaps = values[:, 1] - values[:, 0]
        parts = shares(gaps, class_of, patient_of, patients)
        drawn = _replicates(gaps, class_of, patient_of, draw_patients(patients))
        interval = mean_interval(drawn[1:], parts, bounds=None)
        return _change(float(drawn[0]), interval, patients)

    def _auc_change(self, auc: NDArray[np.float64], columns: Any, tables: Any) -> dict[str, float | None] | None:
        """The change of the mean AUC over the findings with enough patients of each label, with DeLong's interval."""
        patient_of, patients = patient_index(self._patients)
        gaps, parts = [], []
        for (number, of, label), (before, after) in zip(columns, auc, strict=True):
            own = patient_of[of]
            if meaningful(positives=len(np.unique(own[label == 1])), negatives=len(np.unique(own[label == 0]))):
                one, two = (auc_parts(table[of, number], label, own, patients) for table in tables)
                gaps.append(after - before)
                parts.append(two - one)
        if not gaps:
            return None
        change = float(np.mean(gaps))
        return _change(change, auc_difference(change, np.mean(parts, axis=0)).interval, patients)


def probe_cases(size: int, findings: int) -> list[TrialImage]:
    """The ten probe pictures with fixed artificial rectangles for every finding; every other picture is positive.

    They measure how much the precision changes the results, not how good the model is.
    """
    random = np.random.Generator(np.random.PCG64(0))
    side, cases = GRID[0], []
    for number, pixels in enumerate(probe_images(size)):
        regions = {}
        for finding in range(findings):
            region = np.zeros(GRID, bool)
            (top, left), (high, wide) = random.integers(0, side // 2, 2), random.integers(side // 8, side // 2, 2)
            region[top : top + high, left : left + wide] = True
            regions[finding] = pack_masks(region[None])[0]
        labels = dict.fromkeys(range(findings), number % 2 == 0)
        cases.append(TrialImage(f"probe picture {number + 1}", pixels, regions, labels))
    return cases


def _replicates(
    values: NDArray[np.float64], class_of: NDArray[np.intp], patient_of: NDArray[np.intp], draws: Draws
) -> NDArray[np.float64]:
    """The mean over classes of the mean over pairs, in the estimate and in each replicate: float64 [1 + B]."""
    columns = class_of[:, None] == np.unique(class_of)
    sums = draws.sums(patient_of, np.hstack([columns * values[:, None], columns.astype(float)]))
    totals, counts = np.split(sums, 2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: NDArray[np.float64] = np.nanmean(np.where(counts > 0, totals / counts, np.nan), axis=1)
    return found


def _change(change: float, interval: Interval | None, patients: int) -> dict[str, float | None]:
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {"change": change, "low": low, "high": high, "patients": patients}


def _gap(pair: list[float]) -> float:
    return abs(pair[0] - pair[1])


def _means(pairs: NDArray[np.float64]) -> list[float] | None:
    return [float(mean) for mean in pairs.mean(0)] if len(pairs) else None


def _largest(pairs: NDArray[np.float64]) -> float | None:
    return float(np.abs(pairs[:, 0] - pairs[:, 1]).max()) if len(pairs) else None
