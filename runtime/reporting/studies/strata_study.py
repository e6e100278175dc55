"""Study of grounding by size of the region: fixed edges and thirds, per dataset and overall (docs/metrics.md §10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from ....metrics_gpu.grounding.protocols import Unit
from ....metrics_gpu.grounding.strata import EDGES, size_strata
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ....metrics_gpu.statistics.intervals import mean_interval
from ....metrics_gpu.statistics.measured_numbers import Measured
from ...results.numbers.fields import number_of
from ..figures.study_figures import draw_strata
from ..tables.table import Table
from .columns import StudyTable, measured, metric, percents, texts
from .estimates import over_datasets
from .material import Material
from .study_cell import PIXELS, StudyCell
from .study_outcome import Rows, StudyOutcome
from .writing import CROSS_FITTED, IN_SAMPLE, INTERVALS

ALL = "mean of datasets"

_UNITS: tuple[Unit, ...] = ("per_class", "cross_fit")
_PLAIN = ("chance", "size_mean", "floor_dice")
"""Numbers of a stratum that have no interval."""


def study_strata(material: Material) -> StudyOutcome:
    """Pointing and Dice by size of the region."""
    level = material.sampling.level
    rows: list[dict[str, Any]] = []
    remarks: list[str] = []
    for model in material.models:
        cells = [cell for cell in material.of_model(model) if cell.n]
        strata = [list(strata_of_cell(cell, False, level)) for cell in cells]
        for cell, with_numbers in zip(cells, strata, strict=True):
            rows += [row for row, _ in with_numbers] + [row for row, _ in strata_of_cell(cell, True, level)]
        if why := material.no_mean(model):
            remarks.append(why)
        elif len(cells) > 1:
            rows += _mean_of_datasets(strata, level)
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
        remarks=tuple(remarks),
    ).with_figures(lambda: draw_strata(rows, material))


def strata_of_cell(
    cell: StudyCell, tertiles: bool, level: float
) -> Iterator[tuple[dict[str, Any], dict[str, Measured]]]:
    """The rows of a cell, each with its numbers that have replicates."""
    of_best, of_fitted = (
        size_strata(cell.resampled_pairs, PIXELS, cell.options(unit), tertiles=tertiles) for unit in _UNITS
    )
    names = of_best.grounding.names
    sample = replace(cell.sample, findings=names, class_of=of_best.index)
    grounding = of_best.grounding
    for place, name in enumerate(names):
        sizes = cell.counts.region[of_best.index == place] / PIXELS
        gap = of_best.above_chance(name)
        added = sample.shares(grounding.each["pointing"] - grounding.each["chance"], name)
        pointing, fixed, chosen = (
            number_of(grounding, key, name, sample, level) for key in ("pointing", "dice_fixed", "dice_best")
        )
        above = replace(Measured.of_row(gap), interval=mean_interval(gap[1:], added, level, None))
        held_out = number_of(of_fitted.grounding, "dice_best", name, sample, level)
        if not cell.has_thresholds:
            chosen, held_out = (replace(estimate, value=None, interval=None) for estimate in (chosen, held_out))
        row = {
            "division": "thirds" if tertiles else "fixed",
            "model": cell.model,
            "dataset": cell.dataset,
            "stratum": name,
            "n": grounding.count("n", name),
            "size_smallest": float(sizes.min()) if len(sizes) else None,
            "size_mean": of_best.mean_fraction[place],
            "size_largest": float(sizes.max()) if len(sizes) else None,
            "chance": grounding.value("chance", name),
            **measured("pointing", pointing, method=True),
            **measured("above_chance", above),
            **measured("dice_fixed", fixed),
            **measured("dice_best", chosen),
            "tau_best": grounding.value("best_tau", name) if cell.has_thresholds else None,
            **measured("dice_cross_fitted", held_out),
            "floor_dice": grounding.value("floor_dice", name),
        }
        estimates = {"pointing": pointing, "above_chance": above, "dice_fixed": fixed}
        yield row, {**estimates, "dice_best": chosen, "dice_cross_fitted": held_out}


def _mean_of_datasets(
    cells: Sequence[Sequence[tuple[dict[str, Any], dict[str, Measured]]]], level: float
) -> Iterator[dict[str, Any]]:
    """The unweighted mean, of each stratum, over the datasets that have pairs in it.

    Pairs of several datasets are not put together: datasets can share images.
    """
    for members in zip(*cells, strict=True):
        used = [(row, estimates) for row, estimates in members if row["n"]]
        mean: dict[str, Any] = {**members[0][0], "dataset": ALL, "n": sum(row["n"] for row, _ in used)}
        mean |= {"tau_best": None, "pointing_interval": None}
        for end, of in (("smallest", min), ("largest", max)):
            mean[f"size_{end}"] = of((row[f"size_{end}"] for row, _ in used), default=None)
        mean |= {key: macro_mean(row[key] for row, _ in used) for key in _PLAIN}
        for key in members[0][1]:
            whole = over_datasets((estimates[key] for _, estimates in used), level)
            mean |= measured(key, whole)
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
