"""Printed percentages: two decimals, half to even of the unrounded value."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.runtime.tables.metrics import percent


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
