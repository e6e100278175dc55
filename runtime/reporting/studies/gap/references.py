"""Findings against chance, against baselines that see no image, and against a reader, on the same pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .....metrics_gpu.statistics.measured_numbers import Measured
from .....metrics_gpu.statistics.multiple_tests import corrected
from ....results.comparing.cell_variants import Variant
from ....results.comparing.difference import Difference, subtract
from ..columns import measured
from ..material import Material
from ..readers.ceiling import is_reader
from ..study_cell import StudyCell
from ..variants import beside
from .finding_points import NO_SKILL, FindingPoint, with_holm

CHANCE = "chance"


def is_reference(cell: StudyCell) -> bool:
    """Whether findings of models are compared with this cell: a reader, or a baseline other than all-ones, whose
    pointing is chance itself."""
    return is_reader(cell) or (cell.weights == "baseline" and cell.model != "baseline:ones")


def reference_rows(material: Material, points: Sequence[FindingPoint]) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each finding and what it is compared with, and sentences on cells without a pair in common.

    AUC is compared with 0.5, pointing with chance and with each reference of the dataset. Each is a family over all
    findings, models and datasets.
    """
    rows = []
    for measure, items in (("auc", [p.over_auc for p in points]), ("pointing", [p.over_chance for p in points])):
        for point, item in zip(points, with_holm(items), strict=True):
            value, chance = (point.auc, NO_SKILL) if measure == "auc" else (point.pointing, point.chance)
            rows.append(_row(point, measure, CHANCE, (value.value, chance), item))
    compared: list[tuple[FindingPoint, str, Difference]] = []
    remarks: list[str] = []
    cells = {(point.cell.model, point.cell.dataset): point.cell for point in points}
    for cell in cells.values():
        for reference in material.paired:
            if reference.dataset == cell.dataset and is_reference(reference):
                found = _differences(cell, reference, material)
                if isinstance(found, str):
                    remarks.append(found)
                    continue
                of_class = {item.name: item for item in found}
                own = [point for point in points if point.cell is cell and point.name in of_class]
                compared += [(point, reference.model, of_class[point.name]) for point in own]
    differences = corrected([item for *_, item in compared], [name for _, name, _ in compared])
    for (point, name, _), difference in zip(compared, differences, strict=True):
        rows.append(_row(point, "pointing", name, (difference.minuend, difference.reference), difference))
    return rows, remarks


def _differences(cell: StudyCell, reference: StudyCell, material: Material) -> list[Difference] | str:
    both = [Variant(each.model, each.rows, each.pairs) for each in (reference, cell)]
    group = beside(cell.model, cell.title, both, material)
    if isinstance(group, str):
        return group
    first, second = group.by_class()
    found = (subtract(second, first, "pointing", name, material.sampling.level) for name in first.names)
    return [item for item in found if item is not None]


def _row(
    point: FindingPoint, measure: str, against: str, values: tuple[float | None, float], item: Measured
) -> dict[str, Any]:
    return {
        "model": point.cell.model,
        "dataset": point.cell.dataset,
        "class": point.name,
        "measure": measure,
        "against": against,
        "n": item.n or point.pointing.n,
        "value": values[0],
        "reference_value": values[1],
        **measured("difference", item),
        **item.test,
    }
