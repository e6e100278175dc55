"""The errors of a cell in numbers: rows by kind, of all pairs, of each class and of each size, and examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.detection.boxes import Int
from .....metrics_gpu.detection.error_kinds import KINDS, Anatomy, Fixed, anatomy, fixed
from .....metrics_gpu.grounding.strata import strata_of
from .....metrics_gpu.statistics.intervals import MANY_PATIENTS, percentile_interval
from .....metrics_gpu.statistics.measured_numbers import Measured
from ..columns import measured
from ..study_cell import PIXELS
from .judged import JudgedAnswers

Float = NDArray[np.float64]

_KINDS, _FIXES = len(KINDS), len(KINDS) - 1  # hits are no errors
_COUNT, _PAIRS = slice(5, 5 + _KINDS), slice(5 + _KINDS, 5 + 2 * _KINDS)
_DICE, _BOXES, _TP = (slice(*(5 + 2 * _KINDS + place * _FIXES for place in (i, i + 1))) for i in range(3))


@dataclass(frozen=True, eq=False)
class Errors:
    """What was judged, the kind of each box, the pairs as they are, and with each kind but hits fixed."""

    item: JudgedAnswers
    found: Anatomy
    before: Fixed
    after: Sequence[Fixed]

    @property
    def counts(self) -> Int:
        """int64 [kinds, P]: boxes of each kind in each pair."""
        return self.found.counts(self.item.answers.truth)

    @property
    def columns(self) -> Float:
        """float64 [P, K]: 1, true boxes, Dice, boxes and tp; boxes of each kind and whether there is one; and, fixed,
        Dice, boxes and tp."""
        counts, now, truth = self.counts.T, self.before, self.item.answers.truth
        fixes = [getattr(each, name) for name in ("dice", "boxes", "tp") for each in self.after]
        first = [np.ones(len(truth)), truth.lengths, now.dice, now.boxes, now.tp]
        return np.column_stack([*first, counts, counts > 0, *fixes]).astype(np.float64)


def errors_of(item: JudgedAnswers) -> Errors:
    """The errors of one cell and cut."""
    kinds = anatomy(item.answers)
    after = [fixed(item.answers, kinds, kind) for kind in KINDS[1:]]
    return Errors(item, kinds, fixed(item.answers, kinds, None), after)


def error_rows(errors: Errors, level: float) -> Iterator[dict[str, Any]]:
    """A row for each kind: of all pairs, of each class and of each size."""
    item, cell, columns = errors.item, errors.item.cell, errors.columns
    patient_of = cell.patient_of[item.places]
    sizes, strata = strata_of(cell.counts.region[item.places], PIXELS)
    groups = [("all", "all", np.ones(len(item.places), np.bool_))]
    groups += [("class", name, item.answers.class_of == c) for c, name in enumerate(cell.classes)]
    groups += [("size", name, sizes == s) for s, name in enumerate(strata)]
    for group, name, own in groups:
        if own.any():
            sums = cell.draws.sums(patient_of[own], columns[own])
            enough = len(np.unique(patient_of[own])) >= MANY_PATIENTS
            key = {"model": cell.model, "dataset": cell.dataset, "cut": item.cut, "tau": item.tau}
            for row in _group_rows(sums, level if enough else None):
                yield {**key, "group": group, "name": name, "n": int(own.sum()), **row}


def _group_rows(sums: Float, level: float | None) -> Iterator[dict[str, Any]]:
    """A row for each kind. sums: float64 [1 + B, K] of `_columns`; level: of intervals, None for none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        n, true = sums[:, 0], sums[:, 1]
        dice, f1 = sums[:, 2] / n, 2 * sums[:, 4] / (sums[:, 3] + true)
        each = sums[:, _COUNT] / n[:, None]
        dice_gain = sums[:, _DICE] / n[:, None] - dice[:, None]
        f1_gain = 2 * sums[:, _TP] / (sums[:, _BOXES] + true[:, None]) - f1[:, None]
    for k, kind in enumerate(KINDS):
        boxes = int(sums[0, _COUNT][k])
        row: dict[str, Any] = {"kind": kind, "boxes": boxes, "pairs": int(sums[0, _PAIRS][k])}
        columns = {"boxes_per_pair": each[:, k]}
        if kind != "hit":
            columns |= {"dice_gain": dice_gain[:, k - 1], "f1_gain": f1_gain[:, k - 1]}
        for name in ("boxes_per_pair", "dice_gain", "f1_gain"):
            values = columns.get(name)
            interval = None if values is None or level is None or not boxes else percentile_interval(values[1:], level)
            row |= measured(name, Measured(None if values is None else float(values[0]), interval))
        yield {**row, "dice": float(dice[0]), "f1": float(f1[0])}


def examples(errors: Errors, cases: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Of each kind the pairs that gain most Dice if it is fixed; of equal ones those with more boxes of it, then by
    case. Each with its place among the pairs that were judged."""
    item, cell, counts = errors.item, errors.item.cell, errors.counts
    now = errors.before.dice
    for k, kind in enumerate(KINDS[1:], 1):
        then = errors.after[k - 1].dice
        ids = {pair: cell.case_ids[item.places[pair]] for pair in np.flatnonzero(counts[k]).tolist()}
        for pair in sorted(ids, key=lambda p: (now[p] - then[p], -counts[k, p], ids[p]))[:cases]:
            yield (
                pair,
                {
                    "model": cell.model,
                    "dataset": cell.dataset,
                    "cut": item.cut,
                    "tau": item.tau,
                    "kind": kind,
                    "case": ids[pair],
                    "class": cell.classes[item.answers.class_of[pair]],
                    "boxes": int(counts[k, pair]),
                    "dice": float(now[pair]),
                    "dice_if_fixed": float(then[pair]),
                    "overlay": None,
                },
            )


def cut_name(row: Mapping[str, Any]) -> str:
    """How the maps of a row were cut, as printed."""
    if row["tau"] is None:
        return str(row["cut"])
    return f"{row['tau']:.2f}{'*' if row['cut'].endswith('*') else ''}"
