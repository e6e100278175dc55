"""Scores of each pair at each threshold (docs/metrics.md §4 and §5)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..sweep.counts import Counts
from .protocols import Ties

__all__ = ["dice_curves", "iou_curves", "pointing_hits"]


def dice_curves(counts: Counts, levels: slice = slice(None)) -> NDArray[np.float64]:
    """Dice of each pair at each threshold, or at some, float64 [P, 101]; raises ValueError if a pair has no region."""
    _need_regions(counts)
    return 2.0 * counts.overlap[:, levels] / (counts.area[:, levels].astype(np.int64) + counts.region[:, None])


def iou_curves(counts: Counts, levels: slice = slice(None)) -> NDArray[np.float64]:
    """IoU of each pair at each threshold, or at some, float64 [P, 101]; raises ValueError if a pair has no region."""
    _need_regions(counts)
    area, overlap = counts.area[:, levels].astype(np.int64), counts.overlap[:, levels]
    return overlap / (area + counts.region[:, None] - overlap)


def pointing_hits(counts: Counts, ties: Ties = "first") -> NDArray[np.float64]:
    """Pointing hit of each pair, float64 [P] in [0, 1]; degenerate maps miss under every rule."""
    if ties == "first":
        return counts.hit.astype(np.float64)
    tied, inside = counts.area[:, -1], counts.overlap[:, -1]
    share = inside / np.maximum(tied, 1)
    hits = share if ties == "expected" else (inside > 0).astype(np.float64)
    return np.where(counts.degenerate, 0.0, hits)


def _need_regions(counts: Counts) -> None:
    empty = np.flatnonzero(counts.region == 0)
    if len(empty):
        raise ValueError(f"{len(empty)} pairs have no region (first: pair {empty[0]}); such pairs are not counted")
