"""Choices among variants on other patients, and tests of changes above a bound, by plain loops and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from xbench_fast.metrics_gpu.grounding.best_thresholds import patient_folds
from xbench_fast.metrics_gpu.statistics.variant_choice import (
    above_bound,
    change_tests,
    chosen_elsewhere,
    residuals,
    taken,
)

RNG = np.random.default_rng(3)
PAIRS, SETS = 60, 5
VALUES = RNG.integers(0, 9, (PAIRS, SETS)) / 8  # exact, with many ties
CLASS_OF, PATIENT_OF = RNG.choice([0, 2, 3], PAIRS), RNG.integers(0, 25, PAIRS)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_choice_is_made_on_the_other_folds(sign: int) -> None:
    folds = RNG.integers(0, 4, (3, 25))[:, PATIENT_OF]
    chosen = chosen_elsewhere(VALUES, CLASS_OF, folds, lambda mean: sign * mean)
    for repeat in range(3):
        for pair in range(PAIRS):
            others = [p for p in range(PAIRS) if folds[repeat, p] != folds[repeat, pair]]
            classes = sorted({CLASS_OF[p] for p in others})
            score = [
                sign * math.fsum(np.mean([VALUES[p, k] for p in others if CLASS_OF[p] == c]) for c in classes)
                for k in range(SETS)
            ]
            assert math.isclose(score[chosen[repeat, pair]], max(score), abs_tol=1e-12)
            first = next(k for k in range(SETS) if math.isclose(score[k], max(score), abs_tol=1e-12))
            assert chosen[repeat, pair] == first
    expected = [np.mean([VALUES[p, chosen[r, p]] for r in range(3)]) for p in range(PAIRS)]
    assert taken(VALUES, chosen) == pytest.approx(expected, abs=1e-9)


def test_without_another_fold_there_is_no_choice() -> None:
    folds = np.stack([np.zeros(PAIRS, np.intp), np.arange(PAIRS) % 2])
    chosen = chosen_elsewhere(VALUES, CLASS_OF, folds, lambda mean: mean)
    assert (chosen[0] == -1).all() and (chosen[1] >= 0).all()
    assert np.isnan(taken(VALUES, chosen[:1])).all()
    picked = VALUES[np.arange(PAIRS), chosen[1]]
    assert taken(VALUES, chosen) == pytest.approx(picked)  # the mean over the repeats with a choice


def test_the_winner_is_cursed_and_the_choice_on_others_is_not() -> None:
    """Twelve variants of one true mean: the largest is too large; chosen on other patients it is not."""
    seen, fair = [], []
    for _ in range(200):
        values = (RNG.random((50, 12)) < 0.4).astype(float)
        folds = patient_folds(np.ones((50, 1), np.bool_), int(RNG.integers(1 << 30)), halves=4)
        seen.append(values.mean(axis=0).max())
        fair.append(taken(values, chosen_elsewhere(values, np.zeros(50, np.intp), folds, lambda m: m)).mean())
    assert np.mean(seen) > 0.48
    assert abs(np.mean(fair) - 0.4) < 4 * np.std(fair) / math.sqrt(200)


def test_halves_divide_each_finding_however_few_the_patients() -> None:
    has = RNG.random((31, 3)) < 0.4
    folds = patient_folds(has, halves=6)
    assert folds.shape == (6, 31) and set(folds[:, has.any(axis=1)].ravel()) == {0, 1}
    assert len({row.tobytes() for row in folds}) > 1
    rarest = int(np.argmin(has.sum(axis=0)))
    sizes = [np.bincount(row[has[:, rarest]], minlength=2) for row in folds]
    assert all(abs(int(a) - int(b)) <= 1 for a, b in sizes)
    assert patient_folds(has).shape == (1, 31)  # thresholds leave one patient out


def test_one_pair_a_patient_is_the_t_test_of_scipy() -> None:
    values = np.column_stack([RNG.random(40), RNG.random((40, 3)) * [1.0, 1.6, 0.3]])
    means, parts = values.mean(axis=0), residuals(values, np.arange(40))
    p = change_tests(means, parts, 40)
    for k in (1, 2, 3):
        x, first = values[:, k], values[:, 0]
        up, down = (stats.ttest_1samp(y, 0, alternative="greater").pvalue for y in (x - 1.1 * first, 0.9 * first - x))
        assert p[0, k - 1] == pytest.approx(max(min(1, 2 * min(up, down)), 2.0**-39))
        up, down = (stats.ttest_1samp(y, 0.1, alternative="greater").pvalue for y in (x - first, first - x))
        assert p[1, k - 1] == pytest.approx(max(min(1, 2 * min(up, down)), 2.0**-39))
    assert p[:, 1].max() < 0.05 and p[:, 2].max() < 0.05  # both directions are found
    ranked = change_tests(means, parts * math.sqrt(40 / 39), 40, ranked=True)
    assert ranked == pytest.approx(p)


def test_pairs_of_a_patient_count_together() -> None:
    values = RNG.random((30, 2))
    parts = residuals(values, np.arange(30) // 3)
    m = values.mean(axis=0)
    loops = [[sum(values[p, k] - m[k] for p in range(3 * g, 3 * g + 3)) / 30 for k in (0, 1)] for g in range(10)]
    assert parts == pytest.approx(np.array(loops), abs=1e-9)


def test_patients_who_all_agree_have_the_smallest_p_of_their_number() -> None:
    values = np.column_stack([np.zeros(12), np.ones(12), np.full(12, 0.05)])
    p = change_tests(values.mean(axis=0), residuals(values, np.arange(12)), 12)
    assert np.isnan(p[0]).all()  # nothing is relative to 0
    assert p[1].tolist() == [2.0**-11, 1.0]
    values[:, 0] = 0.5
    p = change_tests(values.mean(axis=0), residuals(values, np.arange(12)), 12)
    assert p.tolist() == [[2.0**-11, 2.0**-11], [2.0**-11, 2.0**-11]]


def test_the_bound_itself_is_not_above() -> None:
    changes, reference = np.array([0.05, 0.0501, 0.1, 0.11]), np.array([0.5, 0.5, 0.0, 2.0])
    assert above_bound(changes, reference).tolist() == [[False, True, False, False], [False, False, False, True]]
