"""Changes of single rows: hits that flipped, Dice, logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.best_thresholds import FIXED
from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.sweep.counts import dice_curves
from ....metrics_gpu.sweep.sweep_options import level
from .align import Aligned


@dataclass(frozen=True)
class Flip:
    """A pair whose hit changed; 1 is a hit and 0 a miss, between them the share of tied maxima that hit."""

    case: str
    finding: str
    before: float
    after: float


@dataclass(frozen=True)
class DiceChange:
    """Dice of a pair in both runs, at 0.5 and at each run's own best threshold of the finding; None if there is no
    such threshold."""

    case: str
    finding: str
    fixed_a: float | None
    fixed_b: float | None
    best_a: float | None
    best_b: float | None

    @property
    def size(self) -> float:
        """The larger of the two changes, without its sign."""
        ends = ((self.fixed_a, self.fixed_b), (self.best_a, self.best_b))
        return max((abs(b - a) for a, b in ends if a is not None and b is not None), default=0.0)


@dataclass(frozen=True)
class LogitChanges:
    """Absolute changes of positive and negative logits over all shared rows: the largest, where it is, and the mean."""

    largest: float
    case: str
    finding: str
    mean: float


@dataclass(frozen=True)
class RowChanges:
    """Changes of the rows of a cell.

    flips: all of them. moved: pairs whose maximum is another pixel. dice: the largest changes first, at most as many as
    requested; dice_changed: how many pairs have any. logits: None without logits in both.
    """

    flips: tuple[Flip, ...]
    moved: int
    dice: tuple[DiceChange, ...]
    dice_changed: int
    logits: LogitChanges | None

    @property
    def lost(self) -> int:
        """Number of hits that became misses, or smaller shares of a hit."""
        return sum(flip.after < flip.before for flip in self.flips)

    @property
    def gained(self) -> int:
        """Number of misses that became hits, or larger shares of one."""
        return len(self.flips) - self.lost


def row_changes(both: Aligned, a: Grounding, b: Grounding, keep: int) -> RowChanges:
    """What changed row by row.

    a, b: grounding of the shared pairs, for their best thresholds. keep: the number of Dice changes to list.
    """
    shared = both.shared
    hits_a, hits_b = (scored.hits for _, scored in (both.a, both.b))
    flipped = np.flatnonzero(hits_a != hits_b)
    flips = [
        Flip(case, finding, float(hits_a[p]), float(hits_b[p]))
        for p, (case, finding) in zip(flipped, shared.pair_names(flipped), strict=True)
    ]
    dice = _dice(both, a, b)
    changes = np.nanmax(np.abs(np.nan_to_num(dice[:, 1::2] - dice[:, ::2], nan=0.0)), axis=1, initial=0.0)
    order = np.argsort(-changes, kind="stable")[:keep]
    order = order[changes[order] > 0]
    listed = [
        DiceChange(case, finding, *(None if np.isnan(value) else float(value) for value in dice[p]))
        for p, (case, finding) in zip(order, shared.pair_names(order), strict=True)
    ]
    moved = int((both.a[1].counts.argmax != both.b[1].counts.argmax).sum())
    return RowChanges(tuple(flips), moved, tuple(listed), int((changes > 0).sum()), _logits(both))


def _dice(both: Aligned, a: Grounding, b: Grounding) -> NDArray[np.float64]:
    """float64 [P, 4]: Dice fixed of A and B, best of A and B; NaN where there is no threshold."""
    class_of = both.shared.class_of
    table = np.full((len(class_of), 4), np.nan)
    for place, ((_, scored), found) in enumerate(((both.a, a), (both.b, b))):
        dice = dice_curves(scored.counts)
        if scored.protocol.fixed_tau is not None:
            table[:, place] = dice[:, FIXED]
        taus = [found.value("best_tau", name) for name in found.names]
        known = np.array([tau is not None for tau in taus], np.bool_)[class_of]
        levels = np.array([0 if tau is None else level(tau) for tau in taus], np.intp)[class_of]
        table[known, 2 + place] = dice[known, levels[known]]
    return table


def _logits(both: Aligned) -> LogitChanges | None:
    (a, _), (b, _) = both.a, both.b
    if not (a.scored and b.scored) or not a.logits.size:
        return None
    gaps = np.abs(np.stack([b.logits, b.negatives]).astype(np.float64) - np.stack([a.logits, a.negatives]))
    gap = np.fmax(gaps[0], gaps[1])  # a finding without a negative prompt has NaN there
    image, c = np.unravel_index(int(np.argmax(gap)), gap.shape)
    ((case, finding),) = both.shared.names([(int(image), int(c))])
    return LogitChanges(float(gap[image, c]), case, finding, float(np.nanmean(gaps)))
