"""Sign flips by patient, shares and intervals of few patients: by enumeration, SciPy and tests/golden/shared/trust."""

from __future__ import annotations

import json
import math
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact_units import in_units
from scipy import stats
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.intervals import (
    effective_number,
    mean_interval,
    meaningful,
    pointing_interval,
    shares,
    wilson_interval,
)
from xbench_fast.metrics_gpu.statistics.sign_flips import draws_for, sign_flip_tests, sign_patterns


@pytest.fixture(scope="module")
def told(reference_files: Path) -> dict[str, Any]:
    return dict(json.loads((reference_files / "trust/statistics.json").read_text()))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"one/p{index}" for index in range(count))


def enumerated(added: np.ndarray) -> float:
    """By itertools, one pattern at a time."""
    found = abs(added.sum())
    signs = list(product((1, -1), repeat=len(added)))
    return sum(abs(float(np.dot(sign, added))) >= found - 1e-12 for sign in signs) / len(signs)


def test_few_patients_are_tested_by_all_patterns(told: dict[str, Any]) -> None:
    values = np.array(told["sign_flip_exact"]["differences"])
    scipy_p = stats.permutation_test((values,), lambda x, axis: x.mean(axis=axis), permutation_type="samples",
                                     n_resamples=np.inf, vectorized=True).pvalue  # fmt: skip
    (found,) = sign_flip_tests(values[:, None] / 11, names(11))
    assert found.p == pytest.approx(told["sign_flip_exact"]["p_by_enumeration"], abs=1e-12) == pytest.approx(scipy_p)
    assert not found.bound
    rng = np.random.default_rng(0)
    for patients in (1, 2, 5, 9):
        values = rng.integers(-3, 4, patients) / 7.0
        (found,) = sign_flip_tests(values[:, None], names(patients))
        assert found.p == pytest.approx(enumerated(values), abs=1e-12)
    (five,) = sign_flip_tests(np.full((5, 1), 0.1), names(5))
    assert five.p == 2 / 2**5, "5 patients cannot give less"
    (same,) = sign_flip_tests(np.zeros((30, 1)), names(30))
    assert same.p == 1 and not same.bound


def test_pairs_of_a_patient_are_flipped_together(told: dict[str, Any]) -> None:
    """McNemar's test of the same pairs, which takes them as independent, gives 0.109."""
    case = told["sign_flip_by_patient"]
    patient, hits = np.array(case["patient"]), [np.array(case[key], float) for key in ("hit_a", "hit_b")]
    a, b = (shares(each, np.zeros(len(patient), int), patient, 9) for each in hits)
    assert a is not None and b is not None
    added = a.minus(b).of_patients
    assert added.sum() == pytest.approx(case["difference"], abs=1e-12)
    (found,) = sign_flip_tests(added[:, None], names(9))
    assert found.p == pytest.approx(case["p_two_sided_enumerated"], abs=1e-12)


def test_many_patients_are_sampled_and_nothing_beyond_is_a_bound(reference_files: Path) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0.25, 1, 60) / 60
    (found,) = sign_flip_tests(values[:, None], names(60))
    normal = 2 * stats.norm.sf(abs(values.sum()) / math.sqrt((values**2).sum()))
    assert found.p == pytest.approx(normal, abs=0.01) and not found.bound
    (apart,) = sign_flip_tests(np.full((60, 1), 0.01), names(60))
    assert apart.p == 1 / 20_000 and apart.bound
    bits = np.unpackbits(sign_patterns(names(60), 19_999), axis=1, count=19_999, bitorder="little")
    flips = 1.0 - 2.0 * bits
    counted = (np.abs(values @ flips) >= abs(values.sum()) - 1e-12).sum()
    assert found.p == (1 + counted) / 20_000


def test_patterns_as_extreme_count_too() -> None:
    """Hits of 40 patients that differ, 23 one way: many patterns have the very same sum."""
    values = np.repeat([1.0, -1.0], [23, 17]) / 40
    (found,) = sign_flip_tests(values[:, None], names(40))
    assert found.p == pytest.approx(2 * stats.binom.sf(22, 40, 0.5), abs=0.01)


