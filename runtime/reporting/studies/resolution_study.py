"""Study of resolution: variants of one model family on the same images, by size of the region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....engines.errors import RunError
from ....metrics_gpu.grounding.strata import strata_of
from ...results.comparing.cell_variants import Variant
from ..figures.study_differences import draw_differences
from .material import Material
from .side_by_side import all_stamps, difference_table, value_table
from .study_cell import PIXELS
from .study_outcome import StudyOutcome, drawn
from .variant_groups import beside, group_variants
from .variant_rows import difference_rows, long_rows, value_rows


def study_resolution(materials: Sequence[Material]) -> StudyOutcome:
    """Values of every variant per class and per size stratum, and paired differences from the coarsest grid.

    A variant whose grid is not known, maps of several sizes, is left out. Raises RunError if no family has two others
    on one dataset, or variants were swept by different protocols.
    """
    found, remarks = group_variants(materials, lambda cell: cell.family)
    stamps = all_stamps([material.stamps for material in materials])
    groups, tables = [], []
    values: list[dict[str, Any]] = []
    for key, title, variants in found:
        known = [variant for variant in variants if _grid(variant) is not None]
        remarks += [
            f"{key} on {title}: {variant.label} is left out, because the size of its maps is not known."
            for variant in variants
            if variant not in known
        ]
        if len(known) < 2:
            continue
        ordered = sorted(known, key=_cells)
        group = beside(key, title, [_named(variant) for variant in ordered], materials[0])
        if isinstance(group, str):
            remarks.append(group)
            continue
        if len({_cells(variant) for variant in ordered}) == 1:
            remarks.append(f"{key} on {title}: the variants have one grid, so they may not differ in resolution.")
        index, strata = strata_of(group.parts[0][1].counts.region, PIXELS)
        for kind, cells in (("stratum", group.by_stratum(strata, index)), ("class", group.by_class())):
            groups.append((group, cells, kind))
            own = value_rows(group, cells, kind)
            values += own
            tables.append(value_table(group, own, kind, f"{key} on {title}: by {kind}", stamps))
    if not tables:
        raise RunError(
            "No model family has two variants on one dataset: evaluate another size into the same run, or give its run "
            f"too.{' ' + remarks[0] if remarks else ''}"
        )
    differences = difference_rows(groups)
    by_stratum = [row for row in differences if "stratum" in row]
    figures, said = drawn(
        lambda: draw_differences(
            "resolution-differences",
            "Pointing by resolution and size of the region",
            [row for row in by_stratum if row["measure"] == "pointing"],
            stamps,
        )
    )
    facts = (
        f"runs: {', '.join(str(material.path) for material in materials)}",
        "variants are in the order of their grids; the coarsest is the reference",
        materials[0].sampling.fact,
        *(line for material in materials for line in material.unfinished),
    )
    return StudyOutcome(
        name="resolution",
        title="Resolution",
        facts=facts,
        tables=(
            difference_table(by_stratum, "stratum", "Paired differences by size", stamps),
            *tables,
        ),
        data={"values": long_rows(values), "differences": differences},
        settings=materials[0].sampling.settings,
        figures=figures,
        remarks=(*remarks, *said),
    )


def _grid(variant: Variant) -> tuple[int, int] | None:
    """Height and width of a variant's maps; the grid of maps that were too large to be kept is recorded separately."""
    entry = variant.rows.entry
    found = entry.get("map_size") or entry.get("grid")
    return None if found is None else (int(found[0]), int(found[1]))


def _cells(variant: Variant) -> int:
    height, width = _grid(variant) or (0, 0)
    return height * width


def _named(variant: Variant) -> Variant:
    height, width = _grid(variant) or (0, 0)
    return replace(variant, label=f"{variant.label} [{height} x {width}]")
