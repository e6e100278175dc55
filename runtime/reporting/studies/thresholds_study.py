"""Study of thresholds: Dice and IoU at every threshold, delta Dice, and how peaked the maps are (paper's Fig. 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..figures.study_thresholds import draw_thresholds
from .columns import StudyTable, metric, numbers, percents, text, texts
from .fixed_thresholds import AT, FIXED_TABLE, fixed_rows, levels_at
from .material import Material
from .study_outcome import StudyOutcome
from .threshold_curves import CellCurves, cell_curves, model_deltas
from .writing import CROSS_FITTED, IN_SAMPLE

_DELTAS: Final = StudyTable(
    "Delta Dice per model",
    "delta-dice",
    (
        *texts("model", "datasets"),
        text("n", "n pairs"),
        metric("delta_best_points", "delta Dice*", of="delta_dice"),
        metric("delta_cross_fitted_points", "delta Dice, cross-fitted", of="delta_cross_fitted"),
    ),
    (
        IN_SAMPLE,
        CROSS_FITTED,
        "delta Dice: Dice at the chosen thresholds minus Dice at 0.5, percentage points, mean over datasets",
    ),
)
_SENSITIVITY: Final = StudyTable(
    "Sensitivity to the threshold",
    "sensitivity",
    (
        *texts("model", "dataset", "n"),
        metric("dice_fixed", "at 0.5", "Dice"),
        metric("dice_best", "best*", "Dice"),
        metric("dice_cross_fitted", "cross-fitted", "Dice"),
        metric("floor", "all-ones", "Dice", of="floor_dice"),
        metric("delta_best_points", "best*", "delta Dice", of="delta_dice"),
        metric("delta_cross_fitted_points", "cross-fitted", "delta Dice", of="delta_cross_fitted"),
        numbers("tau_best", "tau", "near best"),
        numbers("near_low", "from", "near best"),
        numbers("near_high", "to", "near best"),
        numbers("near_width", "width", "near best"),
        percents("area_fixed", "area at 0.5", "maps"),
        percents("region", "region", "maps"),
        numbers("entropy", "entropy", "maps", decimals=3),
        numbers("calibration_error", "calibration error", "maps", decimals=3),
    ),
    (
        IN_SAMPLE,
        CROSS_FITTED,
        "percent; means over the classes that have pairs; Dice best* (but for protocols that use one threshold for a "
        "dataset) and cross-fitted take a threshold per class, near best is about one threshold for all",
        "a range that begins at 0 holds the all-ones mask: the maps then add little to it",
        "area at 0.5: share of the image above half of the maximum; entropy: 1 is a map that is the same everywhere",
        "calibration error: mean distance over pixels of the normalised saliency from the share inside the region",
    ),
)
"""The means over classes of each model and dataset; classes are in sensitivity.csv."""


def study_thresholds(material: Material, within: float = 0.05, at: Iterable[float] = AT) -> StudyOutcome:
    """How much Dice depends on the threshold.

    within: the share of the best Dice that the `near best` range of thresholds may lose. at: the fixed thresholds to
    score. Raises ValueError unless `within` lies in [0, 1), ConfigError for a threshold that was not counted, RunError
    when all models are boxes from files.
    """
    levels = levels_at(at)
    material = material.of_maps()
    level = material.sampling.level
    rows: dict[str, list[dict[str, Any]]] = {"delta_dice": [], "sensitivity": [], "curves": [], "reliability": []}
    remarks: list[str] = []
    curves: list[list[CellCurves]] = []
    for model in material.models:
        kept: list[CellCurves] = []
        for cell in material.of_model(model):
            if cell.n:
                item = cell_curves(cell, level)
                rows["sensitivity"] += [item.sensitivity_row(name, within) for name in item.names]
                rows["curves"] += item.curve_rows()
                rows["reliability"] += item.reliability_rows()
                kept.append(item)
        curves.append(kept)
        if why := material.no_mean(model):
            remarks.append(why)
        else:
            rows["delta_dice"].append(model_deltas(model, kept, level))
    whole = [model for model in material.models if not material.no_mean(model)]
    rows["fixed"] = fixed_rows([kept for kept in curves if kept], levels, whole)
    means = [row for row in rows["sensitivity"] if row["class"] == "mean"]
    fixed = [row for row in rows["fixed"] if row["class"] == "mean"]
    facts = (
        f"{len(material.paired)} of {len(material.cells)} finished cells have pairs with a region",
        material.sampling.fact,
        f"near best: the thresholds around the best one that lose at most {100 * within:g} % of its Dice",
        *material.searches,
        *material.unfinished,
    )
    return StudyOutcome(
        name="thresholds",
        title="Threshold sensitivity",
        facts=facts,
        tables=(
            material.table(_DELTAS, rows["delta_dice"]),
            material.table(FIXED_TABLE, fixed),
            material.table(_SENSITIVITY, means),
        ),
        data=rows,
        settings={"within": within, "at": [level / 100 for level in levels], **material.sampling.settings},
        remarks=tuple(remarks),
    ).with_figures(lambda: draw_thresholds(rows, material))
