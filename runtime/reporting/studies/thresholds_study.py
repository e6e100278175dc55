"""Study of thresholds: Dice and IoU at every threshold, delta Dice, and how peaked the maps are (paper's Fig. 4)."""

from __future__ import annotations

from typing import Any

from ..figures.study_thresholds import draw_thresholds
from ..tables.table import Column, Item, Table
from .material import Material
from .study_outcome import Rows, StudyOutcome, drawn
from .threshold_curves import CellCurves, cell_curves, model_deltas
from .writing import CROSS_FITTED, IN_SAMPLE, between, metric_cell, no_mean, number_cell, percent_cell

_DELTAS = (("delta_dice", "delta_best_points"), ("delta_cross_fitted", "delta_cross_fitted_points"))
"""The metric and the columns of each delta Dice."""


def study_thresholds(material: Material, within: float = 0.05) -> StudyOutcome:
    """How much Dice depends on the threshold.

    within: the share of the best Dice that the `near best` range of thresholds may lose. Raises ValueError unless it
    lies in [0, 1), RunError when all models are boxes from files.
    """
    material = material.of_maps()
    level = material.sampling.level
    rows: dict[str, list[dict[str, Any]]] = {"delta_dice": [], "sensitivity": [], "curves": [], "reliability": []}
    remarks: list[str] = []
    for model in material.models:
        kept: list[CellCurves] = []
        for cell in material.of_model(model):
            if cell.n:
                item = cell_curves(cell, level)
                rows["sensitivity"] += [item.sensitivity_row(name, within) for name in item.names]
                rows["curves"] += item.curve_rows()
                rows["reliability"] += item.reliability_rows()
                kept.append(item)
        if why := no_mean(material, model):
            remarks.append(why)
        else:
            rows["delta_dice"].append(model_deltas(model, kept, level))
    figures, said = drawn(lambda: draw_thresholds(rows, material))
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
        tables=(_deltas(rows["delta_dice"], material), _sensitivity(rows["sensitivity"], material)),
        data=rows,
        settings={"within": within, **material.sampling.settings},
        figures=figures,
        remarks=(*remarks, *said),
    )


def _deltas(rows: Rows, material: Material) -> Table:
    columns = ("model", "datasets", "n pairs", "delta Dice*", "delta Dice, cross-fitted")
    body: tuple[tuple[Item, ...], ...] = tuple(
        (
            str(row["model"]),
            str(row["datasets"]),
            str(row["n"]),
            *(metric_cell(key, row[field], between(row, field)) for key, field in _DELTAS),
        )
        for row in rows
    )
    notes = (
        IN_SAMPLE,
        CROSS_FITTED,
        "delta Dice: Dice at the chosen thresholds minus Dice at 0.5, percentage points, mean over datasets",
    )
    return Table("Delta Dice per model", tuple(map(Column, columns)), body, material.stamps, notes, "delta-dice")


def _sensitivity(rows: Rows, material: Material) -> Table:
    """The mean over classes of each model and dataset; classes are in sensitivity.csv."""
    columns = (
        Column("model"),
        Column("dataset"),
        Column("n"),
        *(Column(name, "Dice") for name in ("at 0.5", "best*", "cross-fitted", "all-ones")),
        *(Column(name, "delta Dice") for name in ("best*", "cross-fitted")),
        *(Column(name, "near best") for name in ("tau", "from", "to", "width")),
        *(Column(name, "maps") for name in ("area at 0.5", "region", "entropy", "calibration error")),
    )
    body: list[tuple[Item, ...]] = []
    for row in rows:
        if row["class"] != "mean":
            continue
        body.append(
            (
                str(row["model"]),
                material.title(row["dataset"]),
                str(row["n"]),
                *(metric_cell(f, row[f], between(row, f)) for f in ("dice_fixed", "dice_best", "dice_cross_fitted")),
                metric_cell("floor_dice", row["floor"]),
                *(metric_cell(key, row[field], between(row, field)) for key, field in _DELTAS),
                *(number_cell(row[f]) for f in ("tau_best", "near_low", "near_high")),
                number_cell(row["near_width"], between(row, "near_width")),
                percent_cell(row["area_fixed"], between(row, "area_fixed")),
                percent_cell(row["region"]),
                number_cell(row["entropy"], decimals=3),
                number_cell(row["calibration_error"], decimals=3),
            )
        )
    notes = (
        IN_SAMPLE,
        CROSS_FITTED,
        "percent; means over the classes that have pairs; Dice best* (but for protocols that use one threshold for a "
        "dataset) and cross-fitted take a threshold per class, near best is about one threshold for all",
        "a range that begins at 0 holds the all-ones mask: the maps then add little to it",
        "area at 0.5: share of the image above half of the maximum; entropy: 1 is a map that is the same everywhere",
        "calibration error: mean distance over pixels of the normalised saliency from the share inside the region",
    )
    return Table("Sensitivity to the threshold", columns, tuple(body), material.stamps, notes, "sensitivity")
