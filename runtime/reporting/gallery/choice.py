"""Which cases of a class the gallery shows: the same on every machine and for all models."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.protocols import Protocol
from ....metrics_gpu.sweep.counts import Counts, dice_at, dice_curves
from ....metrics_gpu.sweep.sweep_options import level
from ...results.numbers.cell_values import CellValues

MOST = 12
"""Maximum cases of one class of one dataset."""

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
    """Up to `most` cases as (case_id, why), the most informative first.

    Cases that more models have come before all others, so that models can be compared. Of those: the best, the worst
    and the median by mean Dice; the case in which the models disagree most about the maximum; the best case that was
    missed and the worst that was hit, by most models; then quantiles of mean Dice. Equal cases are ordered by id.
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
        # The closer to one half, the more models disagree; then by the range of their Dice.
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


@dataclass(frozen=True, eq=False)
class ModelPairs:
    """The P pairs of one finished cell that the report counts with its choices.

    findings: in the dataset's order. hits: bool [P]. best: finding -> level of the threshold best for the class.
    """

    model: str
    dataset: str
    protocol: Protocol
    findings: tuple[str, ...]
    case_id: tuple[str, ...]
    finding: tuple[str, ...]
    counts: Counts
    hits: NDArray[np.bool_]
    best: Mapping[str, int]


def model_pairs(cell: CellValues) -> ModelPairs:
    """The pairs of a finished cell."""
    rows, scored = cell.rows, cell.scored
    return ModelPairs(
        model=cell.model,
        dataset=cell.dataset,
        protocol=scored.protocol,
        findings=rows.findings,
        case_id=tuple(rows.case_ids[index] for index in rows.case_of[scored.image_of]),
        finding=tuple(rows.findings[index] for index in scored.class_of),
        counts=scored.counts,
        hits=scored.hits >= 0.5,
        best=_best_levels(cell),
    )


def pair_scores(models: Sequence[ModelPairs]) -> dict[str, list[PairScore]]:
    """Finding -> its cases with the scores of all `models` that have them, findings in the dataset's order."""
    order = dict.fromkeys(name for pairs in models for name in pairs.findings)
    scores_of: dict[str, dict[str, list[tuple[float, bool]]]] = {name: defaultdict(list) for name in order}
    for pairs in models:
        dice = dice_at(pairs.counts, np.array([pairs.best[name] for name in pairs.finding], np.intp))
        rows = zip(pairs.case_id, pairs.finding, dice.tolist(), pairs.hits.tolist(), strict=True)
        for case_id, finding, score, hit in rows:
            scores_of[finding][case_id].append((score, hit))
    return {
        finding: [
            PairScore(case_id, tuple(dice for dice, _ in scores), tuple(hit for _, hit in scores))
            for case_id, scores in cases.items()
        ]
        for finding, cases in scores_of.items()
        if cases
    }


def _best_levels(cell: CellValues) -> dict[str, int]:
    """Finding -> level of the best threshold in the tables; if they have no single one, the level of the best mean Dice
    of those that the search tries."""
    levels: dict[str, int] = {}
    scored = cell.scored
    for index, name in enumerate(cell.grounding.names):
        members, tau = scored.class_of == index, cell.grounding.value("best_tau", name)
        if tau is not None:
            levels[name] = round(100 * tau)
        elif members.any():
            first = level(scored.options.tau_from)
            levels[name] = first + int(np.argmax(dice_curves(scored.counts.take(members)).mean(axis=0)[first:]))
    return levels