def test_a_patients_signs_do_not_depend_on_the_others() -> None:
    """So that one question has one p in every command, whoever else is tested beside it."""
    rng = np.random.default_rng(2)
    values = np.zeros((40, 3))
    values[:20, 0], values[5:, 1], values[:, 2] = rng.normal(0.1, 1, 20), rng.normal(0.1, 1, 35), rng.normal(0, 1, 40)
    together = sign_flip_tests(values, names(40))
    alone = [sign_flip_tests(values[:, [m]], names(40))[0] for m in range(3)]
    assert together == alone
    order = rng.permutation(40)
    assert sign_flip_tests(values[order], [names(40)[i] for i in order]) == together
    assert sign_flip_tests(values, names(40), seed=1) != together
    first = sign_patterns(names(3), 19_999)
    assert np.array_equal(first, sign_patterns(names(3), 39_999)[:, : first.shape[1]])


def test_draws_grow_with_the_family(told: dict[str, Any]) -> None:
    for size, needed in told["floor"]["replicates_needed_for_holm_p_0.005"].items():
        assert draws_for(int(size)) == max(19_999, needed)


def test_p_values_are_uniform_under_no_difference() -> None:
    """400 comparisons of equal models, 30 patients of 1 to 3 pairs: 2 to 8 % have p < 0.05."""
    rng, small = np.random.default_rng(3), 0
    found = []
    for _ in range(400):
        patient = np.repeat(np.arange(30), rng.integers(1, 4, 30))
        likely = rng.random(30)[patient]
        hits = [(rng.random(len(patient)) < likely).astype(float) for _ in range(2)]
        a, b = (shares(each, np.zeros(len(patient), int), patient, 30) for each in hits)
        assert a is not None and b is not None
        found.append(a.minus(b).of_patients)
    tested = sign_flip_tests(np.column_stack(found), names(30))
    small = sum(item.p < 0.05 for item in tested)
    assert 0.02 <= small / 400 <= 0.08
    assert all(0 < left.p <= right.p <= 1 for left, right in pairwise(sorted(tested, key=lambda item: item.p)))


def test_shares_add_up_to_the_mean_over_classes() -> None:
    rng = np.random.default_rng(4)
    values, class_of, patient = in_units(rng.random(30)), rng.integers(0, 3, 30), rng.integers(0, 8, 30)
    found = shares(values, class_of, patient, 9)
    assert found is not None and found.patients == 8
    classes = [values[class_of == c].mean() for c in range(3)]
    assert found.of_patients.sum() == pytest.approx(np.mean(classes), abs=1e-12)
    for p in range(9):
        added = [values[(class_of == c) & (patient == p)].sum() / (class_of == c).sum() for c in range(3)]
        part = [((class_of == c) & (patient == p)).sum() / (class_of == c).sum() for c in range(3)]
        assert found.of_patients[p] == pytest.approx(np.mean(added), abs=1e-12)
        beyond = [a - q * mean for a, q, mean in zip(added, part, classes, strict=True)]
        assert found.residuals[p] == pytest.approx(np.mean(beyond), abs=1e-12)
    values[class_of == 1] = np.nan
    left = shares(values, class_of, patient, 9)
    assert left is not None and left.of_patients.sum() == pytest.approx((classes[0] + classes[2]) / 2, abs=1e-12)
    assert shares(np.full(3, np.nan), np.zeros(3, int), np.arange(3), 3) is None
    with pytest.raises(ValueError, match="finite"):
        sign_flip_tests(np.full((2, 1), np.nan), names(2))
    with pytest.raises(ValueError, match="do not fit"):
        sign_flip_tests(np.zeros((2, 1)), names(3))


def test_intervals_of_few_patients(told: dict[str, Any]) -> None:
    dice = np.array(told["mean_of_8"]["dice"])
    drawn = draw_patients(8, 50).sums(np.arange(8), dice[:, None])[1:, 0] / 8

    def of(count: int) -> Any:
        return mean_interval(drawn, shares(dice[:count], np.zeros(count, int), np.arange(count), 8))

    eight = of(8)
    assert (eight.low, eight.high, eight.method) == pytest.approx((*told["mean_of_8"]["t_95"], "t"), abs=1e-9)
    four = stats.t.interval(0.95, 3, dice[:4].mean(), stats.sem(dice[:4]))
    assert (of(4).low, of(4).high) == pytest.approx((max(four[0], 0), min(four[1], 1)), abs=1e-9)
    assert of(3) is None and of(1) is None, "too few to say more than the values"
    many = shares(np.tile(dice, 2), np.zeros(16, int), np.arange(16), 16)
    found = mean_interval(drawn, many)
    assert found is not None and found.method == "bootstrap"
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=1e-12)
    assert mean_interval(None, many) is None
    assert mean_interval(drawn, shares(np.full(5, 0.5), np.zeros(5, int), np.arange(5), 5)) is None, "no spread"
    low = mean_interval(drawn, shares(np.array([0, 0, 0, 1.0]), np.zeros(4, int), np.arange(4), 4), bounds=None)
    assert low is not None and low.low < 0


