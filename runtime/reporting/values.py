"""Counts -> numbers per class, per dataset and per model, by the definitions of metrics_gpu.

Values are fractions, only `delta_dice` is in percentage points; None where a value does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...metrics_gpu.aggregate import macro_mean
from ...metrics_gpu.grounding import Grounding, GroundingOptions, GroundingScores, grounding
from ...metrics_gpu.recognition import ClassRecognition, Recognition, recognition
from .load import CellRows

__all__ = ["MEANS", "CellValues", "cell_values", "mean_of_datasets"]

MEANS = ("pointing", "dice_best", "iou_best", "dice_fixed", "iou_fixed", "delta_dice", "floor_dice", "floor_iou")


@dataclass(frozen=True)
class CellValues:
    """All numbers of one cell.

    `recognition` uses p = sigmoid(logit); `pair` p = softmax over the positive and the negative prompt, for the classes
    that have a negative prompt (metrics specification §7). `limit`: the number of cases the evaluation stopped at, None
    when it saw the whole dataset. `rescued`: regions per class that were kept by their centroid.
    """

    model: str
    dataset: str
    title: str
    weights: str
    engine: str
    limit: int | None
    cases: int
    missing: int
    unreadable: int
    grounding: Grounding
    recognition: Recognition
    pair: Recognition
    rescued: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The classes, in the dataset's order."""
        return tuple(item.name for item in self.grounding.classes)

    @property
    def n(self) -> int:
        """Pairs with a region."""
        return self.grounding.micro.n

    @property
    def lost(self) -> int:
        """Images that are missing or unreadable."""
        return self.missing + self.unreadable

    def scores(self, name: str) -> GroundingScores | None:
        """Grounding of a class, None if the cell does not have the class."""
        return next((item for item in self.grounding.classes if item.name == name), None)

    def paired(self, name: str) -> ClassRecognition | None:
        """Recognition of a class by its pair of prompts, None if it has no negative prompt."""
        return next((item for item in self.pair.classes if item.name == name), None)


def cell_values(cell: CellRows) -> CellValues:
    """All numbers of one cell."""
    limit = cell.entry["ingredients"]["limit"]
    # A baseline has no score to recognise anything by.
    scored = () if cell.entry["weights"] == "baseline" else cell.findings
    paired = np.flatnonzero(~np.isnan(cell.negatives).any(axis=0))
    pair_logits = cell.logits[:, paired].astype(np.float64) - cell.negatives[:, paired]
    classes = range(len(cell.findings))
    return CellValues(
        model=cell.model,
        dataset=cell.dataset,
        title=str(cell.entry["title"]),
        weights=str(cell.entry["weights"]),
        engine=str(cell.entry["ingredients"]["engine"]),
        limit=limit if limit == cell.cases else None,
        cases=cell.cases,
        missing=cell.missing,
        unreadable=cell.unreadable,
        grounding=grounding(
            cell.counts, cell.class_of, cell.findings, GroundingOptions(ties=cell.entry.get("ties", "first"))
        ),
        recognition=recognition(cell.logits[:, : len(scored)], cell.labels[:, : len(scored)], scored),
        pair=recognition(pair_logits, cell.labels[:, paired], [cell.findings[index] for index in paired]),
        rescued=tuple(int(cell.rescued[cell.class_of == index].sum()) for index in classes),
    )


def mean_of_datasets(cells: Sequence[CellValues]) -> dict[str, float | None]:
    """A model's value: the unweighted mean over datasets that have pairs (metrics specification §8)."""
    used = [cell.grounding.macro for cell in cells if cell.n]
    return {name: macro_mean(getattr(scores, name) for scores in used) for name in MEANS}
