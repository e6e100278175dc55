"""Cells of the same images and classes side by side: groups of variants, their values and differences, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ....metrics_gpu.statistics.multiple_tests import corrected
from ...results.comparability import check_protocols
from ...results.comparing.cell_variants import Variant, VariantDifference, Variants, side_by_side
from ...results.comparing.difference import TESTS
from ...results.numbers.cell_values import CellValues
from ..tables.metric_names import NONE, heading
from ..tables.table import Column, Item, Table
from .columns import TESTED, Shown, StudyTable, measured, of_measure, text, texts
from .material import Material
from .study_cell import StudyCell
from .study_outcome import Rows
from .writing import CROSS_FITTED, IN_SAMPLE, between, metric_cell

MEASURES: Final = ("pointing", "dice_fixed", "dice_best", "dice_cross_fitted", "auc")
"""The numbers that are compared, by their names in `METRICS`, before those of the user's metrics."""

MEASURE: Final = Shown("measure", lambda row: heading(row["measure"], True))

_PLURAL: Final = {"class": "classes", "stratum": "strata"}

Group = tuple[Variants, Sequence[CellValues], str]
"""Variants, their values, and what the values are divided into: "class" or "stratum"."""


def group_variants(
    materials: Sequence[Material], key: Callable[[StudyCell], str]
) -> tuple[list[tuple[str, str, tuple[Variant, ...]]], list[str]]:
    """Groups (key, dataset title, variants) of at least two cells, and a sentence for every cell without a second one.

    Baselines, which have neither prompts nor a resolution, belong to no group. Raises RunError for cells of several
    protocols, whose numbers cannot be subtracted.
    """
    models = [(material, cell) for material in materials for cell in material.cells if cell.weights != "baseline"]
    check_protocols(
        ", ".join(str(material.path) for material in materials),
        [
            (f"{cell.model} on {cell.dataset}" + (f" in {material.path}" if len(materials) > 1 else ""), cell.rows)
            for material, cell in models
        ],
        "evaluate both with the same --protocol, or choose cells of one protocol with --model and --dataset",
    )
    members_of: dict[tuple[str, str], list[tuple[Material, StudyCell]]] = {}
    names: dict[str, str] = {}
    contents: dict[str, str] = {}
    for material, cell in models:
        # The same dataset: one name in several runs, or equal contents under several names.
        same = names.get(cell.dataset) or contents.get(cell.digest or "") or cell.dataset
        names[cell.dataset] = same
        if cell.digest:
            contents.setdefault(cell.digest, same)
        # Variants are compared on the same pixels.
        name = f"{key(cell)}, {cell.rows.view}" if cell.rows.view else key(cell)
        members_of.setdefault((name, same), []).append((material, cell))
    groups, alone = [], []
    for (name, _), members in members_of.items():
        title = members[0][1].plain_title
        if any(cell.ambiguous for _, cell in members):
            title += f" ({', '.join(dict.fromkeys(cell.dataset for _, cell in members))})"
        if len(members) < 2:
            alone.append(f"{members[0][1].model} on {title} has no second variant to compare with.")
            continue
        labelled = zip(_labels(members), members, strict=True)
        groups.append((name, title, tuple(Variant(label, cell.rows, cell.pairs) for label, (_, cell) in labelled)))
    return groups, alone


def _labels(members: Sequence[tuple[Material, StudyCell]]) -> list[str]:
    """The shortest names that distinguish the cells: model, dataset's configured name, run directory, in that order."""
    parts = [
        [cell.model for _, cell in members],
        [cell.dataset for _, cell in members],
        [material.path.resolve().name for material, _ in members],
        [str(material.path) for material, _ in members],
    ]
    used = [part for part in parts[:3] if len(set(part)) > 1]
    labels = [" / ".join(words) for words in zip(*used, strict=True)] if used else parts[3]
    if len(set(labels)) < len(labels):
        labels = [" / ".join(words) for words in zip(parts[0], parts[1], parts[3], strict=True)]
    return [
        f"{label} ({labels[:i].count(label) + 1})" if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]


def beside(key: str, title: str, variants: Sequence[Variant], material: Material) -> Variants | str:
    """The variants on the rows that all of them have, or a sentence why there are none. Raises RunError as
    `side_by_side`."""
    group = side_by_side(key, title, variants, material.sampling, material.metrics)
    if group is None:
        return f"{key} on {title}: {', '.join(v.label for v in variants)} share no image and class with one region."
    return group


