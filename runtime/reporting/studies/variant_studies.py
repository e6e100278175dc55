"""Studies of variants on the same images: prompt sets and maps of one model, and input sizes of one model family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ....engines.errors import RunError
from ....engines.manifest import OFFICIAL_MAP
from ....metrics_gpu.grounding.strata import strata_of
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ...results.comparing.cell_variants import Variant, Variants
from ...results.numbers.cell_values import CellValues
from ..figures.study_figures import draw_differences, draw_spread
from ..tables.table import Table
from .columns import StudyTable, of_measure, text, texts
from .material import Material
from .study_cell import PIXELS, StudyCell
from .study_outcome import Rows, StudyOutcome
from .variants import (
    MEASURE,
    MEASURES,
    Group,
    beside,
    difference_rows,
    difference_table,
    group_variants,
    long_rows,
    value_rows,
    value_table,
)
from .wording_tables import CHOICES, FINDINGS, SHARES
from .wordings import Wordings

_MANY: Final = 6
"""With more prompt sets, a table with columns for each of them is wider than a page: their values stand in the CSV."""

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


_MARGIN: Final = 0.05
"""A gain in pointing below which resolution is said not to limit a stratum: that of the verdicts of trust.md for
pointing."""

_ANSWERS: Final = StudyTable(
    "Does resolution limit grounding?",
    "answers",
    (*texts("model", "dataset", "stratum"), text("variant"), of_measure("difference", "pointing"), text("answer")),
    (
        "percentage points of pointing, variant minus the coarsest grid, on the same pairs",
        "resolution limits: the interval is above 0 and p (Holm) is at most 0.05; not resolution: the interval is "
        f"below {100 * _MARGIN:.0f} points, so the representation limits; cannot tell: neither, or too few pairs",
    ),
    lead=4,
)


@dataclass
class _Compared:
    """Variants side by side: their values as rows and tables, and what could not be compared."""

    materials: Sequence[Material]
    remarks: list[str]
    groups: list[Group] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def stamps(self) -> tuple[str, ...]:
        """The warnings about the numbers of all runs, each once."""
        return tuple(dict.fromkeys(line for material in self.materials for line in material.stamps))

    def add(self, group: Variants, cells: Sequence[CellValues], division: str, words: str) -> None:
        """Adds the values of a group by class or stratum; words: what its table shows."""
        rows = value_rows(group, cells, division)
        self.groups.append((group, cells, division))
        self.values += rows
        if len(group.labels) > _MANY:
            return
        self.tables.append(value_table(group, rows, division, f"{group.key} on {group.title}: {words}", self.stamps))

    def differences(self, lacks: str) -> list[dict[str, Any]]:
        """Paired differences from the first variant. Raises RunError, which says what the run `lacks`, without any
        group."""
        if not self.groups:
            raise RunError(f"{lacks}{' ' + self.remarks[0] if self.remarks else ''}")
        return difference_rows(self.groups)

    def outcome(self, outcome: StudyOutcome, fact: str, figure: tuple[str, str], differences: Rows) -> StudyOutcome:
        """The outcome with what all studies report; figure: name and title; differences: the rows that it draws."""
        pointing = [row for row in differences if row["measure"] == "pointing"]
        sampling = self.materials[0].sampling
        return replace(
            outcome,
            facts=(
                f"runs: {', '.join(str(material.path) for material in self.materials)}",
                fact,
                sampling.fact,
                *(line for material in self.materials for line in material.unfinished),
            ),
            tables=(*outcome.tables, *self.tables),
            settings={**outcome.settings, **sampling.settings},
            remarks=tuple(self.remarks),
        ).with_figures(lambda: draw_differences(*figure, pointing, self.stamps))


def study_prompts(materials: Sequence[Material], by: str = "model") -> StudyOutcome:
    """Values of every prompt set, their spread, and paired differences from the first.

    by: `model` or `family`, what the variants of a group have in common besides the dataset. Raises RunError if there
    is nothing to compare, or variants were swept by different protocols.
    """
    variants_of, remarks = group_variants(materials, lambda cell: cell.bundle if by == "model" else cell.family)
    compared, wordings = _Compared(materials, remarks), Wordings(materials[0].sampling.level)
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
    many = any(len(group.labels) > _MANY for group, *_ in compared.groups)
    if many:
        remarks.append(
            f"More than {_MANY} prompt sets: the tables leave out the values and differences of each set; they are in "
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
        for measure in MEASURES:
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


def study_resolution(materials: Sequence[Material]) -> StudyOutcome:
    """Values of every variant per class and per size stratum, and paired differences from the coarsest grid.

    A variant whose grid is not known, maps of several sizes, is left out. Raises RunError if no family has two others
    on one dataset, or variants were swept by different protocols.
    """
    variants_of, remarks = group_variants(materials, lambda cell: cell.family)
    compared = _Compared(materials, remarks)
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


def study_mechanisms(materials: Sequence[Material]) -> StudyOutcome:
    """Values of every saliency map of a model, and paired differences from the authors' map, or else the first.

    Raises RunError if no model has two maps on one dataset, or variants were swept by different protocols.
    """
    variants_of, remarks = group_variants(materials, _without_map)
    compared = _Compared(materials, remarks)
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
