"""Study of grounding by size of the region: fixed edges and thirds, per dataset and overall (docs/metrics.md §10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.protocols import Unit
from ....metrics_gpu.grounding.strata import EDGES, size_strata
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ....metrics_gpu.statistics.intervals import mean_interval, percentile_interval
from ...results.numbers.fields import grounding_interval
from ..figures.study_figures import draw_strata
from ..tables.table import Table
from .columns import StudyTable, measured, metric, percents, texts
from .material import Material
from .study_cell import PIXELS, StudyCell
from .study_outcome import Rows, StudyOutcome, drawn
from .writing import CROSS_FITTED, IN_SAMPLE, INTERVALS, limits, without_best

Float = NDArray[np.float64]

ALL = "mean of datasets"

_UNITS: tuple[Unit, ...] = ("per_class", "cross_fit")
_MEANS = (
    "size_mean",
    "chance",
    "pointing",
    "above_chance",
    "dice_fixed",
    "dice_best",
    "dice_cross_fitted",
    "floor_dice",
)
_PLAIN = ("pointing", "dice_fixed", "dice_best")
_RESAMPLED = ("pointing", "above_chance", "dice_fixed", "dice_best", "dice_cross_fitted")


def study_strata(material: Material) -> StudyOutcome:
    """Pointing and Dice by size of the region."""
    level = material.sampling.level
    rows: list[dict[str, Any]] = []
    remarks: list[str] = []
    for model in material.models:
        cells = [cell for cell in material.of_model(model) if cell.n]
        strata = [list(strata_of_cell(cell, False, level)) for cell in cells]
        for cell, own in zip(cells, strata, strict=True):
            rows += [row for row, _ in own] + [row for row, _ in strata_of_cell(cell, True, level)]
        if why := material.no_mean(model):
            remarks.append(why)
        elif len(cells) > 1:
            rows += _mean_of_datasets(strata, level)
    figures, said = drawn(lambda: draw_strata(rows, material))
    edges = ", ".join(f"{100 * edge:g}" for edge in EDGES)
    facts = (
        f"fixed strata begin at {edges} percent of the image; thirds are those of the pairs of a model and dataset",
        material.sampling.fact,
        INTERVALS,
        *material.unfinished,
    )
    fixed = [row for row in rows if row["division"] == "fixed"]
    thirds = [row for row in rows if row["division"] == "thirds"]
    return StudyOutcome(
        name="strata",
        title="Grounding by size of the region",
        facts=facts,
        tables=(
            _table("By fixed size", "strata-fixed", fixed, material),
            _table("By thirds of each dataset", "strata-thirds", thirds, material),
        ),
        data={"strata": rows},
        settings=material.sampling.settings,
        figures=figures,
        remarks=(*remarks, *said),
    )


_Drawn = dict[str, Float]
"""Replicates of the numbers of a stratum by column, float64 [B]; only of those whose interval is the bootstrap's."""


