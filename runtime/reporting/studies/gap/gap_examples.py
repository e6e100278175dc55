"""Examples of a finding in the gap: images that a model is sure of and points wrongly on, and the reverse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .....metrics_gpu.grounding.best_thresholds import FIXED
from .....metrics_gpu.sweep.counts import dice_curves
from ..study_cell import PIXELS
from .finding_points import GAP, REVERSE, FindingPoint


def example_rows(points: Sequence[FindingPoint], top: int, cases: int) -> list[dict[str, Any]]:
    """Cases of up to `top` findings of each model, dataset and end of the gap, those of the smallest p first."""
    rows: list[dict[str, Any]] = []
    cells = dict.fromkeys(point.cell for point in points)
    for cell in cells:
        for quadrant in (GAP, REVERSE):
            own = [point for point in points if point.cell is cell and point.quadrant == quadrant]
            for point in sorted(own, key=_p)[:top]:
                rows += list(_cases(point, quadrant == GAP))[:cases]
    return rows


def _p(point: FindingPoint) -> float:
    return 1.0 if point.membership.p is None else point.membership.p


def _cases(point: FindingPoint, missed: bool) -> Iterator[dict[str, Any]]:
    """Misses, the highest score first; or hits, the lowest score first."""
    cell, column = point.cell, point.cell.classes.index(point.name)
    ids, region = cell.case_ids, cell.counts.region
    dice = dice_curves(cell.counts, slice(FIXED, FIXED + 1))[:, 0]
    score = cell.rows.logits[cell.pairs.image_of, column].astype(np.float64) * (-1 if missed else 1)
    pairs = [p for p in np.flatnonzero(cell.class_of == column).tolist() if (cell.hits[p] < 0.5) == missed]
    for pair in sorted(pairs, key=lambda p: (score[p], ids[p])):
        yield {
            "model": cell.model,
            "dataset": cell.dataset,
            "end": point.quadrant,
            "class": point.name,
            "case": ids[pair],
            "logit": float(cell.rows.logits[cell.pairs.image_of[pair], column]),
            "hit": float(cell.hits[pair]),
            "tau": FIXED / 100,
            "dice": float(dice[pair]),
            "region": float(region[pair] / PIXELS),
            "degenerate": bool(cell.counts.degenerate[pair]),
            "overlay": None,
        }
