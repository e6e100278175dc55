"""The numbers of each model on data that all of them share, with what patients add to them."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.recognition.scores import recognition
from .....metrics_gpu.statistics.intervals import Shares, percentile_interval
from .....metrics_gpu.statistics.measured_numbers import Measured
from .....metrics_gpu.statistics.model_groups import line_residuals
from ....results.comparability import find_basis, on_one_basis
from ....results.numbers.fields import Sample, number_of
from ....results.own_metrics import OwnName
from ..estimates import over_datasets
from ..material import Material
from ..study_cell import StudyCell

Float = NDArray[np.float64]

MEASURES: Final = ("pointing", "dice_fixed", "dice_cross_fitted", "auc")
RESIDUAL: Final = "residual"
LEAST_MODELS: Final = 3
"""From this number of models on there are residuals from a line."""


@dataclass(frozen=True, eq=False)
class CellNumber:
    """A number of one cell. shares: what patients add to a mean over pairs; parts: to the deviation of an AUC; one of
    them, or none. basis: equal for numbers of the same data."""

    model: str
    dataset: str
    number: Measured
    sample: Sample
    basis: Hashable
    shares: Shares | None = None
    parts: Float | None = None


@dataclass(frozen=True, eq=False)
class ModelNumber:
    """A number of one model, the mean over the datasets of `cells`, which are those of all models."""

    number: Measured
    cells: Mapping[str, CellNumber] = field(default_factory=dict)


Numbers = dict[str, dict[str, ModelNumber]]
"""Measure -> model -> number."""


def own_measures(material: Material) -> list[OwnName]:
    """The numbers of the user's metrics that rest on no threshold of the same pairs, as `MEASURES`."""
    return [name for metric in material.metrics for name in metric.numbers if name.part != "best"]


def model_numbers(material: Material, models: Collection[str]) -> tuple[Numbers, list[str]]:
    """The numbers of these models, and sentences on what is left out."""
    level = material.sampling.level
    own = own_measures(material)
    of_cells = [cell_numbers(cell, level, own) for cell in material.cells if cell.model in models and cell.n]
    numbers: Numbers = {}
    remarks: list[str] = []
    for measure in (*MEASURES, *own):
        cells = [found[measure] for found in of_cells if measure in found]
        alike = on_one_basis([cell.basis for cell in cells], [cell.dataset for cell in cells])
        other = [cell for cell, same in zip(cells, alike, strict=True) if not same]
        remarks += [
            f"{cell.model} on {cell.dataset}, {measure}: left out, it rests on other images, pairs or labels than most "
            "models there"
            for cell in other
        ]
        cells = [cell for cell, same in zip(cells, alike, strict=True) if same]
        known = list(dict.fromkeys(cell.model for cell in cells))
        datasets = [name for name in material.datasets if {c.model for c in cells if c.dataset == name} == {*known}]
        if known and not datasets:
            remarks.append(f"{measure}: no dataset has it of all models, so no group has it")
        if known and (lacking := [model for model in models if model not in known]):
            remarks.append(f"{measure}: {', '.join(lacking)} left out, without this number")
        elif len(datasets) < len(material.datasets) and datasets:
            remarks.append(f"{measure}: over {', '.join(datasets)} only, which all models have")
        numbers[measure] = {
            model: _over(model, [c for c in cells if c.model == model and c.dataset in datasets], level)
            for model in known
            if datasets
        }
    return numbers, remarks


def _over(model: str, cells: Sequence[CellNumber], level: float) -> ModelNumber:
    return ModelNumber(over_datasets((cell.number for cell in cells), level), {cell.dataset: cell for cell in cells})


def cell_numbers(cell: StudyCell, level: float, own: Sequence[OwnName] = ()) -> dict[str, CellNumber]:
    """The numbers of a cell that has pairs, by measure, without those that it does not have; own: also these."""
    sample, basis = cell.sample, find_basis(cell.rows, cell.pairs)
    plain = cell.drawn_scores()
    sources = {"pointing": (plain, "pointing"), "dice_fixed": (plain, "dice_fixed")}
    if cell.has_thresholds:
        sources["dice_cross_fitted"] = (cell.drawn_scores("cross_fit"), "dice_best")
    crossed = sources.get("dice_cross_fitted", (None, ""))[0]
    of = {"grounding": plain, "cross_fitted": crossed}
    sources |= {name: (scores, name.source[1]) for name in own if (scores := of[name.source[0]]) is not None}
    named: dict[str, Any] = {"model": cell.model, "dataset": cell.dataset, "sample": sample}
    found = {
        measure: CellNumber(
            **named,
            number=number_of(scores, key, "", sample, level),
            basis=(basis.protocol, basis.pairs[""]),
            shares=sample.shares(scores.each[key]),
        )
        for measure, (scores, key) in sources.items()
    }
    if cell.scored and cell.rows.scored:
        ranks = recognition(cell.rows.logits, cell.rows.labels, cell.classes, cell.draws, cell.image_patients)
        names = [name for name in ranks.names if ranks.value("auc", name) is not None]
        auc = number_of(ranks, "auc", "", sample, level)
        key = (basis.protocol, basis.labels[""])
        found["auc"] = CellNumber(**named, number=auc, basis=key, parts=sample.auc_parts(names))
    return {measure: item for measure, item in found.items() if item.number.value is not None}


def residuals(numbers: Numbers, level: float) -> tuple[dict[str, ModelNumber], dict[str, float]]:
    """Pointing less the line of AUC and pointing through all models, as fractions; and the same from the line of the
    other models, from four models on. Empty for fewer than three models, over different datasets, or without spread of
    AUC."""
    models = [model for model in numbers["auc"] if model in numbers["pointing"]]
    datasets = {tuple(numbers[key][model].cells) for key in ("auc", "pointing") for model in models}
    if len(models) < LEAST_MODELS or len(datasets) > 1:
        return {}, {}
    x, y = (np.stack([_row(numbers[key][model].number) for model in models], axis=1) for key in ("auc", "pointing"))
    drawn = line_residuals(x, y)
    if np.isnan(drawn[0]).any():
        return {}, {}
    known = all(numbers[key][model].number.interval for key in ("auc", "pointing") for model in models)
    found = {
        model: ModelNumber(
            Measured(float(own[0]), percentile_interval(own[1:], level) if known else None, drawn=own[1:])
        )
        for model, own in zip(models, drawn.T, strict=True)
    }
    left_out = {}
    for place, model in enumerate(models) if len(models) > LEAST_MODELS else ():
        others = np.arange(len(models)) != place
        slope, intercept = np.polyfit(x[0, others], y[0, others], 1)
        left_out[model] = float(y[0, place] - intercept - slope * x[0, place])
    return found, left_out


def _row(number: Measured) -> Float:
    """float64 [1 + B]: value and replicates."""
    assert number.value is not None and number.drawn is not None  # a study has replicates
    return np.concatenate([[number.value], number.drawn])