def value_rows(group: Variants, values: Sequence[CellValues], division: str) -> list[dict[str, Any]]:
    """A row for each class or stratum (`division`) and the mean, and for each measure.

    It has the value and interval of every variant, and their spread: largest minus smallest, and standard deviation.
    """
    rows = []
    for name in (*values[0].names, ""):
        for measure in (*MEASURES, *values[0].choices.own):
            row: dict[str, Any] = {
                "model": group.key,
                "dataset": group.title,
                division: name or "mean",
                "measure": measure,
                "pairs": values[0].count("pointing", name),
                "n": _n(group, values[0], measure, name),
            }
            defined = []
            for label, cell in zip(group.labels, values, strict=True):
                number = cell.number(measure, name, group.resampling.level)
                row |= measured(label, number)
                defined += [] if number.value is None else [number.value]
            if defined:
                row["spread"] = max(defined) - min(defined) if len(defined) > 1 else None
                row["deviation"] = float(np.std(defined, ddof=1)) if len(defined) > 1 else None
                rows.append(row)
    return rows


def _n(group: Variants, cell: CellValues, measure: str, name: str) -> int:
    """The number of items of a value: images with a known label for AUC, else pairs."""
    if measure != "auc":
        return cell.count(measure, name)
    shared = group.shared
    if not name:
        return len(shared.cases)
    return int((shared.labels[:, shared.findings.index(name)] >= 0).sum()) if name in shared.findings else 0


def difference_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Rows of each variant minus the first, in every measure both have, with Holm's correction.

    A family is one measure, of the means over classes or strata, or (exploratory) of single ones.
    """
    differences = [
        (group, values[0], item)
        for group, values, division in groups
        for item in group.differences(values, (*MEASURES, *values[0].choices.own), division)
    ]
    items = [item for *_, item in differences]
    items = corrected(items, [(item.kind, item.field, not item.name) for item in items])
    return [_row(group, cell, item) for (group, cell, _), item in zip(differences, items, strict=True)]


def _row(group: Variants, cell: CellValues, item: VariantDifference) -> dict[str, Any]:
    return {
        "model": item.key,
        "dataset": item.title,
        item.kind: item.name or "mean",
        "n": _n(group, cell, item.field, item.name),
        "measure": item.field,
        "variant": item.variant,
        "reference": item.first,
        **measured("difference", item),
        **item.test,
    }


def long_rows(rows: Rows) -> list[dict[str, Any]]:
    """One row per variant, for a file whose columns do not depend on the variants' names."""
    fixed = ("model", "dataset", "class", "stratum", "measure", "n", "spread", "deviation")
    return [
        {
            **{name: row[name] for name in fixed if name in row},
            "variant": label,
            "value": row[label],
            "value_low": row[f"{label}_low"],
            "value_high": row[f"{label}_high"],
        }
        for row in rows
        for label in row
        if f"{label}_low" in row and f"{label}_high" in row
    ]


def value_table(group: Variants, rows: Rows, division: str, title: str, stamps: tuple[str, ...]) -> Table:
    """One group: classes or strata down, measures and their variants across."""
    labels = group.labels
    own = [name for metric in group.metrics for name in metric.numbers]
    measures = [name for name in (*MEASURES, *own) if any(row["measure"] == name for row in rows)]
    columns = [Column(division), Column("n")]
    for measure in measures:
        columns += [Column(label, heading(measure, True)) for label in (*labels, "spread")]
    row_of: Mapping[tuple[str, str], Mapping[str, Any]] = {(row[division], row["measure"]): row for row in rows}
    body: list[tuple[Item, ...]] = []
    for name in dict.fromkeys(row[division] for row in rows):
        line: list[Item] = [str(name), str(next(row["pairs"] for row in rows if row[division] == name))]
        for measure in measures:
            row = row_of.get((name, measure))
            line += [
                metric_cell(measure, row[label], between(row, label)) if row else NONE for label in (*labels, "spread")
            ]
        body.append(tuple(line))
    conflicts = group.shared.conflicts
    lost = [f"{label}: {count}" for label, count in zip(labels, group.left_out, strict=True) if count]
    notes = (
        IN_SAMPLE,
        CROSS_FITTED,
        f"percent; n: pairs with a region that all variants share (images for AUC: {len(group.shared.cases)}); "
        "spread: largest minus smallest",
        *((f"pairs that not all variants have, left out: {', '.join(lost)}",) if lost else ()),
        *(
            f"other {what}: {len(images)} of {conflicts.images} images, left out, as they are not the same for all "
            "variants"
            for what, images in (("image files", conflicts.files), ("patients", conflicts.patients))
            if images
        ),
    )
    return Table(title, tuple(columns), tuple(body), stamps, notes)


def difference_table(rows: Rows, division: str, title: str, stamps: tuple[str, ...]) -> Table:
    """Paired differences, with the size of the family that each p is corrected for."""
    columns = (
        *texts("model", "dataset", division),
        MEASURE,
        text("variant"),
        text("reference", "minus"),
        text("n"),
        of_measure("difference", "difference"),
        *TESTED,
    )
    notes = (
        "percentage points on the same pairs; intervals: bootstrap over patients, of AUC DeLong's by patient",
        *TESTS,
        f"a family is one measure over all means, or over all rows of single {_PLURAL[division]} (exploratory)",
        IN_SAMPLE,
        CROSS_FITTED,
    )
    return StudyTable(title, "differences", columns, notes, lead=6).table(rows, stamps)
