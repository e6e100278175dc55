"""Models beside a reader on the same pairs: what they lack of the reader's Dice (docs/subgroups.md §6.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from .....metrics_gpu.statistics.measured_numbers import Measured, disagreements
from .....metrics_gpu.statistics.multiple_tests import corrected
from ....results.comparing.cell_variants import Variant, Variants
from ....results.comparing.difference import Difference, subtract
from ..columns import measured
from ..material import Material
from ..study_cell import StudyCell
from ..variants import beside

AGAINST: Final = {"dice_fixed": "dice_fixed", "dice_cross_fitted": "dice_fixed", "pointing": "pointing"}
"""Number of a model -> that of a reader, whose mask is the same at every threshold."""


def is_reader(cell: StudyCell) -> bool:
    """Whether a cell is what a reader marked."""
    return bool(cell.rows.entry.get("boxes", {}).get("reader"))


def ceiling_rows(material: Material, reader: StudyCell) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each model of the reader's dataset, measure and finding, and the mean over findings; and sentences: on
    models without a pair in common, and where intervals and tests disagree.

    Baselines are no models. Raises RunError for cells of several protocols.
    """
    differences: list[tuple[Variants, Difference]] = []
    remarks = []
    for cell in material.paired:
        if cell.dataset != reader.dataset or cell.weights == "baseline" or is_reader(cell):
            continue
        both = [Variant(each.model, each.rows, each.pairs) for each in (reader, cell)]
        group = beside(cell.model, cell.title, both, material)
        if isinstance(group, str):
            remarks.append(group)
        else:
            differences += [(group, item) for item in _differences(group, material.sampling.level)]
    items = [item for _, item in differences]
    items = corrected(items, [(item.field, not item.name) for item in items])
    remarks += [f"{reader.title}: {line}" for line in disagreements([item for item in items if not item.name])]
    groups = [group for group, _ in differences]
    return [_row(reader, group, item, material) for group, item in zip(groups, items, strict=True)], remarks


def _differences(group: Variants, level: float) -> Iterator[Difference]:
    one, other = group.by_class()
    for name in ("", *one.names):
        for field, against in AGAINST.items():
            difference = subtract(other, one, field, name, level, against)
            if difference is not None:
                yield difference


def _row(reader: StudyCell, group: Variants, item: Difference, material: Material) -> dict[str, Any]:
    part = item.quotient(material.sampling.level)
    patients = {group.parts[0][0].patients[case] for case in _cases(group, item.name)}
    return {
        "dataset": group.title,
        "reader": reader.model,
        "model": group.key,
        "finding": item.name or "mean",
        "measure": item.field,
        "n": item.n,
        "patients": len(patients),
        "value": item.minuend,
        "reader_value": item.reference,
        **measured("difference", item),
        **item.test,
        **measured("share", Measured(*part) if part else Measured()),
    }


def _cases(group: Variants, name: str) -> Sequence[int]:
    """The cases of the shared pairs, of one finding or all."""
    rows, pairs = group.parts[0]
    case_of = rows.case_of[pairs.image_of]
    if name:
        case_of = case_of[pairs.class_of == rows.findings.index(name)]
    return [int(case) for case in case_of]
