"""Variants -> rows of a study: values with their spread, and differences from the first variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ...results.comparing.cell_variants import VariantDifference, Variants
from ...results.comparing.difference import corrected
from ...results.numbers.cell_values import CellValues
from .study_outcome import Rows
from .writing import limits

MEASURES: Final = ("pointing", "dice_fixed", "dice_best", "dice_cross_fitted", "auc")
"""The numbers that are compared, by their names in `tables.metrics`."""


def value_rows(group: Variants, values: Sequence[CellValues], kind: str) -> list[dict[str, Any]]:
    """A row for each class or stratum (`kind`) and the mean, and for each measure.

    It has the value and interval of every variant, and their spread: largest minus smallest, and standard deviation.
    """
    rows = []
    for name in (*values[0].names, ""):
        for measure in MEASURES:
            row: dict[str, Any] = {"model": group.key, "dataset": group.title, kind: name or "mean", "measure": measure}
            row |= {"pairs": values[0].count("pointing", name), "n": _n(group, values[0], measure, name)}
            known = []
            for label, cell in zip(group.labels, values, strict=True):
                value = cell.number(measure, name).value
                row[label] = value
                row |= limits(label, cell.interval(measure, name, group.resampling.level))
                known += [] if value is None else [value]
            if known:
                row["spread"] = max(known) - min(known) if len(known) > 1 else None
                row["deviation"] = float(np.std(known, ddof=1)) if len(known) > 1 else None
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


def difference_rows(groups: Sequence[tuple[Variants, Sequence[CellValues], str]]) -> list[dict[str, Any]]:
    """Rows of each variant minus the first, in every measure both have, with Holm's correction.

    groups: variants, their values, and the kind (class or stratum). A family is one measure, of the means over classes
    or strata, or (exploratory) of single ones.
    """
    found = [
        (group, values[0], item) for group, values, kind in groups for item in group.differences(values, MEASURES, kind)
    ]
    items = corrected([item for *_, item in found], lambda item: (item.kind, item.field, not item.name))
    return [_row(group, cell, item) for (group, cell, _), item in zip(found, items, strict=True)]


def _row(group: Variants, cell: CellValues, item: VariantDifference) -> dict[str, Any]:
    return {
        "model": item.key,
        "dataset": item.title,
        item.kind: item.name or "mean",
        "n": _n(group, cell, item.field, item.name),
        "measure": item.field,
        "variant": item.variant,
        "reference": item.first,
        "difference": item.difference,
        **limits("difference", item.interval),
        "p": item.p,
        "p_bound": item.p_bound,
        "p_holm": item.p_holm,
        "family": item.family,
    }


def long_rows(rows: Rows) -> list[dict[str, Any]]:
    """One row per variant, for a file whose columns do not depend on the variants' names."""
    fixed = ("model", "dataset", "class", "stratum", "measure", "n", "spread", "deviation")
    out = []
    for row in rows:
        labels = [name for name in row if f"{name}_low" in row and f"{name}_high" in row]
        for label in labels:
            out.append(
                {
                    **{name: row[name] for name in fixed if name in row},
                    "variant": label,
                    "value": row[label],
                    "value_low": row[f"{label}_low"],
                    "value_high": row[f"{label}_high"],
                }
            )
    return out
