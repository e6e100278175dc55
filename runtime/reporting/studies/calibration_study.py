"""Post-hoc calibration: how much of delta Dice is recovered without use of the scored pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import XBenchError
from ....metrics_gpu.grounding.best_thresholds import FIXED, pair_folds
from ....metrics_gpu.grounding.calibration import METHODS, Method, calibrated_levels
from ....metrics_gpu.statistics.class_means import class_means
from ....metrics_gpu.statistics.intervals import MANY_PATIENTS, Interval, Shares, mean_interval, percentile_interval
from ....metrics_gpu.statistics.measured_numbers import Measured
from ....metrics_gpu.sweep.counts import Counts, dice_at
from ....metrics_gpu.sweep.maps import scaled_map
from ....metrics_gpu.sweep.masks import GRID, unpack_masks
from ....metrics_gpu.sweep.quantiles import quantile_counts
from ....metrics_gpu.sweep.sweep_options import Sweeping
from ...host.protocols import find_protocol
from ...results.load_rows import StoredRun
from ..figures.study_figures import draw_calibration
from ..tables.table import Column, Item, Table
from .calibration_cost import calibration_cost
from .columns import Shown, StudyTable, measured, metric, shares, texts
from .kept_maps import kept_maps, map_places
from .material import Material
from .study_cell import StudyCell
from .study_outcome import Rows, StudyOutcome
from .writing import between, limits, metric_cell, share_cell

Float = NDArray[np.float64]

_LABELS: Final[Mapping[str, tuple[str, str]]] = {
    "none": ("tau = 0.5", "untuned"),
    "held_out": ("held-out threshold", "cross_fitted"),
    "quantile": ("quantiles, tau = 0.5", "untuned"),
    "quantile_held_out": ("quantiles, held-out threshold", "cross_fitted"),
    "isotonic": ("isotonic, cut at 0.5", "cross_fitted"),
    "isotonic_half_dice": ("isotonic, cut at half the Dice", "cross_fitted"),
    "beta": ("beta, cut at 0.5", "cross_fitted"),
    "beta_half_dice": ("beta, cut at half the Dice", "cross_fitted"),
    "best": ("best threshold", "in_sample"),
}
"""Methods in the order of the tables, as printed, and what a reader must know about each."""

_SMALLEST: Final = 0.001
"""Delta Dice, as a fraction, below which a share of it is not meaningful."""


@dataclass(frozen=True, eq=False)
class _Calibrated:
    """Dice by method [M] and its replicates [B, M], of one class, the mean of a cell or of a model; NaN: not known.

    parts: what patients add, by method; empty for the mean of several datasets. many: whether the patients are enough
    for the bootstrap.
    """

    key: Mapping[str, Any]
    dice: Float
    drawn: Float
    parts: tuple[Shares | None, ...]
    many: bool

    def interval(self, place: int, level: float, less: int | None = None) -> Interval | None:
        """Of the Dice of a method, or of its gain over the method at `less`."""
        drawn, bounds = self.drawn[:, place], (0.0, 1.0)
        if not self.parts:
            drawn = drawn if less is None else drawn - self.drawn[:, less]
            return percentile_interval(drawn, level) if self.many else None
        part = self.parts[place]
        if less is None:
            return mean_interval(drawn, part, level, bounds)
        base = self.parts[less]
        gain = None if part is None or base is None else part.minus(base)
        return mean_interval(drawn - self.drawn[:, less], gain, level, None)

    def rows(self, methods: Sequence[str], level: float) -> list[dict[str, Any]]:
        none, best = methods.index("none"), methods.index("best")
        ceiling, drawn_ceiling = self.dice[best] - self.dice[none], self.drawn[:, best] - self.drawn[:, none]
        rows = []
        for place, method in enumerate(methods):
            if np.isnan(self.dice[place]):
                continue
            gain, drawn_gain = self.dice[place] - self.dice[none], self.drawn[:, place] - self.drawn[:, none]
            around = self.interval(place, level, none)
            row = {**self.key, "method": method, "label": _LABELS[method][1]}
            row |= measured("dice", Measured(float(self.dice[place]), self.interval(place, level)))
            row["gain_points"] = float(100 * gain)
            row |= {key: None if end is None else 100 * end for key, end in limits("gain_points", around).items()}
            recovered, share = None, None
            if ceiling >= _SMALLEST and method not in ("none", "best"):
                recovered = float(gain / ceiling)
                defined = np.where(drawn_ceiling > 0, drawn_ceiling, np.nan)
                share = percentile_interval(drawn_gain / defined, level) if self.many else None
            row |= measured("recovered", Measured(recovered, share))
            rows.append(row)
        return rows


def study_calibration(
    material: Material, *, maps: bool = True, say: Callable[[str], object] = lambda line: None
) -> StudyOutcome:
    """How much of delta Dice is recovered by calibration on other patients.

    maps: also quantile normalisation, which reads the stored maps. say: is told the cost before the study begins.
    Raises RunError when all models are boxes.
    """
    material = material.of_maps()
    methods = [name for name in _LABELS if maps or not name.startswith("quantile")]
    say(calibration_cost(material, maps))
    level = material.sampling.level
    rows: dict[str, list[dict[str, Any]]] = {"models": [], "cells": [], "classes": []}
    remarks: list[str] = []
    for model in material.models:
        kept: list[_Calibrated] = []
        for cell in material.of_model(model):
            if not cell.n:
                continue
            dice, reasons = _dice(cell, material, methods)
            remarks += reasons
            if unfitted := _unfitted(cell):
                names = ", ".join(cell.classes[index] for index in unfitted)
                remarks.append(f"{cell.model} on {cell.title}: nothing is fitted for {names}, with one patient each.")
            if len(unfitted) == len(np.unique(cell.class_of)):
                continue
            classes, mean = _summarised(cell, dice)
            rows["classes"] += [row for item in classes for row in item.rows(methods, level)]
            rows["cells"] += mean.rows(methods, level)
            kept.append(mean)
        if why := material.no_mean(model):
            remarks.append(why)
        elif kept:
            rows["models"] += _over_datasets(model, kept).rows(methods, level)
    facts = (
        "fitted per class on other patients than those it is applied to; intervals keep the fits",
        "recovered: the gain over tau = 0.5 as a share of delta Dice, the gain of the best threshold on the same pairs",
        material.sampling.fact,
        *material.searches,
        *material.unfinished,
    )
    return StudyOutcome(
        name="calibration",
        title="Post-hoc calibration",
        facts=facts,
        tables=(material.table(_MODELS, rows["models"]), _cell_table(rows["cells"], methods, material)),
        data=rows,
        settings={"maps": maps, **material.sampling.settings},
        remarks=tuple(dict.fromkeys(remarks)),
    ).with_figures(lambda: draw_calibration(rows["models"], {n: _LABELS[n][0] for n in methods}, material))


def _dice(cell: StudyCell, material: Material, methods: Sequence[str]) -> tuple[Float, list[str]]:
    """Dice of each pair by method, float64 [P, M], NaN if a method needs data that is missing, and why."""
    reasons: list[str] = []
    try:
        columns = _fitted(cell, cell.counts, METHODS)
    except ValueError as error:  # counts of another protocol do not hold the values below the first threshold
        reasons.append(f"No isotonic or beta map of {cell.model} on {cell.title}: {error}.")
        columns = _fitted(cell, cell.counts, ("none", "held_out", "best"))
    if "quantile" in methods:
        try:
            counts = quantile_pairs(cell, material.run)
            columns["quantile"] = dice_at(counts, np.full(cell.n, FIXED, np.intp))
            columns["quantile_held_out"] = _fitted(cell, counts, ("held_out",))["held_out"]
        except XBenchError as error:
            reasons.append(f"No quantile normalisation of {cell.model} on {cell.title}: {error}")
    absent = np.full(cell.n, np.nan)
    return np.column_stack([columns.get(method, absent) for method in methods]), reasons


def quantile_pairs(cell: StudyCell, run: StoredRun) -> Counts:
    """Counts of a cell's pairs, in its order, of maps whose values are replaced by their quantile within the image.

    About 0.7 ms a pair. Raises RunError when the run keeps no maps of the cell, or not of all its pairs.
    """
    maps, saliency = kept_maps(cell, run)
    sweeping = Sweeping(find_protocol(cell.rows.protocol).sweeping.upsample)
    parts = []
    for index in map_places(cell, maps):
        y0, x0, y1, x1 = maps.frames[index].tolist()
        inside = unpack_masks(maps.masks[index], GRID[1])
        parts.append(quantile_counts(scaled_map(saliency[index], frame=(y0, x0, y1, x1), sweeping=sweeping), inside))
    return Counts.concatenate(parts)


def _fitted(cell: StudyCell, counts: Counts, methods: Sequence[Method]) -> dict[str, Float]:
    """Dice of each pair by method, float64 [P]: the mean over the repeats of cross-fitting."""
    repeats = [
        {
            method: dice_at(counts, levels)
            for method, levels in calibrated_levels(counts, cell.class_of, folds, methods, cell.options()).items()
        }
        for folds in pair_folds(cell.patients.folds, cell.class_of, cell.patient_of)
    ]
    return {method: np.mean([repeat[method] for repeat in repeats], axis=0) for method in methods}


def _unfitted(cell: StudyCell) -> list[int]:
    """Classes that have pairs of one patient only, so that nothing can be fitted on others."""
    return [index for index in np.unique(cell.class_of) if len(np.unique(cell.patient_of[cell.class_of == index])) < 2]


def _summarised(cell: StudyCell, dice: Float) -> tuple[list[_Calibrated], _Calibrated]:
    """Each class that has pairs, and the mean of those of which a threshold can be fitted."""
    fitted = ~np.isin(cell.class_of, _unfitted(cell))
    means = class_means(dice, cell.class_of, len(cell.classes), cell.draws, cell.patient_of)
    shared = class_means(dice[fitted], cell.class_of[fitted], len(cell.classes), cell.draws, cell.patient_of[fitted])
    key = {"model": cell.model, "dataset": cell.dataset}
    sample = cell.sample

    def shares_of(values: Float, name: str = "") -> tuple[Shares | None, ...]:
        return tuple(sample.shares(column, name) for column in values.T)

    def many(pairs: NDArray[np.bool_]) -> bool:
        return len(np.unique(cell.patient_of[pairs])) >= MANY_PATIENTS

    classes = []
    for index in np.unique(cell.class_of):
        pairs, name = cell.class_of == index, cell.classes[index]
        labels = {**key, "class": name, "n": int(pairs.sum())}
        class_dice = means.classes[:, index]
        classes.append(_Calibrated(labels, class_dice[0], class_dice[1:], shares_of(dice, name), many(pairs)))
    labels = {**key, "class": "mean", "n": int(fitted.sum())}
    parts = shares_of(np.where(fitted[:, None], dice, np.nan))
    return classes, _Calibrated(labels, shared.macro[0], shared.macro[1:], parts, many(fitted))


def _over_datasets(model: str, cells: Sequence[_Calibrated]) -> _Calibrated:
    """Mean over datasets; a method that one dataset lacks has none."""
    key = {"model": model, "datasets": len(cells), "n": sum(item.key["n"] for item in cells)}
    dice, drawn = (np.mean([getattr(item, name) for item in cells], axis=0) for name in ("dice", "drawn"))
    return _Calibrated(key, dice, drawn, (), all(item.many for item in cells))


_MODELS: Final = StudyTable(
    "Calibration per model",
    "calibration",
    (
        *texts("model", "datasets", "n"),
        Shown("method", lambda row: _LABELS[row["method"]][0]),
        Shown("", lambda row: row["label"].replace("_", "-")),
        metric("dice", "Dice", of="dice_fixed"),
        metric("gain_points", "gain", of="delta_dice"),
        shares("recovered", "recovered %"),
    ),
    (
        "in-sample: threshold chosen on the same pairs; chosen per class it is the ceiling of every method that maps "
        "values alike in all images of a class; cross-fitted: fitted on other patients; untuned: nothing was fitted",
        "Dice in percent, mean over datasets; gain: percentage points over tau = 0.5; quantiles map values otherwise "
        "in every image, so they can pass the ceiling",
        "a probability cut at 0.5 is right for the most pixels; half of the best Dice is the cut that is best for Dice",
        f"recovered is not given where delta Dice is below {100 * _SMALLEST:g} points",
    ),
)


def _cell_table(rows: Rows, methods: Sequence[str], material: Material) -> Table:
    columns = [Column("model"), Column("dataset"), Column("n")]
    for method in methods:
        label, kind = _LABELS[method]
        group = f"{label} ({kind})"
        columns.append(Column("Dice", group))
        if method not in ("none", "best"):
            columns.append(Column("recovered %", group))
    row_of = {(row["model"], row["dataset"], row["method"]): row for row in rows}
    body: list[tuple[Item, ...]] = []
    for model, dataset, n in dict.fromkeys((row["model"], row["dataset"], row["n"]) for row in rows):
        line: list[Item] = [str(model), material.title(dataset), str(n)]
        for method in methods:
            row = row_of.get((model, dataset, method))
            line.append(metric_cell("dice_fixed", row["dice"], between(row, "dice")) if row else "-")
            if method not in ("none", "best"):
                line.append(share_cell(row["recovered"], between(row, "recovered")) if row else "-")
        body.append(tuple(line))
    notes = ("percent; mean over the classes that have pairs; classes are in classes.csv",)
    return Table("Calibration per dataset", tuple(columns), tuple(body), material.stamps, notes, "calibration-datasets")
