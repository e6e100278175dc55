"""Does a larger input improve the numbers, and for which sizes of the region (docs/saliency.md §6)?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ....metrics_gpu.grounding.strata import strata_of
from ...results.comparing.cell_variants import Variant
from .columns import StudyTable, of_measure, text, texts
from .compared_variants import ComparedVariants
from .material import Material
from .study_cell import PIXELS
from .study_outcome import StudyOutcome
from .variants import beside, difference_table, group_variants, long_rows

_MARGIN: Final = 0.05
"""A gain in pointing below which resolution is said not to limit a stratum. It is a choice of this project (docs/
saliency.md §6), not a measured bound."""

_ANSWERS: Final = StudyTable(
    "Does resolution limit grounding?",
    "answers",
    (*texts("model", "dataset", "stratum"), text("variant"), of_measure("difference", "pointing"), text("answer")),
    (
        "percentage points of pointing, variant minus the coarsest grid, on the same pairs",
        "resolution limits: the interval is above 0 and p (Holm) is at most 0.05; not resolution: the interval is "
        f"below {100 * _MARGIN:.0f} points, a choice of this project; cannot tell: neither, or too few pairs",
    ),
    lead=4,
)


def study_resolution(materials: Sequence[Material]) -> StudyOutcome:
    """Values of every variant per class and per size stratum, and paired differences from the coarsest grid.

    A variant whose grid is not known, maps of several sizes, is left out. Raises RunError if no family has two others
    on one dataset, or variants were swept by different protocols.
    """
    variants_of, remarks = group_variants(materials, lambda cell: cell.family)
    compared = ComparedVariants(materials, remarks)
    for key, title, variants in variants_of:
        sized = []
        for variant in variants:
            if grid := _grid(variant):
                sized.append((grid, replace(variant, label=f"{variant.label} [{grid[0]} x {grid[1]}]")))
            else:
                remarks.append(
                    f"{key} on {title}: {variant.label} is left out, because the size of its maps is not known."
                )
        if len(sized) < 2:
            continue
        sized.sort(key=lambda item: item[0][0] * item[0][1])
        group = beside(key, title, [variant for _, variant in sized], materials[0])
        if isinstance(group, str):
            remarks.append(group)
            continue
        if len({height * width for (height, width), _ in sized}) == 1:
            remarks.append(f"{key} on {title}: the variants have one grid, so they may not differ in resolution.")
        index, strata = strata_of(group.parts[0][1].counts.region, PIXELS)
        compared.add(group, group.by_stratum(strata, index), "stratum", "by stratum")
        compared.add(group, group.by_class(), "class", "by class")
    differences = compared.differences(
        "No model family has two variants on one dataset: evaluate another size into the same run, or give its run too."
    )
    by_stratum = [row for row in differences if "stratum" in row]
    answers = [
        {**row, "answer": _answer(row)}
        for row in by_stratum
        if row["measure"] == "pointing" and row["stratum"] != "mean"
    ]
    outcome = StudyOutcome(
        name="resolution",
        title="Resolution",
        facts=(),
        tables=(
            _ANSWERS.table(answers, compared.stamps),
            difference_table(by_stratum, "stratum", "Paired differences by size", compared.stamps),
        ),
        data={"answers": answers, "values": long_rows(compared.values), "differences": differences},
    )
    figure = ("resolution-differences", "Pointing by resolution and size of the region")
    fact = "variants are in the order of their grids; the coarsest is the reference"
    return compared.outcome(outcome, fact, figure, by_stratum)


def _answer(row: Mapping[str, Any]) -> str:
    """What a paired difference in pointing of one stratum says about its resolution."""
    low, high, p = row["difference_low"], row["difference_high"], row["p_holm"]
    if low is not None and low > 0 and p is not None and p <= 0.05:
        return "resolution limits"
    return "not resolution" if high is not None and high < _MARGIN else "cannot tell"


def _grid(variant: Variant) -> tuple[int, int] | None:
    """Height and width of a variant's maps; the grid of maps that were too large to be kept is recorded separately."""
    entry = variant.rows.entry
    grid = entry.get("map_size") or entry.get("grid")
    return None if grid is None else (int(grid[0]), int(grid[1]))
