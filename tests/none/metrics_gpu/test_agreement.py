"""Agreement between readers, against irrCAC 0.4.4 (digits=12) and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.trust.agreement import presence_agreement

N = None
CARDIOMEGALY = [
    [1, 1, 0], [1, 1, 1], [1, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1],
    [0, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0],
]  # fmt: skip
EFFUSION = [
    [0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 0, 1], [0, 0, 0],
    [1, 1, 1], [0, 0, 0], [0, 0, 1], [0, 1, 0],
]  # fmt: skip
MISSING = [[1, 1, N], [1, 0, 1], [0, 0, 0], [N, 1, 1], [0, N, 0], [0, 0, 1], [1, 1, 1], [0, 0, 0]]
ONE_RATING = [[1, N, N], *MISSING[1:]]


def counted(ratings: Any) -> tuple[Any, Any]:
    told = [[value for value in row if value is not None] for row in ratings]
    return np.array([sum(row) for row in told]), np.array([len(row) for row in told])


def coefficients(found: Any, place: int = 0) -> list[float]:
    return [float(getattr(found, name)[place]) for name in ("gwet_ac1", "fleiss_kappa", "krippendorff_alpha")]


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [
        (CARDIOMEGALY, [0.559748427673, 0.481481481481, 0.493827160494]),
        (EFFUSION, [0.750495049505, 0.665782493369, 0.673740053050]),
        (MISSING, [0.666666666667, 0.666666666667, 0.636363636364]),
        (ONE_RATING, [0.619047619048, 0.619047619048, 0.590909090909]),
        ([[1, 1], [1, 0], [0, 0], [0, 1], [0, 0], [0, 0]], [0.4, 0.25, 0.3125]),
    ],
)
def test_the_coefficients_are_those_of_irrcac(ratings: Any, expected: Any) -> None:
    assert coefficients(presence_agreement(*counted(ratings))) == pytest.approx(expected, abs=1e-9)


def test_prevalence_and_agreement_by_hand() -> None:
    found = presence_agreement(np.array([3, 1, 0]), np.array([3, 3, 2]))
    assert found.prevalence[0] == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert found.observed[0] == pytest.approx((1 + 1 / 3 + 1) / 3)


@pytest.mark.parametrize("named", [0, 3])
def test_readers_who_always_say_the_same_have_ac1_and_no_kappa(named: int) -> None:
    found = presence_agreement(np.full(4, named), np.full(4, 3))
    ac1, kappa, alpha = coefficients(found)
    assert ac1 == 1.0 and np.isnan(kappa) and np.isnan(alpha)


def test_an_image_without_readers_counts_nowhere() -> None:
    named, readers = counted(MISSING)
    more = presence_agreement(np.append(named, 0), np.append(readers, 0))
    assert coefficients(more) == pytest.approx(coefficients(presence_agreement(named, readers)), abs=1e-12)
    none = presence_agreement(np.zeros(1, int), np.zeros(1, int))
    assert np.isnan(none.prevalence[0]) and np.isnan(none.observed[0]) and np.isnan(coefficients(none)).all()


def test_a_draw_is_the_value_of_the_patients_it_holds() -> None:
    named, readers = counted(CARDIOMEGALY)
    patient_of = np.arange(14) // 2
    draws = draw_patients(7, 5, seed=1)
    found = presence_agreement(named, readers, draws, patient_of)
    for place, counts in enumerate(draws.counts, 1):
        rows = np.repeat(np.arange(14), counts[patient_of])
        assert coefficients(found, place) == pytest.approx(
            coefficients(presence_agreement(named[rows], readers[rows])), abs=1e-12, nan_ok=True
        )


@pytest.mark.parametrize(("named", "readers"), [([4], [3]), ([-1], [3]), ([1, 1], [3])])
def test_impossible_counts_are_refused(named: Any, readers: Any) -> None:
    with pytest.raises(ValueError, match="number of readers"):
        presence_agreement(np.array(named), np.array(readers))
