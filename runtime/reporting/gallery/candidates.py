"""The pairs of one dataset in all models: what the choice of cases is made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.curves import dice_curves, pointing_hits
from ....metrics_gpu.grounding.protocols import Protocol
from ....metrics_gpu.sweep.counts import Counts
from ....metrics_gpu.sweep.thresholds import level
from ...results.load import StoredRun
from ...results.numbers.cell_values import CellValues
from ...results.numbers.run_numbers import Results
from ...results.pairs import scored_pairs
from .choice import PairScore

__all__ = ["ModelPairs", "model_pairs", "pair_scores"]


@dataclass(frozen=True, eq=False)
class ModelPairs:
    """The P pairs of one finished cell that the report counts, by its choices.

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

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """Dice of each pair at its class's best threshold, float64 [P]."""
        levels = np.array([self.best[name] for name in self.finding], np.intp)
        scores: NDArray[np.float64] = dice_curves(self.counts)[np.arange(len(levels)), levels]
        return scores

    @cached_property
    def index(self) -> dict[tuple[str, str], int]:
        """(case_id, finding) -> which pair."""
        return {key: number for number, key in enumerate(zip(self.case_id, self.finding, strict=True))}


def model_pairs(run: StoredRun, results: Results, model: str, dataset: str) -> ModelPairs:
    """The pairs of a finished cell. Raises RunError when its file cannot be read or lacks maps that are needed."""
    rows = results.rows.get((model, dataset)) or run.cell(model, dataset)
    scored = scored_pairs(run, rows, results.choices)
    hits = pointing_hits(scored.counts, scored.options.ties) if scored.hits is None else scored.hits
    return ModelPairs(
        model=model,
        dataset=dataset,
        protocol=scored.protocol,
        findings=rows.findings,
        case_id=tuple(rows.case_ids[index] for index in rows.case_of[scored.image_of]),
        finding=tuple(rows.findings[index] for index in scored.class_of),
        counts=scored.counts,
        hits=hits >= 0.5,
        best=_best_levels(results.cells.get((model, dataset)), rows.findings, scored.counts, scored.class_of),
    )


def pair_scores(models: Sequence[ModelPairs]) -> dict[str, list[PairScore]]:
    """Finding -> its cases with the scores of all `models` that have them, findings in the dataset's order."""
    order = dict.fromkeys(name for pairs in models for name in pairs.findings)
    found: dict[str, dict[str, list[tuple[float, bool]]]] = {name: defaultdict(list) for name in order}
    for pairs in models:
        rows = zip(pairs.case_id, pairs.finding, pairs.scores.tolist(), pairs.hits.tolist(), strict=True)
        for case_id, finding, dice, hit in rows:
            found[finding][case_id].append((dice, hit))
    return {
        finding: [
            PairScore(case_id, tuple(dice for dice, _ in scores), tuple(hit for _, hit in scores))
            for case_id, scores in cases.items()
        ]
        for finding, cases in found.items()
        if cases
    }


def _best_levels(
    cell: CellValues | None, findings: Sequence[str], counts: Counts, class_of: NDArray[np.intp]
) -> dict[str, int]:
    """Finding -> level of the threshold that the tables call best, or where they have no single one, the level of the
    best mean Dice of those that the search tries."""
    levels: dict[str, int] = {}
    for index, name in enumerate(findings):
        members = class_of == index
        if not members.any():
            continue
        scores = cell.scores(name) if cell else None
        if scores is not None and scores.best_tau is not None:
            levels[name] = round(100 * scores.best_tau)
        else:
            first = level(cell.grounding.options.tau_from) if cell else 0
            levels[name] = first + int(np.argmax(dice_curves(counts.take(members)).mean(axis=0)[first:]))
    return levels
