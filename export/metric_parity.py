"""What lower precision does to the metrics: hits that flip, and the change of Dice and AUC, on the probe pictures.

Regions and labels are made up and fixed (there is no data set at an export), so the numbers say how much the precision
changes, not how good the model is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["metric_changes"]

Floats = NDArray[np.float32]
_CUT = 0.5  # of the normalised map, for Dice


def metric_changes(
    reference: tuple[Floats, Floats], other: tuple[Floats, Floats], seed: int = 0
) -> dict[str, float | int]:
    """Logits [B, Q] and saliency [B, Q, h, w] of the model and of the graph, for the same pictures and prompts.

    Returns `pairs`, `hits_flipped` (pairs whose maximum is in the region for one and not for the other),
    `dice_change` and `auc_change` (the largest absolute change: of a pair's Dice at half of the normalised map, of a
    prompt's AUC over the pictures).
    """
    random = np.random.Generator(np.random.PCG64(seed))
    (logits, maps), (other_logits, other_maps) = reference, other
    batch, queries, rows, columns = maps.shape
    regions = np.zeros(maps.shape, bool)
    for index in np.ndindex(batch, queries):
        top, left = random.integers(0, rows // 2 + 1), random.integers(0, columns // 2 + 1)
        regions[index][top : top + (rows + 1) // 2, left : left + (columns + 1) // 2] = True
    labels = np.arange(batch) % 2 == 0
    hits = [_hit(values, regions) for values in (maps, other_maps)]
    dice = [_dice(values, regions) for values in (maps, other_maps)]
    auc = [np.array([_auc(values[:, q], labels) for q in range(queries)]) for values in (logits, other_logits)]
    return {
        "pairs": batch * queries,
        "hits_flipped": int((hits[0] != hits[1]).sum()),
        "dice_change": float(np.abs(dice[0] - dice[1]).max()),
        "auc_change": float(np.abs(auc[0] - auc[1]).max()),
    }


def _hit(maps: Floats, regions: NDArray[np.bool_]) -> NDArray[np.bool_]:
    flat = maps.reshape(*maps.shape[:2], -1)
    found: NDArray[np.bool_] = np.take_along_axis(regions.reshape(flat.shape), flat.argmax(-1)[..., None], axis=-1)[
        ..., 0
    ]
    return found


def _dice(maps: Floats, regions: NDArray[np.bool_]) -> NDArray[np.float64]:
    low, high = (edge((2, 3), keepdims=True) for edge in (maps.min, maps.max))
    binary = (maps - low) / np.maximum(high - low, np.finfo(np.float32).tiny) >= _CUT
    overlap, total = (binary & regions).sum((2, 3)), binary.sum((2, 3)) + regions.sum((2, 3))
    result: NDArray[np.float64] = 2 * overlap / total
    return result


def _auc(scores: Floats, labels: NDArray[np.bool_]) -> float:
    """Share of (positive, negative) pairs in the right order, ties one half."""
    difference: Any = scores[labels][:, None] - scores[~labels][None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())
