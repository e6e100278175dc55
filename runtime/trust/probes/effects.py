"""Values of pairs -> effects: means over findings with intervals by patient (docs/trust.md §0.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....metrics_gpu.statistics.bootstrap import draw_patients, patient_index
from ....metrics_gpu.trust.verdicts import MOST_DEGENERATE, Judged, PairGroups, effects_of, verdicts

if TYPE_CHECKING:
    import pandas as pd

    from .probe import Question


def pair_groups(pairs: pd.DataFrame) -> PairGroups:
    """The finding and the patient of each pair, with the draws of the patients."""
    patients = pairs["patient_id"].tolist()
    class_of, _ = patient_index(pairs["finding"].tolist())
    patient_of, count = patient_index(patients)
    return PairGroups(class_of, patient_of, tuple(dict.fromkeys(patients)), draw_patients(count))


def effect_of(question: Question) -> Judged:
    """The effect of a question, in which pairs without a score count where so many maps are degenerate that the test is
    void. Raises ValueError for a question without a pair."""
    held = question.pairs
    if held.empty:
        raise ValueError(f"the question {question.key} has no pair")
    groups = pair_groups(held)
    flags = held["degenerate"].to_numpy(np.bool_)
    ((effect, *_),) = effects_of(question.values[:, None], groups, [question.left_out], flags[:, None])
    flagged, pairs = int(flags.sum()), len(flags)
    return replace(effect, n=pairs, degenerate=flagged) if flagged > MOST_DEGENERATE * pairs else effect


def number_beside(question: Question, *, tested: bool = True) -> tuple[dict[str, Any], str]:
    """A number that stands beside the verdicts and is not in their family: for trust.json, and in words.

    tested: whether it is asked if it is 0.
    """
    (verdict,) = verdicts([effect_of(question)], [None])
    names = ("value", "low", "high", *(("p", "p_bound") if tested else ()))
    fact = {name: getattr(verdict, name) for name in names}
    fact |= {"pairs": verdict.n, "patients": verdict.patients, "left_out": dict(question.left_out)}
    if verdict.value is None:
        return fact, "no pair can be compared"
    around = "" if verdict.low is None else f" [{verdict.low:+.3f}, {verdict.high:+.3f}]"
    test = "" if verdict.p is None or not tested else f", uncorrected p {'<' if verdict.p_bound else ''}{verdict.p:.3g}"
    return fact, f"{verdict.value:+.3f}{around}{test} ({verdict.n} pairs)"


def mean_of(values: Any) -> float | None:
    """The mean of the finite values of an array or column; None without one."""
    values = np.asarray(values, np.float64)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def macro_of(pairs: pd.DataFrame, column: str) -> float | None:
    """The mean over findings of the means of their pairs; None without a value."""
    return mean_of([mean_of(of_finding[column]) for _, of_finding in pairs.groupby("finding", sort=False)])
