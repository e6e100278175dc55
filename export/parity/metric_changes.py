"""The effect of lower precision on the metrics: pointing hits that flip, and the change of Dice and AUC.

Maps are enlarged bilinearly to 224 x 224, the grid of the regions. A hit is a maximum inside the region; Dice is
that of the map at half of its range; AUC is that of a finding's logits over the images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .probes import probe_images

__all__ = ["SIDE", "Tally", "TrialImage", "probe_cases"]

Floats = NDArray[np.float32]
SIDE = 224
_CUT = 0.5  # of the map's range
_WORST = 5


@dataclass(frozen=True)
class TrialImage:
    """One image: `name` for the report, pixels uint8 [1, S, S] as the graph takes them, regions bool [SIDE, SIDE] by
    finding, and the findings it is positive for."""

    name: str
    pixels: NDArray[np.uint8]
    regions: Mapping[int, NDArray[np.bool_]]
    positive: frozenset[int]


@dataclass
class Tally:
    """Collects cases one by one; `findings` are the names of the columns of logits and maps."""

    findings: tuple[str, ...]
    _scores: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))
    _labels: list[list[bool]] = field(default_factory=list)
    _pairs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: TrialImage, before: tuple[Floats, Floats], after: tuple[Floats, Floats]) -> None:
        """Logits [F] and maps [F, h, w] of the float32 graph and of the lowered one."""
        for scores, (logits, _) in zip(self._scores, (before, after), strict=True):
            scores.append(logits)
        self._labels.append([number in case.positive for number in range(len(self.findings))])
        for number, region in case.regions.items():
            maps = [_enlarged(maps[number]) for _, maps in (before, after)]
            self._pairs.append(
                {
                    "image": case.name,
                    "finding": self.findings[number],
                    "hit": [_hit(one, region) for one in maps],
                    "dice": [_dice(one, region) for one in maps],
                    "logit": [float(logits[number]) for logits, _ in (before, after)],
                }
            )

    def summary(self) -> dict[str, Any]:
        """Numbers for the report: pairs [float32, lowered] of counts and means, largest changes, the worst pairs.

        AUC is null where no finding has both positive and negative images, hits and Dice where there are no regions.
        """
        hits = np.array([pair["hit"] for pair in self._pairs], bool).reshape(-1, 2)
        dice = np.array([pair["dice"] for pair in self._pairs], float).reshape(-1, 2)
        auc = np.array(self._aucs(), float).reshape(-1, 2)
        ordered = sorted(self._pairs, key=lambda pair: (pair["hit"][0] == pair["hit"][1], -_gap(pair["dice"])))
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
            "worst": [pair for pair in ordered[:_WORST] if pair["hit"][0] != pair["hit"][1] or _gap(pair["dice"]) > 0],
        }

    def _aucs(self) -> list[list[float]]:
        labels = np.array(self._labels, bool).reshape(-1, len(self.findings))
        both = [number for number in range(len(self.findings)) if 0 < labels[:, number].sum() < len(labels)]
        tables = [np.stack(scores) for scores in self._scores] if both else []
        return [[_auc(table[:, number], labels[:, number]) for table in tables] for number in both]


def probe_cases(size: int, findings: int) -> list[TrialImage]:
    """The ten probe pictures with fixed artificial rectangles for every finding; every other picture is positive.

    They measure how much the precision changes the results, not how good the model is.
    """
    random = np.random.Generator(np.random.PCG64(0))
    cases = []
    for number, pixels in enumerate(probe_images(size)):
        regions = {}
        for finding in range(findings):
            region = np.zeros((SIDE, SIDE), bool)
            (top, left), (high, wide) = random.integers(0, SIDE // 2, 2), random.integers(SIDE // 8, SIDE // 2, 2)
            region[top : top + high, left : left + wide] = True
            regions[finding] = region
        positive = frozenset(range(findings)) if number % 2 == 0 else frozenset()
        cases.append(TrialImage(f"probe picture {number + 1}", pixels, regions, positive))
    return cases


def _enlarged(values: Floats) -> Floats:
    from PIL import Image

    return np.asarray(Image.fromarray(np.ascontiguousarray(values)).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _hit(values: Floats, region: NDArray[np.bool_]) -> bool:
    return bool(region.flat[int(values.argmax())])


def _dice(values: Floats, region: NDArray[np.bool_]) -> float:
    low, high = float(values.min()), float(values.max())
    binary = values - low >= _CUT * (high - low)
    return float(2 * (binary & region).sum() / (binary.sum() + region.sum()))


def _auc(scores: Floats, labels: NDArray[np.bool_]) -> float:
    """Share of (positive, negative) pairs in the right order, ties one half."""
    difference: Any = scores[labels][:, None] - scores[~labels][None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def _gap(pair: list[float]) -> float:
    return abs(pair[0] - pair[1])


def _means(pairs: NDArray[np.float64]) -> list[float] | None:
    return [float(mean) for mean in pairs.mean(0)] if len(pairs) else None


def _largest(pairs: NDArray[np.float64]) -> float | None:
    return float(np.abs(pairs[:, 0] - pairs[:, 1]).max()) if len(pairs) else None