def strata_of_cell(cell: StudyCell, tertiles: bool, level: float) -> Iterator[tuple[dict[str, Any], _Drawn]]:
    """The rows of a cell, each with its replicates."""
    found, other = (size_strata(cell.asked, PIXELS, cell.options(unit), tertiles=tertiles) for unit in _UNITS)
    names = tuple(stratum.scores.name for stratum in found.strata)
    sample = replace(cell.sample, findings=names, class_of=found.index)
    best_of, fitted_of = found.grounding, other.grounding
    assert best_of.drawn is not None and fitted_of.drawn is not None  # the pairs have draws
    for place, (name, stratum) in enumerate(zip(names, found.strata, strict=True)):
        best, fitted = stratum.scores, other.strata[place].scores
        sizes = cell.counts.region[found.index == place] / PIXELS
        gap = best_of.drawn.of("pointing", name) - best_of.drawn.of("chance", name)
        added = sample.shares(best_of.each["pointing"] - best_of.each["chance"], name)
        intervals = {
            "above_chance": mean_interval(gap, added, level, None),
            "dice_cross_fitted": grounding_interval(fitted_of, "dice_best", name, sample, level),
            **{key: grounding_interval(best_of, key, name, sample, level) for key in _PLAIN},
        }
        replicates = {
            "above_chance": gap,
            "dice_cross_fitted": fitted_of.drawn.of("dice_best", name),
            **{key: best_of.drawn.of(key, name) for key in _PLAIN},
        }
        row = {
            "division": "thirds" if tertiles else "fixed",
            "model": cell.model,
            "dataset": cell.dataset,
            "stratum": name,
            "n": best.n,
            "size_smallest": float(sizes.min()) if len(sizes) else None,
            "size_mean": stratum.mean_fraction,
            "size_largest": float(sizes.max()) if len(sizes) else None,
            "chance": best.chance,
            **measured("pointing", best.pointing, intervals["pointing"], method=True),
            **measured("above_chance", stratum.above_chance, intervals["above_chance"]),
            **measured("dice_fixed", best.dice_fixed, intervals["dice_fixed"]),
            **measured("dice_best", best.dice_best, intervals["dice_best"]),
            "tau_best": best.best_tau,
            **measured("dice_cross_fitted", fitted.dice_best, intervals["dice_cross_fitted"]),
            "floor_dice": best.floor_dice,
        }
        safe = {key for key, found in intervals.items() if found is not None and found.method != "t"}
        yield (
            row if cell.has_thresholds else without_best(row),
            {key: values for key, values in replicates.items() if key in safe},
        )


def _mean_of_datasets(
    cells: Sequence[Sequence[tuple[dict[str, Any], _Drawn]]], level: float
) -> Iterator[dict[str, Any]]:
    """The unweighted mean, of each stratum, over the datasets that have pairs in it.

    Pairs of several datasets are not put together: datasets can share images. An interval stands where each of the
    datasets has one.
    """
    for members in zip(*cells, strict=True):
        used = [(row, drawn) for row, drawn in members if row["n"]]
        mean: dict[str, Any] = {**members[0][0], "dataset": ALL, "n": sum(row["n"] for row, _ in used)}
        mean |= {"tau_best": None, "pointing_interval": None}
        for end, of in (("smallest", min), ("largest", max)):
            mean[f"size_{end}"] = of((row[f"size_{end}"] for row, _ in used), default=None)
        for key in _MEANS:
            known = [(row[key], drawn.get(key)) for row, drawn in used if row[key] is not None]
            mean[key] = macro_mean(value for value, _ in known)
            if key in _RESAMPLED:
                parts = [drawn for _, drawn in known if drawn is not None]
                whole = np.mean(parts, axis=0) if parts and len(parts) == len(known) else None
                mean |= limits(key, None if whole is None else percentile_interval(whole, level))
        yield mean


_COLUMNS: Final = (
    *texts("model", "dataset", "stratum", "n"),
    percents("size_mean", "mean size"),
    metric("pointing", "value", "Point"),
    metric("chance", "chance", "Point"),
    metric("above_chance", "above chance", "Point", of="pointing"),
    metric("dice_fixed", "at 0.5", "Dice"),
    metric("dice_best", "best*", "Dice"),
    metric("dice_cross_fitted", "cross-fitted", "Dice"),
    metric("floor_dice", "all-ones", "Dice"),
)


def _table(title: str, name: str, rows: Rows, material: Material) -> Table:
    notes = (
        IN_SAMPLE,
        CROSS_FITTED,
        "percent; means over the pairs of a stratum, all classes together; thresholds are the stratum's own",
        *[f"{ALL}: unweighted, over the datasets that have pairs in the stratum"]
        * any(r["dataset"] == ALL for r in rows),
        "chance: the mean region fraction, the expected pointing of a random pixel; it grows with the region",
        "a cell of a 14 x 14 grid is 0.51 percent of the image, of a 7 x 7 grid 2.04 percent",
    )
    return material.table(StudyTable(title, name, _COLUMNS, notes), rows)
