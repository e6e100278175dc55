"""The list of metrics: complete, and the one place of their names."""

from __future__ import annotations

from xbench_fast.runtime.comparing.changes import COMPARED
from xbench_fast.runtime.results.numbers.fields import FIELDS
from xbench_fast.runtime.tables.metrics import METRICS, heading


def test_every_number_of_a_cell_has_its_words() -> None:
    assert set(METRICS) == set(FIELDS) and set(COMPARED) <= set(METRICS)
    assert all(key == metric.key and metric.title and metric.words for key, metric in METRICS.items())
    assert len({metric.title for metric in METRICS.values()}) == len(METRICS)


def test_units_and_stars() -> None:
    points = {key for key, metric in METRICS.items() if metric.unit == "points"}
    assert points == {"delta_dice", "delta_cross_fitted"} and all(METRICS[key].scale == 1 for key in points)
    assert METRICS["dice_best"].scale == 100
    assert heading("dice_best", in_sample=True) == "Dice*" and heading("dice_best") == "Dice"
    assert heading("dice_cross_fitted", in_sample=True) == "Dice cross-fitted"
