"""Scores of a cell's pairs -> means, and differences from baselines with their tests (docs/trust.md §1.3), as rows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.statistics.bootstrap import macro_mean
from ....metrics_gpu.statistics.exact_sums import exact_mean
from ....metrics_gpu.trust.localisation import MEASURES
from ....metrics_gpu.trust.verdicts import MARGINS, Criterion, Judged, PairGroups, effects_of, verdicts
from ...reporting.studies.columns import measured
from ...reporting.studies.study_cell import StudyCell
from ...reporting.studies.writing import limits
from .pair_scores import BASELINES, PairScores

Float = NDArray[np.float64]

QUESTIONS: Final = {
    "chance": "finds the region",
    "prior": "answers the image",
    "other_finding": "answers the prompt",
}
"""Baselines that the map must beat, each with what the map then does."""
ALIKE: Final = "spearman_other_finding"
UNDEFINED: Final = "undefined"


@dataclass(frozen=True, eq=False)
class Compared:
    """A mean of a cell over classes, or of one class (`name`), and the same minus that of a baseline.

    baseline: what is subtracted; empty for the score alone. own, reference: both means on the pairs that have both,
    None without one. effect: of the difference.
    """

    cell: StudyCell
    measure: str
    baseline: str
    name: str
    own: float | None
    reference: float | None
    effect: Judged

    @property
    def family(self) -> Hashable:
        """What it is tested together with: a measure's questions, its other baselines, and each of them by class."""
        return self.cell.dataset, self.measure, self.baseline in QUESTIONS, bool(self.name)

    @property
    def criterion(self) -> Criterion | None:
        """Of the main measure over classes, against the baselines of the questions."""
        asked = self.measure == MEASURES[0] and self.baseline in QUESTIONS and not self.name
        return Criterion(MARGINS[self.measure]) if asked else None


def compared(scores: PairScores, level: float) -> list[Compared]:
    """Every measure of a cell, alone and against each baseline, over classes and by class."""
    cell = scores.cell
    keys = [(measure, baseline) for measure in MEASURES for baseline in ("", *BASELINES)]
    zeros = np.zeros(len(scores.own))
    own, reference = list[Float](), list[Float]()
    for measure, baseline in keys:
        column = MEASURES.index(measure)
        own.append(scores.own[:, column])
        reference.append(scores.baselines[baseline][:, column] if baseline else zeros)
    keys, own, reference = [*keys, (ALIKE, "")], [*own, scores.alike], [*reference, zeros]
    values = np.column_stack(own) - np.column_stack(reference)
    flags = np.column_stack([scores.degenerate[name or "own"] for _, name in keys])
    left_out = [_left_out(scores, key, column) for key, column in zip(keys, values.T, strict=True)]
    groups = PairGroups(cell.class_of, cell.patient_of, cell.sample.names, cell.draws, level)
    comparisons: list[Compared] = []
    for at, (key, effects) in enumerate(zip(keys, effects_of(values, groups, left_out, flags), strict=True)):
        defined = ~np.isnan(values[:, at])
        classes = np.unique(cell.class_of[defined]).tolist()
        own_means, reference_means = (
            [exact_mean(side[at][defined & (cell.class_of == index)]) for index in classes] for side in (own, reference)
        )
        own_means.insert(0, macro_mean(own_means))
        reference_means.insert(0, macro_mean(reference_means))
        names = ["", *(cell.classes[index] for index in classes)]
        for name, mean, other, effect in zip(names, own_means, reference_means, effects, strict=True):
            comparisons.append(Compared(cell, *key, name, mean, other if key[1] else None, effect))
    return comparisons


def _left_out(scores: PairScores, key: tuple[str, str], values: Float) -> dict[str, int]:
    """Why pairs have no value: the baseline, and what remains."""
    measure, baseline = key
    why = dict(scores.why.get("other_finding" if measure == ALIKE else baseline, {}))
    rest = int(np.isnan(values).sum()) - sum(why.values())
    return why | ({UNDEFINED: rest} if rest else {})


def verdicts_of(comparisons: Sequence[Compared]) -> list[tuple[Compared, Judged]]:
    """The differences with their tests, corrected within their families, in their order."""
    differences = [item for item in comparisons if item.baseline]
    tested = verdicts(
        [item.effect for item in differences],
        [item.criterion for item in differences],
        [item.family for item in differences],
    )
    return list(zip(differences, tested, strict=True))


def score_row(item: Compared) -> dict[str, Any]:
    """A score alone, on all pairs that have it."""
    effect = item.effect
    return {
        **_lead(item),
        "value": effect.value,
        **limits("value", effect.interval),
        "pairs": effect.n,
        "patients": effect.patients,
        **_without_score(effect.left_out),
    }


def difference_row(item: Compared, verdict: Judged) -> dict[str, Any]:
    """A score minus that of a baseline, on the pairs that have both, with its test."""
    return {
        **_lead(item),
        "baseline": item.baseline,
        "own": item.own,
        "reference": item.reference,
        **measured("difference", verdict),
        "pairs": verdict.n,
        "patients": verdict.patients,
        **verdict.test,
        "exploratory": bool(item.name) or item.baseline not in QUESTIONS,
        "disagrees": verdict.disagrees,
        "degenerate": verdict.degenerate,
        **_without_score(verdict.left_out),
    }


def verdict_row(item: Compared, verdict: Judged, others: str) -> dict[str, Any]:
    """A question with its verdict. others: which other findings were asked."""
    row = difference_row(item, verdict)
    del row["class"], row["exploratory"]
    return {
        "question": QUESTIONS[item.baseline],
        **row,
        "others": others if item.baseline == "other_finding" else "",
        "criterion": verdict.criterion,
        "verdict": verdict.word,
        "told": verdict.text,
    }


def _lead(item: Compared) -> dict[str, Any]:
    names = {"model": item.cell.model, "dataset": item.cell.dataset}
    return names | {"class": item.name or "mean", "measure": item.measure}


def _without_score(left_out: Mapping[str, int]) -> dict[str, Any]:
    """How many pairs have no score, and why."""
    why = "; ".join(f"{reason}: {count}" for reason, count in left_out.items())
    return {"left_out": sum(left_out.values()), "why": why}