def test_expected_hits_have_the_interval_of_a_mean() -> None:
    """Shares of tied pixels are no 0/1 counts, so no binomial interval is theirs."""
    rng = np.random.default_rng(6)
    kinds = ((8, 8, "t"), (12, 12, "bootstrap"), (3, 3, None), (40, 40, "bootstrap"), (9, 5, "t"))
    for pairs, patients, method in kinds:
        tied, patient, drawn = in_units(rng.random(pairs) / 9), np.arange(pairs) % patients, rng.random(100)
        found = pointing_interval(tied, 3 * patient + 7, drawn)
        assert found == mean_interval(drawn, shares(tied, np.zeros(pairs, int), 2 * patient, 2 * patients))
        assert (found and found.method) == method
    almost = np.array([1.0, 0, 1, 0, 1, 0.5])
    for hits, method in ((almost, "t"), (np.rint(almost), "wilson")):
        found = pointing_interval(hits, np.arange(6), drawn)
        assert found is not None and found.method == method
        assert pointing_interval(hits, np.arange(6), None) is None
    equal = shares(np.full(7, 0.7), np.zeros(7, int), np.array([0, 0, 1, 2, 3, 3, 3]), 4)
    assert mean_interval(drawn, equal) is None, "no spread but that of rounding"


def test_pointing_of_few_pairs_is_wilsons(told: dict[str, Any]) -> None:
    for text, expected in told["proportion_95"].items():
        hits, n = map(int, text.split("/"))
        found = pointing_interval((np.arange(n) < hits).astype(float), np.arange(n), np.zeros(5))
        if n == 1:
            assert found is None, "the number alone"
        elif n < 30:
            assert found is not None and (found.low, found.high) == pytest.approx(expected["wilson"], abs=1e-12)
    plenty = pointing_interval(np.ones(30), np.arange(30), np.linspace(0, 1, 100))
    assert plenty is not None and plenty.method == "bootstrap"
    clustered = pointing_interval(np.ones(40), np.arange(40) // 5, np.linspace(0, 1, 100))
    assert clustered is not None and clustered.method == "wilson", "8 patients"


def test_pairs_of_a_patient_that_are_alike_count_less() -> None:
    alike, patient = np.repeat([1.0, 0, 1, 0, 1, 1], 3), np.repeat(np.arange(6), 3)
    assert effective_number(alike, patient) == pytest.approx(6)
    assert effective_number(np.tile([1.0, 0, 1], 6), patient) == 18, "no more alike than others"
    assert effective_number(alike, np.arange(18)) == 18 and effective_number(alike, np.zeros(18)) == 1
    assert effective_number(np.ones(18), patient) == 6, "nothing is known about how alike they are"
    rng = np.random.default_rng(5)
    values, group = rng.random(20), np.concatenate([np.arange(7), rng.integers(0, 7, 13)])
    sizes = np.bincount(group)
    groups = [values[group == g] for g in range(7)]
    between = sum(len(x) * (x.mean() - values.mean()) ** 2 for x in groups) / 6
    within = sum(((x - x.mean()) ** 2).sum() for x in groups) / 13
    typical = (20 - (sizes**2).sum() / 20) / 6
    icc = max((between - within) / (between + (typical - 1) * within), 0)
    assert effective_number(values, group) == pytest.approx(20 / (1 + (20 / 7 - 1) * icc), abs=1e-12)
    found = pointing_interval(alike, patient, np.zeros(5))
    assert found == wilson_interval(4, 6)
    with pytest.raises(ValueError, match="needs a value"):
        effective_number(np.zeros(0), np.zeros(0))


def test_what_an_interval_needs() -> None:
    assert meaningful(patients=4) and not meaningful(patients=3)
    assert meaningful(positives=3, negatives=3) and not meaningful(positives=2, negatives=9)
    assert not meaningful(positives=9, negatives=2)
    assert meaningful(models=4) and not meaningful(models=3)
