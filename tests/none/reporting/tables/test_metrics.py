"""The list of metrics: complete, and the one place of their names."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from xbench_fast.metrics_gpu.grounding.phrases import PhraseMeans
from xbench_fast.metrics_gpu.statistics.intervals import Interval
from xbench_fast.metrics_gpu.statistics.measured_numbers import Measured
from xbench_fast.runtime.reporting.comparison.comparison_tables import _change, _dice_texts
from xbench_fast.runtime.reporting.comparison.gate import measures
from xbench_fast.runtime.reporting.difference_tables import _cell, difference_row
from xbench_fast.runtime.reporting.native_tables import NativeScores, _row
from xbench_fast.runtime.reporting.paper import Printed
from xbench_fast.runtime.reporting.phrase_tables import PhraseRow
from xbench_fast.runtime.reporting.phrase_tables import _row as _phrases
from xbench_fast.runtime.reporting.printed_cells import number_cell
from xbench_fast.runtime.reporting.studies.writing import metric_cell
from xbench_fast.runtime.reporting.tables.metric_names import METRICS, difference_of, heading, value_of
from xbench_fast.runtime.results.comparing.cell_changes import COMPARED
from xbench_fast.runtime.results.comparing.difference import Difference
from xbench_fast.runtime.results.comparing.flips import DiceChange
from xbench_fast.runtime.results.comparing.model_differences import ModelDifference
from xbench_fast.runtime.results.numbers.fields import FIELDS

PAIR = {"first": "a", "second": "b"}


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


def test_every_table_takes_the_digits_from_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each metric gets its own number of digits; every printer of metrics follows, value and interval."""
    digits = {key: count for count, key in enumerate(METRICS)}
    for key, metric in list(METRICS.items()):
        monkeypatch.setitem(METRICS, key, replace(metric, digits=digits[key], interval_digits=digits[key] + 1))

    def decimals(text: str) -> int:
        return len(text.strip("[]").split(",")[0].partition(".")[2])

    around = Interval(0.1, 0.3, 0.95, "bootstrap")
    for key, count in digits.items():
        cell = number_cell(Measured(0.2, around), key)
        assert (decimals(cell.text), decimals(cell.interval)) == (count, count + 1)
        assert number_cell(Measured(0.2, replace(around, method="wilson")), key).note == "Wilson"
        assert decimals(number_cell(Measured(0.2), key, Printed("3.00")).difference) == count
        study = metric_cell(key, 0.2, (0.1, 0.3))
        assert (decimals(study.text), decimals(study.interval)) == (count, count)
        change = Difference(field=key, n=1, value=0.1, minuend=0.3, reference=0.2, interval=around)
        assert [decimals(text) for text in _change(change)[2:6]] == [count] * 4
        between = _cell(
            ModelDifference(field=key, value=0.1, minuend=0.3, reference=0.2, interval=around, dataset="", **PAIR)
        )
        assert (decimals(between.text), decimals(between.interval)) == (count, count + 1)
    fixed, best = digits["dice_fixed"], digits["dice_best"]
    assert [decimals(text) for text in _dice_texts(DiceChange("", "", 0.2, 0.3, 0.2, 0.3))] == [fixed] * 3 + [best] * 3
    scores = NativeScores("", 1, 1, hit=0.2, drawn=0.2, otsu=0.2, tuned=0.2, best=0.2, floor=0.2)
    native = [decimals(str(item)) for item in _row("", scores, scores)[3:]]
    point, floor, iou, searched = (digits[key] for key in ("pointing", "floor_iou", "iou_fixed", "iou_best"))
    assert native == [point, floor, 0, iou, iou, iou, 0, searched, 0, iou, iou, iou, searched]
    means = PhraseMeans(0.2, 0.2, (0.2,) * 5, 0.2, 0.2, pairs=1, unseen=0, constant=0)
    phrases = _phrases(PhraseRow("", "", "", means, {"miou": around}), means)[3:-2]
    assert [decimals(item.text) for item in phrases] == [3, 3, *[iou] * 7]  # type: ignore[union-attr]
    assert decimals(phrases[2].interval) == iou + 1  # type: ignore[union-attr]


@pytest.mark.parametrize(("unit", "scale"), [("points", 1.0), ("percent", 100.0)])
def test_every_file_takes_the_unit_from_the_list(monkeypatch: pytest.MonkeyPatch, unit: str, scale: float) -> None:
    """Differences in CSV files, and the drops that a comparison may be judged by."""
    for key, metric in list(METRICS.items()):
        monkeypatch.setitem(METRICS, key, replace(metric, unit=unit))  # type: ignore[arg-type]
    around = Interval(0.1, 0.3, 0.95, "bootstrap")
    for key in METRICS:
        row = difference_row(
            ModelDifference(field=key, value=0.25, minuend=0.5, reference=0.25, interval=around, dataset="", **PAIR)
        )
        assert (row["difference_points"], row["low"], row["high"]) == (scale * 0.25, scale * 0.1, scale * 0.3)
    changes = [SimpleNamespace(field=key, reference=0.5, minuend=0.25) for key in COMPARED]
    plain = {"pairs": 0, "label_changes": (), "region_changes": (), "other_files": (), "other_patients": ()}
    cell = SimpleNamespace(whole=changes, rows=SimpleNamespace(logits=None), **plain)
    found = measures(SimpleNamespace(cells=[cell], missing_rows=0, alone=(), metrics=()))  # type: ignore[arg-type]
    assert {found[f"{key}_drop"] for key in COMPARED} == {scale * 0.25}


def test_units_of_printed_values() -> None:
    assert (value_of("auc", 0.12345), value_of("delta_dice", 0.12345), value_of("auc", None)) == ("12.34", "0.12", "-")
    assert (difference_of("auc", 0.02), difference_of("delta_dice", 0.02)) == ("+2.00", "+0.02")
    assert [difference_of("auc", value) for value in (-0.02, 0.0, -1e-9, None)] == ["-2.00", "0.00", "0.00", "-"]
