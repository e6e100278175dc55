"""Study of grounding by size of the region: fixed edges and thirds, per dataset and overall (docs/metrics.md §10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...metrics_gpu.grounding.folds import patient_folds
from ...metrics_gpu.grounding.grounding_options import GroundingOptions, Unit
from ...metrics_gpu.grounding.pairs import Pairs
from ...metrics_gpu.grounding.strata import EDGES, size_strata
from ...metrics_gpu.statistics.bootstrap import Draws, Interval, percentile_interval
from ...metrics_gpu.statistics.proportions import SMALL, wilson_interval
from ...metrics_gpu.sweep.counts import Counts
from ..tables.table import Cell, Column, Item, Table
from .figures.strata import draw_strata
from .material import PIXELS, Material, StudyCell
from .outcome import Rows, StudyOutcome, drawn
from .writing import CROSS_FITTED, IN_SAMPLE, between, limits, metric_cell, percent_cell

__all__ = ["study_strata"]

ALL = "all datasets"

_UNITS: tuple[Unit, ...] = ("per_class", "cross_fit")


@dataclass(frozen=True, eq=False)
class _Pool:
    """Pairs that are divided together: those of a cell, or of all cells of a model."""

    model: str
    dataset: str
    pairs: Pairs
    options: GroundingOptions


def study_strata(material: Material) -> StudyOutcome:
    """Pointing and Dice by size of the region."""
    pools = [pool for model in material.models for pool in _pools(model, material)]
    rows = [
        row
        for pool in pools
        for tertiles in (False, True)
        if not (tertiles and pool.dataset == ALL)  # thirds are defined per dataset
        for row in _strata(pool, tertiles, material.sampling.level)
    ]
    figures, remarks = drawn(lambda: draw_strata(rows, material))
    edges = ", ".join(f"{100 * edge:g}" for edge in EDGES)
    facts = (
        f"fixed strata begin at {edges} percent of the image; thirds are those of the pairs of a model and dataset",
        f"{material.sampling.fact}; pointing of fewer than {SMALL} pairs: Wilson",
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
        remarks=remarks,
    )


def _pools(model: str, material: Material) -> Iterator[_Pool]:
    cells = [cell for cell in material.of_model(model) if cell.n]
    for cell in cells:
        yield _Pool(cell.model, cell.dataset, cell.asked, cell.options())
    if len(cells) > 1:
        yield _together(cells)


def _together(cells: Sequence[StudyCell]) -> _Pool:
    """All pairs of a model; the patients of each dataset are resampled separately."""
    starts = np.cumsum([0, *(cell.draws.patients for cell in cells)])
    patients = [cell.patient_of + start for cell, start in zip(cells, starts, strict=False)]
    counts = Counts.concatenate([cell.counts for cell in cells])
    patient_of = np.concatenate(patients)
    pairs = Pairs(
        counts,
        np.zeros(len(counts), np.intp),
        (ALL,),  # divided into strata afterwards
        fold_of=patient_folds(np.zeros(len(counts), np.intp), patient_of),
        hits=np.concatenate([cell.hits for cell in cells]),
        draws=Draws(np.hstack([cell.draws.counts for cell in cells]), cells[0].draws.seed),
        patient_of=patient_of,
    )
    return _Pool(cells[0].model, ALL, pairs, cells[0].options())


def _strata(pool: _Pool, tertiles: bool, level: float) -> Iterator[dict[str, Any]]:
    found, other = (
        size_strata(pool.pairs, PIXELS, replace(pool.options, unit=unit), tertiles=tertiles) for unit in _UNITS
    )
    sample, drawn_fitted = found.drawn, other.drawn
    assert sample is not None and drawn_fitted is not None  # the pairs have draws
    for place, stratum in enumerate(found.strata):
        best, fitted, name = stratum.scores, other.strata[place].scores, stratum.scores.name
        sizes = pool.pairs.counts.region[found.index == place] / PIXELS
        gap = percentile_interval(sample.of("pointing", name) - sample.of("chance", name), level)
        yield {
            "division": "thirds" if tertiles else "fixed",
            "model": pool.model,
            "dataset": pool.dataset,
            "stratum": name,
            "n": best.n,
            "size_smallest": float(sizes.min()) if len(sizes) else None,
            "size_mean": stratum.mean_fraction,
            "size_largest": float(sizes.max()) if len(sizes) else None,
            "chance": best.chance,
            "pointing": best.pointing,
            **_pointing_limits(best.pointing, best.n, sample.interval("pointing", name, level), level),
            "above_chance": stratum.above_chance,
            **limits("above_chance", gap),
            "dice_fixed": best.dice_fixed,
            **limits("dice_fixed", sample.interval("dice_fixed", name, level)),
            "dice_best": best.dice_best,
            **limits("dice_best", sample.interval("dice_best", name, level)),
            "tau_best": best.best_tau,
            "dice_cross_fitted": fitted.dice_best,
            **limits("dice_cross_fitted", drawn_fitted.interval("dice_best", name, level)),
            "floor_dice": best.floor_dice,
        }


def _pointing_limits(value: float | None, n: int, drawn_interval: Interval | None, level: float) -> dict[str, Any]:
    """The interval of pointing: Wilson's for few pairs, for which the bootstrap is not reliable."""
    interval = drawn_interval
    if value is not None and n < SMALL:
        interval = wilson_interval(value * n, n, level)
    return {**limits("pointing", interval), "pointing_interval": interval.method if interval else None}


def _table(title: str, name: str, rows: Rows, material: Material) -> Table:
    columns = (
        Column("model"),
        Column("dataset"),
        Column("stratum"),
        Column("n"),
        Column("mean size"),
        *(Column(text, "Point") for text in ("value", "chance", "above chance")),
        *(Column(text, "Dice") for text in ("at 0.5", "best*", "cross-fitted", "all-ones")),
    )
    body: list[tuple[Item, ...]] = []
    for row in rows:
        pointing = metric_cell("pointing", row["pointing"], between(row, "pointing"))
        if row["pointing_interval"] == "wilson":
            pointing = Cell(pointing.text, pointing.interval, note="Wilson")
        body.append(
            (
                str(row["model"]),
                ALL if row["dataset"] == ALL else material.title(row["dataset"]),
                str(row["stratum"]),
                str(row["n"]),
                percent_cell(row["size_mean"]),
                pointing,
                metric_cell("chance", row["chance"]),
                metric_cell("pointing", row["above_chance"], between(row, "above_chance")),
                *(metric_cell(f, row[f], between(row, f)) for f in ("dice_fixed", "dice_best", "dice_cross_fitted")),
                metric_cell("floor_dice", row["floor_dice"]),
            )
        )
    notes = (
        IN_SAMPLE,
        CROSS_FITTED,
        "percent; means over the pairs of a stratum, all classes together; thresholds are the stratum's own",
        "chance: the mean region fraction, the expected pointing of a random pixel; it grows with the region",
        "a cell of a 14 x 14 grid is 0.51 percent of the image, of a 7 x 7 grid 2.04 percent",
    )
    return Table(title, columns, tuple(body), material.stamps, notes, name)
