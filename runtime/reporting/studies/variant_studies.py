"""Studies of variants of one model on the same images: prompt sets, and kinds of maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ....engines.manifest import OFFICIAL_MAP
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ..figures.study_figures import draw_spread
from .columns import StudyTable, of_measure, text
from .compared_variants import MANY, ComparedVariants
from .material import Material
from .study_cell import StudyCell
from .study_outcome import Rows, StudyOutcome
from .variants import (
    MEASURE,
    beside,
    difference_table,
    group_variants,
    long_rows,
)
from .wording.wording_tables import CHOICES, FINDINGS, SHARES
from .wording.wordings import Wordings

_SPREAD: Final = StudyTable(
    "Spread over prompt sets",
    "spread",
    (
        text("model"),
        MEASURE,
        text("classes"),
        of_measure("spread_mean", "mean spread"),
        of_measure("deviation_mean", "mean deviation"),
        of_measure("spread_largest", "largest spread"),
        text("largest_in", "of"),
    ),
    (
        "percentage points; spread: largest minus smallest value of a class over the prompt sets; deviation: their "
        "standard deviation; both are above 0 by chance alone where a class has few pairs",
    ),
    lead=2,
)


def study_prompts(materials: Sequence[Material], by: str = "model") -> StudyOutcome:
    """Values of every prompt set, their spread, and paired differences from the first.

    by: `model` or `family`, what the variants of a group have in common besides the dataset. Raises RunError if there
    is nothing to compare, or variants were swept by different protocols.
    """
    variants_of, remarks = group_variants(materials, lambda cell: cell.bundle if by == "model" else cell.family)
    compared, wordings = ComparedVariants(materials, remarks), Wordings(materials[0].sampling.level)
    for key, title, variants in variants_of:
        group = beside(key, title, variants, materials[0])
        if isinstance(group, str):
            remarks.append(group)
            continue
        sets = [rows.entry["ingredients"].get("prompt_set") for rows, _ in group.parts]
        if len(set(sets)) < len(sets):
            remarks.append(f"{key} on {title}: some variants have the same prompts, so they differ in something else.")
        cells = group.by_class()
        compared.add(group, cells, "class", "prompt sets side by side")
        wordings.add(group, cells)
    differences = compared.differences(
        "No model has two prompt sets on one dataset: evaluate it with --prompts for each of them, or give several "
        "runs."
    )
    wordings.finish()
    means = [row for row in differences if row["class"] == "mean"]
    spread = _spread_rows(compared.values)
    stamps = compared.stamps
    tables = [
        SHARES.table(wordings.shares, stamps),
        CHOICES.table(wordings.choices, stamps),
        FINDINGS.table(wordings.findings, stamps),
        _SPREAD.table(spread, stamps),
    ]
    many = any(len(group.labels) > MANY for group, *_ in compared.groups)
    if many:
        remarks.append(
            f"More than {MANY} prompt sets: the tables leave out the values and differences of each set; they are in "
            "values.csv, differences.csv and changes.csv."
        )
    else:
        tables.append(difference_table(means, "class", "Paired differences, mean over classes", stamps))
    outcome = StudyOutcome(
        name="prompts",
        title="Prompt sensitivity",
        facts=(),
        tables=tuple(tables),
        data={
            "shares": wordings.shares,
            "choices": wordings.choices,
            "findings": wordings.findings,
            "changes": wordings.changes,
            "spread": spread,
            "values": long_rows(compared.values),
            "differences": differences,
        },
        settings={"by": by},
    )
    fact = f"{len(compared.groups)} models and datasets with several prompt sets; the first is the reference"
    figure = ("prompt-differences", "Pointing by prompt set")
    outcome = compared.outcome(outcome, fact, figure, [] if many else means)
    pointing = [row for row in outcome.data["values"] if row["measure"] == "pointing" and row["class"] != "mean"]
    return outcome.with_figures(lambda: [*outcome.figures, *draw_spread(pointing, stamps)])


def _spread_rows(values: Rows) -> list[dict[str, Any]]:
    """Mean spread over the classes of a model, all its datasets together."""
    rows = []
    for model in dict.fromkeys(row["model"] for row in values):
        for measure in dict.fromkeys(row["measure"] for row in values):
            classes = [
                row
                for row in values
                if (row["model"], row["measure"]) == (model, measure)
                and row["class"] != "mean"
                and row["spread"] is not None
            ]
            if not classes:
                continue
            widest = max(classes, key=lambda row: row["spread"])
            rows.append(
                {
                    "model": model,
                    "measure": measure,
                    "classes": len(classes),
                    "spread_mean": macro_mean(row["spread"] for row in classes),
                    "deviation_mean": macro_mean(row["deviation"] for row in classes),
                    "spread_largest": widest["spread"],
                    "largest_in": f"{widest['class']} ({widest['dataset']}, n = {widest['n']})",
                }
            )
    return rows


def study_mechanisms(materials: Sequence[Material]) -> StudyOutcome:
    """Values of every saliency map of a model, and paired differences from the authors' map, or else the first.

    Raises RunError if no model has two maps on one dataset, or variants were swept by different protocols.
    """
    variants_of, remarks = group_variants(materials, _without_map)
    compared = ComparedVariants(materials, remarks)
    for key, title, variants in variants_of:
        maps = [(_map_name(variant.rows.entry), variant) for variant in variants]
        if len({name for name, _ in maps}) < 2:
            continue
        maps.sort(key=lambda item: item[0] != OFFICIAL_MAP)
        labelled = [replace(variant, label=f"{variant.label} [{name}]") for name, variant in maps]
        group = beside(key, title, labelled, materials[0])
        if isinstance(group, str):
            remarks.append(group)
            continue
        if len({str(rows.entry["ingredients"].get("prompt_set")) for rows, _ in group.parts}) > 1:
            remarks.append(f"{key} on {title}: some variants have other prompts or weights: not only maps differ.")
        compared.add(group, group.by_class(), "class", "maps side by side")
    differences = compared.differences(
        "No model has two saliency maps on one dataset: export another one with xbench-export --saliency and evaluate "
        "both, or give the run of the other too."
    )
    means = [row for row in differences if row["class"] == "mean"]
    outcome = StudyOutcome(
        name="mechanisms",
        title="Mechanisms of maps",
        facts=(),
        tables=(difference_table(means, "class", "Paired differences, mean over classes", compared.stamps),),
        data={"values": long_rows(compared.values), "differences": differences},
    )
    fact = f"{len(compared.groups)} models and datasets with several maps; the authors' map is the reference"
    return compared.outcome(outcome, fact, ("mechanism-differences", "Pointing by saliency map"), means)


def _map_name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("saliency_map", OFFICIAL_MAP))


def _without_map(cell: StudyCell) -> str:
    """The model without the name of its map, which its bundle's name has after the variant."""
    name = _map_name(cell.rows.entry)
    return cell.model if name == OFFICIAL_MAP else cell.model.replace(f"-{name}", "", 1)
