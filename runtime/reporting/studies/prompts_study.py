"""Study of prompt sensitivity: one model with several prompt sets, on the same images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engines.errors import RunError
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ...results.comparing.cell_variants import Variants
from ..figures.study_differences import draw_differences
from ..tables.metric_names import heading
from ..tables.table import Column, Item, Table
from .material import Material
from .side_by_side import all_stamps, difference_table, value_table
from .study_outcome import Rows, StudyOutcome, drawn
from .variant_groups import beside, group_variants
from .variant_rows import MEASURES, difference_rows, long_rows, value_rows
from .writing import metric_cell


def study_prompts(materials: Sequence[Material], by: str = "model") -> StudyOutcome:
    """Values of every prompt set, their spread, and paired differences from the first.

    by: `model` or `family`, what the variants of a group have in common besides the dataset. Raises RunError if there
    is nothing to compare, or variants were swept by different protocols.
    """
    found, remarks = group_variants(materials, lambda cell: cell.model if by == "model" else cell.family)
    stamps = all_stamps([material.stamps for material in materials])
    groups, tables = [], []
    values: list[dict[str, Any]] = []
    for key, title, variants in found:
        group = beside(key, title, variants, materials[0])
        if isinstance(group, str):
            remarks.append(group)
            continue
        found_values = group.by_class()
        groups.append((group, found_values, "class"))
        remarks += _alike(group)
        own = value_rows(group, found_values, "class")
        values += own
        tables.append(value_table(group, own, "class", f"{key} on {title}: prompt sets side by side", stamps))
    if not groups:
        raise RunError(
            "No model has two prompt sets on one dataset: give several runs, or evaluate a dataset twice with other "
            f"prompts under another name.{' ' + remarks[0] if remarks else ''}"
        )
    differences = difference_rows(groups)
    means = [row for row in differences if row["class"] == "mean"]
    spread = _spread_rows(values)
    figures, said = drawn(
        lambda: draw_differences(
            "prompt-differences",
            "Pointing by prompt set",
            [row for row in means if row["measure"] == "pointing"],
            stamps,
        )
    )
    facts = (
        f"runs: {', '.join(str(material.path) for material in materials)}",
        f"{len(groups)} models and datasets with several prompt sets; the first is the reference",
        materials[0].sampling.fact,
        *(line for material in materials for line in material.unfinished),
    )
    return StudyOutcome(
        name="prompts",
        title="Prompt sensitivity",
        facts=facts,
        tables=(
            _spread_table(spread, stamps),
            difference_table(means, "class", "Paired differences, mean over classes", stamps),
            *tables,
        ),
        data={"spread": spread, "values": long_rows(values), "differences": differences},
        settings={"by": by, **materials[0].sampling.settings},
        figures=figures,
        remarks=(*remarks, *said),
    )


def _alike(group: Variants) -> list[str]:
    """A sentence if some variants have the same prompts."""
    sets = [rows.entry["ingredients"].get("prompt_set") for rows, _ in group.parts]
    if len(set(sets)) < len(sets):
        return [f"{group.key} on {group.title}: some variants have the same prompts, so they differ in something else."]
    return []


def _spread_rows(values: Rows) -> list[dict[str, Any]]:
    """Mean spread over the classes of a model, all its datasets together."""
    rows = []
    for model in dict.fromkeys(row["model"] for row in values):
        for measure in MEASURES:
            own = [r for r in values if (r["model"], r["measure"]) == (model, measure) and r["class"] != "mean"]
            known = [row for row in own if row["spread"] is not None]
            widest = max(known, key=lambda row: row["spread"], default=None)
            if widest is not None:
                rows.append(
                    {
                        "model": model,
                        "measure": measure,
                        "classes": len(known),
                        "spread_mean": macro_mean(row["spread"] for row in known),
                        "deviation_mean": macro_mean(row["deviation"] for row in known),
                        "spread_largest": widest["spread"],
                        "largest_in": f"{widest['class']} ({widest['dataset']}, n = {widest['n']})",
                    }
                )
    return rows


def _spread_table(rows: Rows, stamps: tuple[str, ...]) -> Table:
    columns = ("model", "measure", "classes", "mean spread", "mean deviation", "largest spread", "of")
    body: tuple[tuple[Item, ...], ...] = tuple(
        (
            str(row["model"]),
            heading(row["measure"], True),
            str(row["classes"]),
            *(metric_cell(row["measure"], row[f]) for f in ("spread_mean", "deviation_mean", "spread_largest")),
            str(row["largest_in"]),
        )
        for row in rows
    )
    notes = (
        "percentage points; spread: largest minus smallest value of a class over the prompt sets; deviation: their "
        "standard deviation; both are above 0 by chance alone where a class has few pairs",
    )
    return Table("Spread over prompt sets", tuple(map(Column, columns)), body, stamps, notes, "spread", lead=2)
