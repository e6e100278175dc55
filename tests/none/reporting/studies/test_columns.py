"""What the columns of studies print of a row, and how numbers of several datasets become one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xbench_fast.metrics_gpu.statistics.intervals import Interval, percentile_interval
from xbench_fast.metrics_gpu.statistics.measured_numbers import Measured
from xbench_fast.runtime.reporting.gallery.overlay import blend, outline
from xbench_fast.runtime.reporting.studies.columns import (
    TESTED,
    StudyTable,
    measured,
    metric,
    numbers,
    of_measure,
    p_values,
    percents,
    shares,
    text,
    texts,
)
from xbench_fast.runtime.reporting.studies.estimates import over_datasets
from xbench_fast.runtime.reporting.tables.table import Cell, cell_of

ROW = {
    "dataset": "one",
    "measure": "dice_best",
    **measured("pointing", Measured(0.5, Interval(0.25, 0.75, 0.95, "wilson")), method=True),
    **measured("gain", Measured(1.5, Interval(-1.0, 2.0, 0.95, "bootstrap"))),
    "share": 0.125,
    "absent": None,
    "empty": "",
    "p": 0.0004,
    "below": True,
}


def shown(column: object) -> Cell:
    return cell_of(column.item(ROW))  # type: ignore[attr-defined]


def test_a_number_is_its_value_its_ends_and_where_asked_its_method() -> None:
    assert {key: ROW[key] for key in ROW if key.startswith("pointing")} == {
        "pointing": 0.5, "pointing_low": 0.25, "pointing_high": 0.75, "pointing_interval": "wilson"
    }  # fmt: skip
    assert [key for key in ROW if key.startswith("gain")] == ["gain", "gain_low", "gain_high"]
    assert measured("x", Measured(), method=True) == dict.fromkeys(("x", "x_low", "x_high", "x_interval"))


def test_cells_have_the_value_its_interval_and_what_is_said_of_it() -> None:
    assert shown(metric("pointing")) == Cell("50.00", "[25.00, 75.00]", note="Wilson")
    assert shown(metric("pointing", note=lambda row: f"of {row['dataset']}")).note == "Wilson, of one"
    assert shown(metric("gain", of="delta_dice")) == Cell("1.50", "[-1.00, 2.00]")
    assert shown(percents("share")) == Cell("12.50")
    assert shown(shares("share", "part")).text == "12"
    assert shown(numbers("share", decimals=3)).text == "0.125"
    assert shown(text("absent")).text == shown(text("empty")).text == shown(percents("absent")).text == "-"
    with pytest.raises(KeyError):
        shown(metric("pointed", of="pointing"))


def test_a_value_is_printed_as_the_measure_that_its_row_names() -> None:
    row = {**ROW, "measure": "delta_dice"}
    assert cell_of(of_measure("gain", "gap").item(row)) == Cell("1.50", "[-1.00, 2.00]")
    assert cell_of(of_measure("pointing", "gap").item({**ROW, "measure": "average_precision"})).text == "50.00"


def test_p_values_know_bounds_and_families() -> None:
    assert shown(p_values("p")).text == "<0.001"
    assert cell_of(p_values("p", bound="below").item({**ROW, "p": 0.0151})).text == "<0.016"
    assert cell_of(p_values("p", bound="below").item({**ROW, "p": 0.0151, "below": False})).text == "0.015"
    row = {"p": None, "p_bound": False, "p_holm": None, "family": 4}
    assert [column.item(row) for column in TESTED] == ["-", "-", "-"]
    assert TESTED[2].item({**row, "p": 0.5}) == "4"


def test_headings_stars_and_titles_of_datasets() -> None:
    table = StudyTable("T", "t", (*texts("dataset", "measure"), metric("dice_best", group="G")), ("note",), lead=2)
    rows = [{"dataset": name, "measure": "a", "dice_best": 0.5} for name in ("one", "mean of datasets")]
    made = table.table(rows, ("stamp",), {"one": "The one"})
    assert [(column.title, column.group) for column in made.columns] == [
        ("dataset", ""), ("measure", ""), ("Dice*", "G")
    ]  # fmt: skip
    assert [row[0] for row in made.rows] == ["The one", "mean of datasets"]
    assert (made.title, made.name, made.stamps, made.notes, made.lead) == ("T", "t", ("stamp",), ("note",), 2)
    assert [row["dataset"] for row in rows] == ["one", "mean of datasets"], "rows are not changed"


def estimate(value: float | None, method: str = "bootstrap") -> Measured:
    drawn = np.linspace(0, 1, 50) + (value or 0.0)
    return Measured(value, None if method == "none" else Interval(0.0, 1.0, 0.95, method), drawn=drawn)


def test_the_mean_over_datasets_has_an_interval_where_each_has_one_of_the_bootstrap() -> None:
    whole = over_datasets([estimate(0.25), estimate(0.75)], 0.95)
    assert whole.value == 0.5
    assert whole.interval == percentile_interval(np.linspace(0, 1, 50) + 0.5, 0.95)
    for method in ("t", "none"):
        few = over_datasets([estimate(0.25), estimate(0.75, method)], 0.95)
        assert (few.value, few.interval) == (0.5, None)


def test_datasets_without_the_number_are_left_out_of_the_mean() -> None:
    whole = over_datasets([estimate(0.25), replace(estimate(None), interval=None)], 0.95)
    assert whole.value == 0.25 and whole.interval is not None
    nothing = over_datasets([estimate(None)], 0.95)
    assert (nothing.value, nothing.interval) == (None, None)


def test_an_outline_lies_in_the_mask_and_knows_the_border_of_the_picture() -> None:
    mask = np.zeros((7, 9), np.bool_)
    mask[0:5, 2:7] = True
    edge, inner = outline(mask, at_border=True), outline(mask, at_border=False)
    assert not (edge & ~mask).any()
    assert edge[0, 4] and not inner[0, 4], "beyond the picture is outside, or goes on"
    assert edge[4, 4] and inner[4, 4] and not edge[2, 4] and not inner[2, 4]
    assert outline(mask, 2, at_border=False)[3, 4] and not inner[3, 4]


def test_a_map_is_clear_at_0_and_coloured_at_1() -> None:
    grey, values = np.full((1, 2), 100, np.uint8), np.array([[0.0, 1.0]])
    assert blend(grey, values, 0.5 * values).tolist() == [[[100, 100, 100], [176, 178, 132]]]
