"""Which cases of a class are shown: a spread that is the same on every machine and for all models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["MOST", "PairScore", "choose", "in_rounds"]

MOST = 12
"""Cases of one class of one dataset at most."""

_QUANTILES = (0.75, 0.25, 0.9, 0.1, 0.6, 0.4, 0.83, 0.17)


@dataclass(frozen=True)
class PairScore:
    """One case of a class: Dice of each model at the threshold that is best for the class, and whether each hit."""

    case_id: str
    dice: tuple[float, ...]
    hits: tuple[bool, ...]

    @property
    def mean(self) -> float:
        """Mean Dice of the models."""
        return sum(self.dice) / len(self.dice)

    @property
    def share(self) -> float:
        """Share of the models that hit."""
        return sum(self.hits) / len(self.hits)


def choose(pairs: Sequence[PairScore], most: int = MOST) -> list[tuple[str, str]]:
    """Up to `most` cases as (case_id, why), the most telling first.

    Cases that more models have come before all others, so that models can be compared. Of those: the best, the worst
    and the median by mean Dice; the case in which the models disagree most about the maximum; the best case that was
    missed and the worst that was hit, by most models; then quantiles of mean Dice. Equal cases go by their id.
    """
    if not pairs:
        return []
    widest = max(len(pair.dice) for pair in pairs)
    order = sorted((p for p in pairs if len(p.dice) == widest), key=lambda p: (-p.mean, p.case_id))
    chosen: dict[str, str] = {}
    for pair, why in _wanted(order):
        if len(chosen) < most:
            chosen.setdefault(pair.case_id, why)
    return list(chosen.items())


def _wanted(order: Sequence[PairScore]) -> Iterator[tuple[PairScore, str]]:
    """Cases from the best to the worst -> those to show, in the order of their importance, with repetitions."""
    yield order[0], "best Dice"
    yield order[-1], "worst Dice"
    yield order[(len(order) - 1) // 2], "median Dice"
    divided = [pair for pair in order if 0 < pair.share < 1]
    if divided:
        # The closer to one half, the more models disagree; then the wider their Dice is apart.
        yield max(divided, key=lambda p: (-abs(p.share - 0.5), float(np.ptp(p.dice)))), "models disagree"
    missed = [pair for pair in order if pair.share < 0.5]
    if missed:
        yield missed[0], "best of those missed"
    hit = [pair for pair in order if pair.share > 0.5]
    if hit:
        yield hit[-1], "worst of those hit"
    for quantile in _QUANTILES:
        index = round((1 - quantile) * (len(order) - 1))
        yield order[index], f"{100 * quantile:.0f} % quantile of Dice"
    for pair in order:
        yield pair, "one of the few"


def in_rounds(choices: Mapping[tuple[str, str], Sequence[tuple[str, str]]]) -> Iterator[tuple[str, str, str, str]]:
    """(dataset, finding, case_id, why) of all `choices`, the first case of every class before any second one."""
    for number in range(max(map(len, choices.values()), default=0)):
        for (dataset, finding), cases in choices.items():
            if number < len(cases):
                yield dataset, finding, *cases[number]
