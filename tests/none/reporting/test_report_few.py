"""Numbers of few patients: intervals, tests and thresholds only where they mean something, in every command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from result_rows import ResultRow
from stored_counts import add_cell, other_answers, random_rows
from xbench_fast.runtime.reporting.comparison.comparison import compare_runs
from xbench_fast.runtime.reporting.presentation import Presentation
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.tables.metric_names import p_value
from xbench_fast.runtime.reporting.tables.table import MEAN_OF_DATASETS, Table, cell_of
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.selected_pairs import Resampling

FEW = Choices(replicates=50, seed=4)


def without(row: ResultRow) -> ResultRow:
    """The same image without the finding."""
    return replace(row, label=0, region_area=0, area=None, overlap=None, hit=None, argmax=None, degenerate=None,
                   region=None, frame=None, saliency=None)  # fmt: skip


def few(pairs: int) -> list[ResultRow]:
    """Effusion has regions in the first `pairs` of its cases only, each of a patient of its own."""
    rows, kept = [], 0
    for row in random_rows(1):
        row = replace(row, patient_id=f"p{row.case_id}")
        if row.finding == "Effusion" and row.label == 1 and row.area is not None:
            kept += 1
            row = row if kept <= pairs else without(row)
        rows.append(row)
    return rows


def write(path: Path, rows: list[ResultRow]) -> Path:
    with RunDirectory(path) as run:
        run.begin({})
        add_cell(run, "kad", "one", rows)
        add_cell(run, "mavl", "one", other_answers(rows, 3))
    return path


@pytest.mark.parametrize(("pairs", "dice", "pointing"), [(1, None, None), (3, None, "wilson"), (4, "t", "wilson"),
                                                          (9, "t", "wilson"), (10, "bootstrap", "wilson")])  # fmt: skip
def test_intervals_stand_where_they_mean_something(
    pairs: int, dice: str | None, pointing: str | None, tmp_path: Path
) -> None:
    path = write(tmp_path / "run", few(pairs))
    results = make_results(load_run(path), FEW)
    cell = results.cells["kad", "one"]
    assert cell.count("pointing", "Effusion") == pairs

    def method(field: str, name: str = "Effusion") -> str | None:
        interval = cell.number(field, name).interval
        return interval.method if interval else None

    assert cell.number("pointing", "Effusion").value is not None
    assert (method("dice_best"), method("dice_fixed"), method("pointing")) == (dice, dice, pointing)
    assert method("auc") == (None if pairs < 3 else "bootstrap"), "one positive says nothing of an AUC"
    assert method("auc", "") == method("auc") and method("pointing", "") == method("dice_best", "") == "bootstrap"
    assert (method("dice_cross_fitted") is None) == (dice is None)
    compared = compare_runs(load_run(path), load_run(path), ("kad", "mavl"), (), Resampling(50, 4)).cells[0]
    changes = {change.field: change for change in compared.classes if change.name == "Effusion"}
    found = changes["dice_fixed"].interval
    assert (found.method if found else None) == dice
    assert (changes["auc"].p is None) == (changes["auc"].interval is None) == (pairs < 3)
    if pairs == 1:
        assert "dice_cross_fitted" not in changes and changes["pointing"].p == 1, "two patterns of one patient"


def test_a_class_of_one_patient_says_so(tmp_path: Path) -> None:
    report = make_report(write(tmp_path / "run", few(1)), FEW)
    tables = {table.name: table for table in report.tables}
    table = tables["dice-one"]
    place = [(column.group, column.title) for column in table.columns].index(("Effusion", "cross-fitted"))
    rows = [row for row in table.rows if cell_of(row[0]).text in ("kad", "mavl")]
    assert [cell_of(row[place]).text for row in rows] == ["n/a (1 patient)"] * 2
    cell = report.results.cells["kad", "one"]
    best, floor = (cell.grounding.value(key, "Mass") for key in ("dice_best", "floor_dice"))
    assert best is not None and floor is not None
    (note,) = [note for note in table.notes if note.startswith("cross-fitted, kad on The one")]
    assert "mean over 1 of 2 classes, without Effusion (pairs of 1 patient)" in note
    assert f"Dice* is {100 * best:.2f} and all-ones {100 * floor:.2f}" in note
    assert cell.number("dice_cross_fitted").value == cell.number("dice_cross_fitted", "Mass").value


def test_no_note_on_thresholds_stands_under_a_table_of_auc(tmp_path: Path) -> None:
    tables = {table.name: table for table in make_report(write(tmp_path / "run", few(5)), FEW).tables}

    def said(table: Table) -> str:
        return " ".join((*table.notes, *table.legend))

    for name in ("auc-one", "recognition"):
        assert "resamples of the patients" in said(tables[name]) and "3 patients with it" in said(tables[name])
        assert "threshold" not in said(tables[name]) and "Wilson" not in said(tables[name])
    assert "thresholds are chosen anew in each" in said(tables["table1"])


def test_where_nothing_was_as_extreme_p_is_a_bound() -> None:
    assert [p_value(value) for value in (None, 0.2, 0.0004, 1.0)] == ["-", "0.200", "<0.001", "1.000"]
    assert [p_value(value, True) for value in (0.00005, 28 * 0.00005, 0.002, 1.0)] == [
        "<0.001", "<0.002", "<0.002", "1.000",
    ]  # fmt: skip
    assert np.isclose(1 / 20_000, 0.00005)


def test_a_mean_has_no_interval_where_a_dataset_has_students(tmp_path: Path) -> None:
    path = write(tmp_path / "run", random_rows(7))
    with RunDirectory(path) as run:
        patients = dict.fromkeys(row.case_id for row in random_rows(7))
        named = {case: f"p{place % 6}" for place, case in enumerate(patients)}
        add_cell(run, "kad", "two", [replace(row, patient_id=named[row.case_id]) for row in random_rows(7)])
    results = make_report(path, Choices(replicates=50)).results
    own = {name: results.number("kad", name, "dice_best").interval for name in ("one", "two")}
    assert [interval and interval.method for interval in own.values()] == ["bootstrap", "t"]
    mean = results.number("kad", "", "dice_best")
    assert mean.value is not None and mean.interval is None and mean.drawn is not None


def test_means_side_by_side_rest_on_the_same_datasets(tmp_path: Path) -> None:
    """On `two` all pairs are of one patient, so nothing is cross-fitted there, by no model."""
    path = write(tmp_path / "run", few(5))
    alone = [replace(row, patient_id="p") for row in random_rows(7)]
    with RunDirectory(path) as run:
        add_cell(run, "kad", "two", alone)
        add_cell(run, "mavl", "two", other_answers(alone, 8))
    report = make_report(path, Choices(replicates=0))
    tables = {table.name: table for table in report.tables}
    for name, fitted in (
        ("table1", ("Dice cross-fitted", "IoU cross-fitted")),
        ("thresholds", ("delta cross-fitted",)),
    ):
        table = tables[name]
        means = {column.title: place for place, column in enumerate(table.columns) if column.group == MEAN_OF_DATASETS}
        rows = {cell_of(row[0]).text: [cell_of(item).text for item in row] for row in table.rows}
        shown = [row for label, row in rows.items() if label in ("all-ones", "kad", "mavl")]
        assert len(shown) == (3 if name == "table1" else 2)
        columns = {title: [row[place] for row in shown if row[place]] for title, place in means.items()}
        assert {title for title, items in columns.items() if "-" in items} == set(fitted)
        assert all(set(columns[title]) == {"-"} for title in fitted)
        (note,) = [note for note in table.notes if note.startswith("no mean over datasets")]
        assert f"of {', '.join(fitted)} for kad (1 of 2 datasets), mavl (1 of 2 datasets): " in note
    assert report.results.number("kad", "", "dice_best").value is not None
    only = make_report(path, Choices(replicates=0), Presentation(datasets=("one",))).results
    assert only.number("kad", "", "dice_cross_fitted").value is not None, "where every dataset has the number"


@pytest.mark.parametrize(("pairs", "method"), [(3, None), (6, "t"), (10, "bootstrap")])
def test_all_ones_point_as_chance_does(pairs: int, method: str | None, tmp_path: Path) -> None:
    """The expected hit of a mask of the whole image is the chance level, in value and interval."""
    rows = few(pairs)
    for row in rows:
        if row.area is not None:
            row.area, row.overlap = np.full(101, 224 * 224, np.int32), np.full(101, row.region_area, np.int32)
            row.degenerate = False
    with RunDirectory(tmp_path / "run") as run:
        run.begin({})
        add_cell(run, "baseline:ones", "one", rows, "baseline", model_family="", ties="expected")
    cell = make_results(load_run(tmp_path / "run"), FEW).cells["baseline:ones", "one"]
    for name in ("Effusion", "Mass", ""):
        chance, pointing = cell.number("chance", name), cell.number("pointing", name)
        assert (pointing.value, pointing.interval) == (chance.value, chance.interval)
        assert name != "Effusion" or (pointing.interval and pointing.interval.method) == method
