"""Does the wording change the numbers by more than 10 %? Changes of findings, their share, and the best and the worst
prompt set chosen on other patients (docs/metrics.md §8.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.grounding.best_thresholds import patient_folds
from .....metrics_gpu.statistics.class_means import class_means
from .....metrics_gpu.statistics.intervals import MANY_PATIENTS, mean_interval, percentile_interval, shares
from .....metrics_gpu.statistics.measured_numbers import Measured
from .....metrics_gpu.statistics.multiple_tests import holm
from .....metrics_gpu.statistics.variant_choice import (
    HALVES,
    above_bound,
    change_tests,
    chosen_elsewhere,
    residuals,
    taken,
)
from ....results.comparing.cell_variants import Variants
from ....results.numbers.cell_values import CellValues
from ....results.numbers.fields import FIELDS
from ..columns import measured
from ..variants import MEASURES
from ..writing import clean

Float = NDArray[np.float64]
KINDS: Final = ("relative", "absolute")
_ENDS: Final = ("", "_low", "_high")
_CHOSEN: Final = ("pointing", "dice_fixed", "dice_cross_fitted")
"""Measures of which each pair has a value that no threshold of the same pair decides: a set is chosen by them."""


@dataclass
class Wordings:
    """Rows of all groups: `changes` of each class, measure and set, `findings` of each class and measure, `choices` of
    each model, dataset and measure, and `shares` of each model and measure."""

    level: float
    changes: list[dict[str, Any]] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    choices: list[dict[str, Any]] = field(default_factory=list)
    shares: list[dict[str, Any]] = field(default_factory=list)
    _drawn: dict[tuple[str, str], list[NDArray[np.float64]]] = field(default_factory=dict)

    def add(self, group: Variants, cells: Sequence[CellValues]) -> None:
        """Adds a group: its variants, and their values by class."""
        for measure in MEASURES:
            pairs = _PairValues(group, cells, measure) if measure in _CHOSEN and cells[0].sample else None
            for name in cells[0].names:
                self._add_finding(group, cells, measure, name, pairs)
            if pairs is not None and len(pairs.values):
                self._add_choices(group, pairs, [cell.number(measure).value for cell in cells])

    def _add_finding(
        self, group: Variants, cells: Sequence[CellValues], measure: str, name: str, pairs: _PairValues | None
    ) -> None:
        values = [cell.number(measure, name).value for cell in cells]
        known = [value for value in values if value is not None]
        if len(known) < 2 or values[0] is None:
            return
        means = np.array([np.nan if value is None else value for value in values])
        key = {"model": group.key, "dataset": group.title, "class": name, "measure": measure}
        low, high = int(np.nanargmin(means)), int(np.nanargmax(means))
        row: dict[str, Any] = {
            **key,
            "n": cells[0].count(measure, name),
            "sets": len(known),
            "reference": values[0],
            "smallest": means[low],
            "smallest_in": group.labels[low],
            "largest": means[high],
            "largest_in": group.labels[high],
            "deviation": float(np.std(known, ddof=1)),
        }
        row |= {f"{part}_elsewhere{end}": None for part in ("spread", "change") for end in _ENDS}
        if pairs is not None:
            row |= self._elsewhere(pairs, name, (group.key, measure))
        tests = _tests(cells, measure, name, means, pairs)
        row["tested"] = tests is not None
        self.findings.append(row)
        for place, label in enumerate(group.labels[1:], 1):
            if values[place] is not None:
                change = float(means[place] - means[0])
                p = [np.nan, np.nan] if tests is None else tests[:, place - 1].tolist()
                relative = change / float(means[0]) if means[0] > 0 else None
                self.changes.append(
                    {
                        **key,
                        "n": row["n"],
                        "variant": label,
                        "reference": group.labels[0],
                        "reference_value": values[0],
                        "change": change,
                        "change_relative": relative,
                        **{f"p_{kind}": clean(own) for kind, own in zip(KINDS, p, strict=True)},
                    }
                )

    def _elsewhere(self, pairs: _PairValues, name: str, key: tuple[str, str]) -> dict[str, Any]:
        """What the farthest set, and the best minus the worst, give on patients who did not choose them."""
        one = pairs.of(name)
        gaps = one.values[:, 1:] - one.values[:, :1]
        signed = np.column_stack([gaps, -gaps])  # a change up or down, with the direction chosen too
        change = taken(signed, chosen_elsewhere(signed, one.class_of, one.folds, lambda mean: mean))
        best, worst = (taken(one.values, one.chosen(sign)) for sign in (1, -1))
        spread = one.number(best - worst, self.level)
        moved = one.number(change, self.level)
        reference = one.number(one.values[:, 0], self.level)
        if moved.value is not None and reference.value is not None:
            both = ((item.value or 0.0, () if item.drawn is None else item.drawn) for item in (moved, reference))
            self._drawn.setdefault(key, []).append(np.stack([np.append([value], drawn) for value, drawn in both]))
        return {**measured("spread_elsewhere", spread), **measured("change_elsewhere", moved)}

    def _add_choices(self, group: Variants, pairs: _PairValues, means: Sequence[float | None]) -> None:
        if any(mean is None for mean in means):
            return
        found = np.array(means, np.float64)
        for end, sign in (("best", 1), ("worst", -1)):
            variant, chosen = int(np.argmax(sign * found)), pairs.chosen(sign)
            if (chosen < 0).all():
                continue
            values = taken(pairs.values, chosen)
            self.choices.append(
                {
                    "model": group.key,
                    "dataset": group.title,
                    "measure": pairs.measure,
                    "end": end,
                    "variant": group.labels[variant],
                    "value": float(found[variant]),
                    "often": float((chosen == variant).mean()),
                    **measured("elsewhere", pairs.number(values, self.level, (0.0, 1.0))),
                    **measured("gain", pairs.number(values - pairs.values[:, 0], self.level)),
                }
            )

    def finish(self) -> None:
        """Corrects the tests of each model and measure for all its findings and sets, and adds `shares`."""
        members: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.changes:
            members.setdefault((row["model"], row["measure"]), []).append(row)
        for (model, measure), rows in members.items():
            for kind in KINDS:
                for row, p in zip(rows, holm([row[f"p_{kind}"] for row in rows]), strict=True):
                    row[f"p_{kind}_holm"] = p
            counts: dict[str, dict[tuple[str, str], int]] = {kind: {} for kind in KINDS}
            seen: dict[str, set[tuple[str, str]]] = {kind: set() for kind in KINDS}
            for row in rows:
                place = row["dataset"], row["class"]
                far = above_bound(np.abs(np.array(row["change"])), np.array(row["reference_value"]))
                for kind, is_far in zip(KINDS, far.tolist(), strict=True):
                    p = row[f"p_{kind}_holm"]
                    counts[kind][place] = counts[kind].get(place, 0) + (p is not None and p <= 1 - self.level)
                    seen[kind] |= {place} if is_far else set()
            findings = [r for r in self.findings if (r["model"], r["measure"]) == (model, measure)]
            share: dict[str, Any] = {"model": model, "measure": measure, "findings": len(findings)}
            share["tested"] = tested = sum(row["tested"] for row in findings)
            share["family"] = sum(row["p_absolute"] is not None for row in rows)
            for kind in KINDS:
                for row in findings:
                    of_row = counts[kind].get((row["dataset"], row["class"]))
                    row[f"confirmed_{kind}"] = of_row if row["tested"] else None
                share[f"seen_{kind}"] = len(seen[kind]) / len(findings)
                found = sum(map(bool, counts[kind].values()))
                share[f"confirmed_{kind}"] = found / tested if tested else None
            self.shares.append(share | self._shares_elsewhere((model, measure)))
        for row in self.findings:
            for kind in KINDS:
                row.setdefault(f"confirmed_{kind}", None)

    def _shares_elsewhere(self, key: tuple[str, str]) -> dict[str, Any]:
        rows = self._drawn.get(key, [])
        if not rows:
            return {f"elsewhere_{kind}{end}": None for kind in KINDS for end in _ENDS}
        changes, reference = (np.stack([row[side] for row in rows]) for side in (0, 1))
        undefined = np.isnan(changes)
        far = np.where(undefined, np.nan, above_bound(changes, reference))
        result: dict[str, Any] = {}
        for kind, own in zip(KINDS, far, strict=True):
            share = np.where(undefined.all(axis=0), np.nan, np.nansum(own, axis=0) / np.maximum((~undefined).sum(0), 1))
            result |= measured(
                f"elsewhere_{kind}", Measured(float(share[0]), percentile_interval(share[1:], self.level))
            )
        return result


def _tests(
    cells: Sequence[CellValues], measure: str, name: str, means: Float, pairs: _PairValues | None
) -> Float | None:
    """`change_tests` of a class; None of too few patients, or of a measure without a test."""
    if np.isnan(means).any() or (pairs is None and measure != "auc"):
        return None
    if pairs is not None:
        one = pairs.of(name)
        parts, ranked = residuals(one.values, one.patient_of), False
        patients = len(parts)
    else:
        of_cells = [cell.auc_parts(name) for cell in cells]
        known = [part for part in of_cells if part is not None]
        if len(known) < len(cells):
            return None
        parts, ranked = np.column_stack(known), True
        patients = int((parts != 0).any(axis=1).sum())
    return None if patients < MANY_PATIENTS else change_tests(means, parts, patients, ranked=ranked)


class _PairValues:
    """One measure of each pair under each set: values float64 [P, K], without the classes that have no value."""

    def __init__(self, group: Variants, cells: Sequence[CellValues], measure: str) -> None:
        source, key = FIELDS[measure]
        sample = cells[0].sample
        assert sample is not None
        values = np.column_stack([getattr(cell, source).each[key] for cell in cells])
        kept = np.flatnonzero(~np.isnan(values).any(axis=1))
        self.group, self.measure, self.names = group, measure, sample.findings
        self.values, self.class_of, self.patient_of = values[kept], sample.class_of[kept], sample.pair_patient[kept]
        has = np.zeros((len(sample.names), len(self.names)), np.bool_)
        has[sample.pair_patient, sample.class_of] = True
        self.folds = patient_folds(has, halves=HALVES)[:, self.patient_of]

    def of(self, name: str) -> _PairValues:
        """The pairs of one class."""
        one, kept = object.__new__(_PairValues), np.flatnonzero(self.class_of == self.names.index(name))
        one.group, one.measure, one.names = self.group, self.measure, self.names
        one.values, one.class_of, one.patient_of = self.values[kept], self.class_of[kept], self.patient_of[kept]
        one.folds = self.folds[:, kept]
        return one

    def chosen(self, sign: int) -> NDArray[np.intp]:
        """The best (1) or worst (-1) set of each pair on other patients."""
        return chosen_elsewhere(self.values, self.class_of, self.folds, lambda mean: sign * mean)

    def number(self, values: Float, level: float, bounds: tuple[float, float] | None = None) -> Measured:
        """The mean over classes of values [P], with its interval."""
        patients, kept = self.group.patients, np.flatnonzero(~np.isnan(values))
        parts = shares(values[kept], self.class_of[kept], self.patient_of[kept], len(patients.number))
        if parts is None or not len(kept):
            return Measured()
        value = float(np.sum(parts.of_patients))
        if patients.draws is None:
            return Measured(value)
        classes = np.unique(self.class_of[kept], return_inverse=True)[1]
        drawn = class_means(
            values[kept, None], classes, int(classes.max()) + 1, patients.draws, self.patient_of[kept]
        ).macro[1:, 0]
        return Measured(value, mean_interval(drawn, parts, level, bounds), drawn=drawn)
