"""Verdicts of trust tests: the statistic against a loop and tests/golden/shared/trust, and every word at its edges."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.intervals import Interval
from xbench_fast.metrics_gpu.statistics.measured_numbers import Parts
from xbench_fast.metrics_gpu.trust.verdicts import (
    MARGINS,
    WORDS,
    Criterion,
    Judged,
    PairGroups,
    effects_of,
    verdicts,
    worst_of,
)

ABOVE = Criterion(0.01)


def groups(class_of: list[int], patient_of: list[int], patients: int, replicates: int = 300) -> PairGroups:
    names = tuple(f"one/p{index}" for index in range(patients))
    return PairGroups(np.array(class_of), np.array(patient_of), names, draw_patients(patients, replicates, 1))


def one(values: np.ndarray, own: PairGroups, **told: Any) -> list[Judged]:
    flags = told.pop("degenerate", np.zeros(len(values), bool))
    (found,) = effects_of(values[:, None], own, [told.pop("left_out", {})], flags[:, None])
    return found


def test_the_statistic_is_the_mean_over_classes_and_the_sum_over_patients() -> None:
    rng = np.random.default_rng(0)
    own = groups(rng.integers(0, 3, 60).tolist(), rng.integers(0, 20, 60).tolist(), 22)
    values = rng.normal(size=(60, 2))
    values[5, 1] = np.nan
    told = [{}, {"no other patient": 1}]
    found = effects_of(values, own, told, rng.random((60, 2)) < 0.1)
    for k, effects in enumerate(found):
        counted = [i for i in range(60) if k == 0 or i != 5]
        means = [np.mean([values[i, k] for i in counted if own.class_of[i] == c]) for c in range(3)]
        macro, *classes = effects
        assert macro.value == pytest.approx(np.mean(means))
        assert [each.value for each in classes] == pytest.approx(means)
        assert macro.n == len(counted) and macro.left_out == told[k] and not classes[0].left_out
        assert macro.patients == len({int(own.patient_of[i]) for i in counted})
        for effect in effects:
            assert effect.parts is not None and effect.parts.added.sum() == pytest.approx(effect.value)
        for patient in range(22):
            added = sum(values[i, k] / 3 / sum(own.class_of[j] == own.class_of[i] for j in counted)
                        for i in counted if own.patient_of[i] == patient)  # fmt: skip
            assert macro.parts.added[patient] == pytest.approx(added)
        replicates = []
        for weights in own.draws.counts.astype(float):
            each = [np.average(v, weights=w) for c in range(3)
                    if (w := np.array([weights[own.patient_of[i]] for i in counted if own.class_of[i] == c])).sum()
                    and len(v := [values[i, k] for i in counted if own.class_of[i] == c])]  # fmt: skip
            replicates.append(np.mean(each))
        assert macro.interval is not None
        assert (macro.interval.low, macro.interval.high) == pytest.approx(np.percentile(replicates, [2.5, 97.5]))


def test_reference_values_of_the_differences(reference_files: Path) -> None:
    """The macro differences and p of 54 real pairs; their p are of 20,000 draws, or of all patterns."""
    told = json.loads((reference_files / "trust/priors.json").read_text())
    pairs = told["pairs"]
    classes, patients = (list(dict.fromkeys(pair[key] for pair in pairs)) for key in ("finding", "patient"))
    own = groups([classes.index(p["finding"]) for p in pairs], [patients.index(p["patient"]) for p in pairs],
                 len(patients), 10)  # fmt: skip
    for name, wanted in told["macro"].items():
        baseline, measure = name.removeprefix("own minus ").split(": ")
        scores = [[each[measure] for each in _scores(pair[baseline], baseline)] for pair in pairs]
        values = np.array([pair["own"][measure] - np.mean(each) if each else np.nan
                           for pair, each in zip(pairs, scores, strict=True)])  # fmt: skip
        macro, *_ = one(values, own)
        (found,) = verdicts([macro], [None])
        assert macro.value == pytest.approx(wanted["macro_difference"], abs=1e-9), name
        assert (macro.n, macro.patients) == (wanted["pairs"], wanted["patients"])
        assert found.p == pytest.approx(wanted["signflip_p_two_sided_20000"], abs=3e-3)
        assert np.sqrt((macro.parts.added**2).sum()) == pytest.approx(wanted["exact_sd_of_null"], abs=1e-9)
        if macro.patients <= 15:
            signs = np.array(list(product((1, -1), repeat=int((macro.parts.added != 0).sum()))))
            sums = np.abs(signs @ macro.parts.added[macro.parts.added != 0])
            assert found.p == pytest.approx(np.mean(sums >= abs(macro.value) - 1e-12), abs=1e-9)


def _scores(found: Any, baseline: str) -> list[dict[str, float]]:
    if baseline == "other_finding":
        return list(found.values())
    return [found] if found else []


def effect(value: float | None, low: float, high: float, **other: Any) -> Judged:
    """50 patients with an equal part each, so that p is that of the fewest patterns."""
    interval = None if value is None else Interval(low, high, 0.95, "bootstrap")
    names, added = (
        other.pop("names", tuple(f"p{i}" for i in range(50))),
        other.pop("added", np.full(50, (value or 0) / 50)),
    )
    parts = None if value is None else Parts(names, added, 0)
    return Judged(**{"value": value, "interval": interval, "n": 60, "patients": 50, "parts": parts, **other})


def word(found: Judged, criterion: Criterion = ABOVE) -> str | None:
    return verdicts([found], [criterion])[0].word


@pytest.mark.parametrize(
    ("value", "low", "high", "wanted"),
    [
        (0.3, 0.2, 0.4, "pass"),
        (0.05, 0.0101, 0.09, "pass"),
        (0.05, 0.01, 0.09, "cannot tell"),  # not by more than the margin
        (0.005, 0.001, 0.01, "cannot tell"),  # what random weights can reach
        (-0.3, -0.4, -0.2, "fail"),
        (-0.01, -0.03, -0.001, "fail"),
        (-0.01, -0.03, 0.009, "fail"),
        (-0.01, -0.03, 0.01, "cannot tell"),
        (0.0, 0.0, 0.0, "fail"),  # a map that ignores its prompt
        (0.001, -0.03, 0.009, "cannot tell"),
    ],
)
def test_words(value: float, low: float, high: float, wanted: str) -> None:
    assert word(effect(value, low, high)) == wanted
    below = Criterion(0.01, "below")
    assert word(effect(-value, -high, -low), below) == wanted
    if 0.01 not in (low, high):  # there rounding decides
        moved = replace(effect(value, low + 2, high + 2), value=value + 2)
        assert word(moved, Criterion(0.01, bound=2)) == wanted


def test_a_pass_needs_the_test_too() -> None:
    """The interval alone is far above the margin; the parts are of both signs."""
    rng = np.random.default_rng(0)
    mixed = effect(0.3, 0.2, 0.4, added=np.concatenate([[0.3], rng.choice([-1.0, 1.0], 49)]))
    assert word(mixed) == "cannot tell"
    thirty = [effect(0.3, 0.2, 0.4, added=np.r_[np.full(8, 0.0375), np.zeros(42)])] * 7  # p = 2 / 2^8
    assert [found.word for found in verdicts(thirty[:6], [ABOVE] * 6)] == ["pass"] * 6
    assert [found.word for found in verdicts(thirty, [ABOVE] * 7)] == ["cannot tell"] * 7, "m = 7: p(Holm) = 0.055"
    (first, *_) = verdicts(thirty, [ABOVE] * 7)
    assert first.p == 2 / 2**8 and first.p_holm == pytest.approx(7 * 2 / 2**8) and first.family == 7


def test_few_patients_degenerate_maps_and_no_pairs() -> None:
    assert word(effect(0.3, 0.2, 0.4, patients=9)) == "cannot tell"
    assert word(effect(-0.3, -0.4, -0.2, patients=9)) == "cannot tell"
    assert word(effect(0.3, 0.2, 0.4, patients=10)) == "pass"
    assert word(effect(0.3, 0.2, 0.4, degenerate=3)) == "pass"  # 5 % of 60
    assert word(effect(0.3, 0.2, 0.4, degenerate=4)) == "void"
    nothing = effect(None, 0, 0, n=0, patients=0)
    found, other = verdicts([nothing, effect(0.3, 0.2, 0.4)], [ABOVE, None])
    assert found.text == "cannot tell (0 patients)" and found.p is None and found.p_holm is None
    assert other.family == 1 and other.word is None and other.text == ""
    assert verdicts([effect(0.3, 0.2, 0.4, patients=1)], [ABOVE])[0].text == "cannot tell (1 patient)"
    assert verdicts([effect(0.3, 0.2, 0.4, degenerate=4)], [ABOVE])[0].text == "void (4 of 60 maps are degenerate)"


def test_one_patient_and_no_pair_have_an_effect() -> None:
    own = groups([0, 0, 1], [3, 3, 3], 5)
    macro, *classes = one(np.array([0.1, 0.3, 0.4]), own, degenerate=np.array([True, False, True]))
    assert macro.value == pytest.approx(0.3) and macro.interval is None and macro.patients == 1
    assert [each.degenerate for each in (macro, *classes)] == [2, 1, 1]
    macro, *classes = one(np.full(3, np.nan), own, left_out={"no other finding": 3})
    assert macro.value is None and not classes and macro.left_out == {"no other finding": 3}
    with pytest.raises(ValueError, match="do not fit"):
        effects_of(np.zeros((3, 2)), own, [{}], np.zeros((3, 2), bool))


def test_a_large_family_draws_more_patterns() -> None:
    found = verdicts([effect(0.3, 0.2, 0.4)] * 200, [ABOVE] * 200)
    assert found[0].p == 1 / 40_000 and found[0].p_bound and found[0].p_holm == pytest.approx(0.005)


def test_effects_of_several_datasets_are_one_family() -> None:
    """The patients of each are drawn apart; the correction is over all."""
    other = effect(0.3, 0.2, 0.4, names=tuple(f"q{i}" for i in range(20)), added=np.full(20, 0.015))
    found = verdicts([effect(0.3, 0.2, 0.4), other], [ABOVE, ABOVE])
    assert [each.family for each in found] == [2, 2] and [each.word for each in found] == ["pass", "pass"]


def test_the_interval_and_the_test_may_disagree() -> None:
    (agrees,) = verdicts([effect(0.3, 0.2, 0.4)], [ABOVE])
    assert (
        not agrees.disagrees
        and replace(agrees, p=0.07).disagrees
        and replace(agrees, interval=Interval(-0.1, 0.4, 0.95, "t")).disagrees
    )
    assert not replace(agrees, interval=None).disagrees and not replace(agrees, p=None).disagrees


def test_the_worst_of_several_words() -> None:
    order = ("fail", "void", "cannot tell", "pass")
    assert sorted(WORDS) == sorted(order)
    for words in product(order, repeat=2):
        assert worst_of(words) == min(words, key=order.index)
    assert worst_of([]) == worst_of(["pass", None]) == "cannot tell"


def test_margins_stand_in_the_docs(root: Path) -> None:
    text = (root / "docs/trust.md").read_text()
    words = {"roc_auc": "ROC AUC"}
    for name, margin in MARGINS.items():
        assert f"| {words.get(name, name.replace('_', ' '))} | {margin:g} |" in text
    for name in WORDS:
        assert f"| `{name}` |" in text
    assert str(ABOVE) == "above 0 by more than 0.01" and isinstance(Judged.__doc__, str)
