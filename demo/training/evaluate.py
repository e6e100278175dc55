"""Recognition and grounding of maps against masks, in plain NumPy (docs/metrics.md §2-§5, §7).

Independent of `metrics_gpu`: the demo model is evaluated in training by code that shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassResult", "judge", "print_results"]

THRESHOLDS = (np.arange(101) / 100).astype(np.float32)


@dataclass(frozen=True)
class ClassResult:
    """One finding: area under the ROC curve, hits of the maximum, best mean Dice over thresholds, Dice of all ones."""

    name: str
    positives: int
    auc: float
    pointing: float
    dice: float
    floor: float


def upsample(cells: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """[h, w] -> [size, size], bilinear with half-pixel centres."""
    for axis in (1, 0):
        count = cells.shape[axis]
        at = np.clip((np.arange(size) + 0.5) * count / size - 0.5, 0, count - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, count - 1)
        weight = (at - low).astype(np.float32)
        weight = weight[None, :] if axis else weight[:, None]
        cells = cells.take(low, axis) * (1 - weight) + cells.take(high, axis) * weight
    return cells


def auc(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """Mann-Whitney, half credit for ties."""
    wins = scores[labels][:, None] - scores[~labels][None, :]
    return float(((wins > 0) + 0.5 * (wins == 0)).mean())


def judge(
    names: Sequence[str],
    logits: NDArray[np.float32],
    maps: NDArray[np.float32],
    masks: Sequence[dict[str, NDArray[np.bool_]]],
) -> list[ClassResult]:
    """logits [N, Q], maps [N, Q, h, w], and per image the masks [S, S] of the findings that are present."""
    results = []
    for q, name in enumerate(names):
        labels = np.array([name in present for present in masks])
        hits, curves, floors = [], [], []
        for image in np.flatnonzero(labels).tolist():
            mask = masks[image][name]
            scaled = upsample(maps[image, q], mask.shape[0])
            hits.append(mask.flat[int(scaled.argmax())])
            scaled = (scaled - scaled.min()) / (scaled.max() - scaled.min())
            area = np.array([(scaled >= t).sum() for t in THRESHOLDS])
            overlap = np.array([(scaled[mask] >= t).sum() for t in THRESHOLDS])
            curves.append(2 * overlap / (area + mask.sum()))
            floors.append(2 * mask.sum() / (mask.size + mask.sum()))
        best = float(np.mean(curves, axis=0).max())
        score = auc(logits[:, q].astype(np.float64), labels)
        results.append(ClassResult(name, int(labels.sum()), score, float(np.mean(hits)), best, float(np.mean(floors))))
    return results


def print_results(results: Sequence[ClassResult]) -> None:
    """A table and the means over findings."""
    print(f"{'finding':<15}{'n':>5}{'AUC':>8}{'point':>8}{'Dice':>8}{'ones':>8}")
    for r in results:
        print(f"{r.name:<15}{r.positives:>5}{r.auc:>8.3f}{r.pointing:>8.3f}{r.dice:>8.3f}{r.floor:>8.3f}")
    mean = [float(np.mean([getattr(r, key) for r in results])) for key in ("auc", "pointing", "dice", "floor")]
    print(f"{'mean':<20}" + "".join(f"{value:>8.3f}" for value in mean) + f"   Dice / ones {mean[2] / mean[3]:.2f}")
