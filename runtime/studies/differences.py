"""What differs between variants on the pairs they share: values, spread, and paired differences from the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.grounding.pairs import Pairs
from ...metrics_gpu.grounding.scores import grounding
from ...metrics_gpu.recognition.scores import recognition
from ...metrics_gpu.statistics.bootstrap import Replicates
from ...metrics_gpu.statistics.paired import holm, paired_difference
from .material import PIXELS
from .outcome import Rows
from .variants import Aligned
from .writing import limits

__all__ = ["MEASURES", "adjust", "long_rows", "value_rows"]

MEASURES: Final[Mapping[str, str]] = {
    "pointing": "Point",
    "dice_fixed": "Dice at 0.5",
    "dice_best": "Dice*",
    "dice_cross_fitted": "Dice+",
    "auc": "AUC",
}
"""Measures by column, as printed."""


@dataclass(frozen=True, eq=False)
class _Measured:
    """One measure of one variant: its value and replicates by class (or stratum) and for `mean`."""

    values: Mapping[str, float | None]
    drawn: Replicates | None

    def sample(self, field: str, name: str) -> NDArray[np.float64] | None:
        if self.drawn is None or self.values.get(name) is None:
            return None
        return self.drawn.of(field, "macro" if name == "mean" else name)


class _Group:
    """All measures of all variants, divided by class or by stratum."""

    def __init__(self, group: Aligned, names: Sequence[str], index: NDArray[np.intp], *, with_auc: bool) -> None:
        self.group = group
        self.names = tuple(names)
        self.pairs = {name: int((index == place).sum()) for place, name in enumerate(names)}
        self.pairs["mean"] = len(index)
        self.images = {"mean": len(group.labels)}
        if with_auc:
            self.images |= {name: int((column >= 0).sum()) for name, column in zip(names, group.labels.T, strict=True)}
        self._found = [self._measure(place, index, with_auc) for place in range(len(group.variants))]

    def n(self, name: str, measure: str) -> int:
        """What a value rests on: images with a known label for AUC, else pairs."""
        return self.images.get(name, 0) if measure == "auc" else self.pairs[name]

    def of(self, variant: int, measure: str) -> tuple[str, _Measured] | None:
        """The field of the replicates and the measure, None where the variant does not have it."""
        found = self._found[variant].get(measure)
        return None if found is None else (_FIELDS[measure], found)

    def _measure(self, place: int, index: NDArray[np.intp], with_auc: bool) -> dict[str, _Measured]:
        group = self.group
        cell = group.variants[place].cell
        pairs = Pairs(
            group.counts[place],
            index,
            self.names,
            half_of=group.half_of,
            hits=group.hits[place],
            pixels=PIXELS,
            draws=group.draws,
            patient_of=group.patient_of,
        )
        found: dict[str, _Measured] = {}
        for unit, columns in (
            ("per_class", ("pointing", "dice_fixed", "dice_best")),
            ("cross_fit", ("dice_cross_fitted",)),
        ):
            options = replace(cell.options(), unit=unit)  # type: ignore[arg-type]
            scores = grounding(pairs, options)
            for column in columns:
                field = _FIELDS[column]
                values = {item.name: getattr(item, field) for item in scores.classes}
                found[column] = _Measured({**values, "mean": getattr(scores.macro, field)}, scores.drawn)
        logits = group.logits[place]
        if with_auc and logits is not None and len(logits):
            recognised = recognition(logits, group.labels, self.names, group.draws, group.image_patients)
            values = {item.name: item.auc for item in recognised.classes}
            found["auc"] = _Measured({**values, "mean": recognised.auc}, recognised.drawn)
        return found


_FIELDS: Final = {
    "pointing": "pointing",
    "dice_fixed": "dice_fixed",
    "dice_best": "dice_best",
    "dice_cross_fitted": "dice_best",
    "auc": "auc",
}


def value_rows(
    group: Aligned, names: Sequence[str], index: NDArray[np.intp], level: float, *, kind: str, with_auc: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of values and rows of paired differences.

    names, index: how pairs are divided, by class or stratum; `kind`: what the column is called. A value row has a
    measure's value and interval for every variant, and their spread: largest minus smallest, and standard deviation. A
    difference row is a variant minus the first one, on the same pairs and draws of patients.
    """
    measured = _Group(group, names, index, with_auc=with_auc)
    values: list[dict[str, Any]] = []
    for name in (*names, "mean"):
        for measure in MEASURES:
            row: dict[str, Any] = {"model": group.key, "dataset": group.title, kind: name, "measure": measure}
            row |= {"pairs": measured.pairs[name], "n": measured.n(name, measure)}
            known = []
            for place, variant in enumerate(group.variants):
                found = measured.of(place, measure)
                value = None if found is None else found[1].values.get(name)
                row[variant.label] = value
                interval = None
                if found is not None and value is not None and found[1].drawn is not None:
                    interval = found[1].drawn.interval(found[0], "macro" if name == "mean" else name, level)
                row |= limits(variant.label, interval)
                known += [] if value is None else [value]
            if known:
                row["spread"] = max(known) - min(known) if len(known) > 1 else None
                row["deviation"] = float(np.std(known, ddof=1)) if len(known) > 1 else None
                values.append(row)
    return values, _difference_rows(measured, kind, level)


def _difference_rows(measured: _Group, kind: str, level: float) -> list[dict[str, Any]]:
    """Each variant minus the first, in every measure both have."""
    group = measured.group
    rows = []
    for name in (*measured.names, "mean"):
        for measure in MEASURES:
            reference = measured.of(0, measure)
            for place, variant in enumerate(group.variants[1:], 1):
                other = measured.of(place, measure)
                if reference is None or other is None:
                    continue
                a, b = other[1].values.get(name), reference[1].values.get(name)
                drawn_a, drawn_b = other[1].sample(other[0], name), reference[1].sample(reference[0], name)
                if a is None or b is None or drawn_a is None or drawn_b is None:
                    continue
                found = paired_difference(a, b, drawn_a, drawn_b, level)
                rows.append(
                    {
                        "model": group.key,
                        "dataset": group.title,
                        kind: name,
                        "n": measured.n(name, measure),
                        "measure": measure,
                        "variant": variant.label,
                        "reference": group.variants[0].label,
                        "difference": found.difference,
                        **limits("difference", found.interval),
                        "p": found.p,
                    }
                )
    return rows


def adjust(rows: Sequence[dict[str, Any]]) -> None:
    """Adds `p_holm`, corrected for all `rows` together."""
    for row, value in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = value


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
