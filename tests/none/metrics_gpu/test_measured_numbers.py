"""A number with its interval and test: when the two disagree, and which tests are corrected together."""

from __future__ import annotations

import numpy as np
import pytest
from xbench_fast.metrics_gpu.statistics.intervals import Interval
from xbench_fast.metrics_gpu.statistics.measured_numbers import Measured, Parts, disagreements
from xbench_fast.metrics_gpu.statistics.multiple_tests import corrected

NAMES = tuple(f"p{index}" for index in range(12))


@pytest.mark.parametrize(
    ("low", "high", "level", "p", "disagrees"),
    [
        (0.1, 0.3, 0.95, 0.01, False),
        (0.1, 0.3, 0.95, 0.07, True),
        (0.1, 0.3, 0.9, 0.07, False),
        (-0.3, -0.1, 0.95, 0.06, True),
        (-0.1, 0.3, 0.95, 0.01, True),
        (-0.1, 0.3, 0.99, 0.02, False),
        (0.0, 0.3, 0.95, 0.2, False),
        (-0.3, 0.0, 0.95, 0.2, False),
        (0.1, 0.3, 0.95, None, False),
    ],
)
def test_the_interval_and_the_test_answer_at_one_level(
    low: float, high: float, level: float, p: float | None, disagrees: bool
) -> None:
    number = Measured(0.1, Interval(low, high, level, "bootstrap"), p=p)
    assert number.disagrees is disagrees and (number.low, number.high) == (low, high)
    (told,) = [*disagreements([number, Measured(0.1, p=0.01)], "verdict")] or [""]
    assert bool(told) is disagrees and told.endswith(f" disagree at {'5' if level == 0.95 else '1'} %" * disagrees)


def test_a_family_is_tested_and_corrected_together() -> None:
    """Two families; a number without parts and one tested by DeLong's method keep what they have."""
    parts = Parts(NAMES, np.full(12, 0.1), 1)
    ranked = Parts(NAMES, np.full(12, 0.1), 1, ranked=True)
    numbers = [Measured(1.2, n=12, parts=parts), Measured(1.0, p=0.03, parts=ranked), Measured(0.5), Measured(0.1, n=5)]
    first, second, third, other = corrected(numbers, [item.n == 5 for item in numbers])
    assert first.p == 2 / 2**12 and first.p_holm == 2 * first.p and not first.p_bound
    assert (second.p, second.p_holm) == (0.03, 0.03)
    assert (third.p, third.p_holm, other.p) == (None, None, None)
    assert [item.family for item in (first, second, third, other)] == [2, 2, 2, 0]
    assert corrected([]) == []
