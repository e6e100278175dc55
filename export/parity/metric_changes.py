"""The effect of lower precision on the metrics: pointing hits that flip, and the change of pointing, Dice and AUC.

All numbers follow the default protocol of an evaluation (docs/metrics.md §2 to §5): pointing and Dice at 0.5 of
the swept map, AUC of the mean logit of a finding's positive prompts, and means over findings. Intervals are paired:
both graphs are resampled together, by patient. The metrics themselves are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from .probes import probe_images

Floats = NDArray[np.float32]
METRICS: Final = ("pointing", "dice", "auc")
"""The numbers whose change is given with an interval."""
_SIDE: Final = 224  # of the evaluation grid (docs/metrics.md §2)
_WORST = 5
_WHOLE = (0.0, 0.0, 1.0, 1.0)


class Change(Protocol):
    """A paired difference, the ends of its interval if it has one, and the number of patients."""

    @property
    def value(self) -> float: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def patients(self) -> int: ...


class TrialMetrics(Protocol):
    """The metrics of an evaluation: export.cli.radiographs has them.

    least_patients: with fewer a change has no interval. pairs: hits and Dice, [P] each, of maps [P, h, w] and regions
    bool [P, 224, 224] of one image. mean_change: of two means over findings of the mean over pairs; auc: of each
    finding, NaN without both labels, from scores and labels [N, F]; auc_change: of its mean over the findings with
    enough patients. A change is None without any pair.
    """

    @property
    def least_patients(self) -> int: ...
    def pairs(
        self, maps: Floats, regions: NDArray[np.bool_], frame: tuple[float, float, float, float], /
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
    def mean_change(
        self, a: NDArray[np.float64], b: NDArray[np.float64], findings: Sequence[int], patients: Sequence[str], /
    ) -> Change | None: ...
    def auc(self, scores: Floats, labels: NDArray[np.float64], /) -> NDArray[np.float64]: ...
    def auc_change(
        self, a: Floats, b: Floats, labels: NDArray[np.float64], patients: Sequence[str], /
    ) -> Change | None: ...


@dataclass(frozen=True)
class TrialImage:
    """One image: `name` for the report, pixels uint8 [1, S, S] as the graph takes them, regions on the evaluation grid,
    bool [224, 224], by finding, the labels that are known, the part of the image that the model sees, and
    the patient."""

    name: str
    pixels: NDArray[np.uint8]
    regions: Mapping[int, NDArray[np.bool_]]
    labels: Mapping[int, bool]
    frame: tuple[float, float, float, float] = _WHOLE
    patient: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one graph answers for an image: logits [F], and hit and Dice of each finding with a region."""

    logits: Floats
    hits: Mapping[int, bool]
    dice: Mapping[int, float]


def outcome(case: TrialImage, logits: Floats, maps: Floats, metrics: TrialMetrics) -> Outcome:
    """The outcome of logits [F] and maps [F, h, w]."""
    asked = list(case.regions)
    if not asked:
        return Outcome(logits, {}, {})
    hits, dice = metrics.pairs(maps[asked], np.stack([case.regions[number] for number in asked]), case.frame)
    return Outcome(
        logits,
        dict(zip(asked, (hits > 0).tolist(), strict=True)),
        dict(zip(asked, dice.tolist(), strict=True)),
    )


@dataclass
class Tally:
    """Collects cases one by one; `findings` are the names of the columns of logits and maps."""

    findings: tuple[str, ...]
    metrics: TrialMetrics
    _scores: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))
    _labels: list[list[float]] = field(default_factory=list)
    _patients: list[str] = field(default_factory=list)
    _pairs: list[dict[str, Any]] = field(default_factory=list)
    _places: list[tuple[int, int]] = field(default_factory=list)  # image and finding of each pair

    def add(self, case: TrialImage, before: Outcome, after: Outcome) -> None:
        """The outcomes of the float32 graph and of the lowered one."""
        for scores, outcome_of_graph in zip(self._scores, (before, after), strict=True):
            scores.append(outcome_of_graph.logits)
        self._labels.append([case.labels.get(number, np.nan) for number in range(len(self.findings))])
        for number in case.regions:
            self._places.append((len(self._patients), number))
            self._pairs.append(
                {
                    "image": case.name,
                    "finding": self.findings[number],
                    "hit": [outcome_of_graph.hits[number] for outcome_of_graph in (before, after)],
                    "dice": [outcome_of_graph.dice[number] for outcome_of_graph in (before, after)],
                    "logit": [float(outcome_of_graph.logits[number]) for outcome_of_graph in (before, after)],
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
        empty = np.zeros((0, len(self.findings)))
        before, after = (np.stack(scores) if scores else empty.astype(np.float32) for scores in self._scores)
        labels = np.array(self._labels, float) if self._labels else empty
        aucs = np.stack([self.metrics.auc(scores, labels) for scores in (before, after)], axis=1)
        auc = aucs[~np.isnan(aucs[:, 0])]
        ordered = sorted(self._pairs, key=lambda pair: (pair["hit"][0] == pair["hit"][1], -_gap(pair["dice"])))
        changes = {
            "pointing": self._mean_change(hits.astype(float)),
            "dice": self._mean_change(dice),
            "auc": _change(self.metrics.auc_change(before, after, labels, self._patients)),
        }
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
            "changes": changes,
            "worst": [pair for pair in ordered[:_WORST] if pair["hit"][0] != pair["hit"][1] or _gap(pair["dice"]) > 0],
        }

    def _mean_change(self, values: NDArray[np.float64]) -> dict[str, float | None] | None:
        """The change of the mean over findings of the mean over pairs; values: [P, 2]."""
        numbers, patients = [number for _, number in self._places], [self._patients[image] for image, _ in self._places]
        return _change(self.metrics.mean_change(values[:, 0], values[:, 1], numbers, patients))


def probe_cases(size: int, findings: int) -> list[TrialImage]:
    """The ten probe pictures with fixed artificial rectangles for every finding; every other picture is positive.

    They measure how much the precision changes the results, not how good the model is.
    """
    random = np.random.Generator(np.random.PCG64(0))
    cases = []
    for number, pixels in enumerate(probe_images(size)):
        regions = {}
        for finding in range(findings):
            region = np.zeros((_SIDE, _SIDE), bool)
            (top, left), (high, wide) = random.integers(0, _SIDE // 2, 2), random.integers(_SIDE // 8, _SIDE // 2, 2)
            region[top : top + high, left : left + wide] = True
            regions[finding] = region
        labels = dict.fromkeys(range(findings), number % 2 == 0)
        cases.append(TrialImage(f"probe picture {number + 1}", pixels, regions, labels))
    return cases


def _change(difference: Change | None) -> dict[str, float | None] | None:
    if difference is None:
        return None
    return {"change": difference.value, "low": difference.low, "high": difference.high, "patients": difference.patients}


def _gap(pair: list[float]) -> float:
    return abs(pair[0] - pair[1])


def _means(pairs: NDArray[np.float64]) -> list[float] | None:
    return [float(mean) for mean in pairs.mean(0)] if len(pairs) else None


def _largest(pairs: NDArray[np.float64]) -> float | None:
    return float(np.abs(pairs[:, 0] - pairs[:, 1]).max()) if len(pairs) else None
