"""Printed percentages: two decimals, half to even of the unrounded value."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.runtime.reporting.tables.metric_names import percent


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.11972, "11.97"),
        (1 / 800, "0.12"),
        (3 / 800, "0.38"),
        (0.0, "0.00"),
        (1.0, "100.00"),
        (None, "-"),
        (0.20199, "20.20"),
    ],
)
def test_percent(value: float | None, text: str) -> None:
    assert percent(value) == text


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_percent_rounds_the_unrounded_value(hits: int, pairs: int) -> None:
    """Nearest hundredth of a percent in whole numbers; a tie goes to the even one."""
    hits = min(hits, pairs)
    low, rest = divmod(10000 * hits, pairs)
    up = 2 * rest > pairs or (2 * rest == pairs and low % 2 == 1)
    assert Decimal(percent(hits / pairs)) * 100 == low + up


def test_percent_rounds_half_to_even() -> None:
    for numerator, denominator in [(161, 800), (163, 800), (1, 800), (3, 800), (1, 3), (2, 3), (799, 800), (1, 1)]:
        exact = Fraction(numerator * 10000, denominator)
        assert percent(numerator / denominator) == f"{round(exact) / 100:.2f}"
    assert percent(0.20125) == "20.12" and percent(0.20375) == "20.38"
    assert percent(0.119715) == "11.97" and percent(0.1197150001) == "11.97" and percent(0.11975) == "11.98"
    assert percent(0.20199, 3) == "20.199" and percent(0.5, 0) == "50" and percent(1e-9) == "0.00"
    assert percent(-1e-9) == "0.00" and percent(-0.0123) == "-1.23"
    assert percent(None) == percent(float("nan")) == "-"
    with pytest.raises(ValueError, match="inf"):
        percent(float("inf"))
