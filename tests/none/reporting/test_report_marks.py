"""Marks, the paper's cells, and the shapes of tables."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from written_report import report
from xbench_fast.metrics_gpu.statistics.measured_numbers import Measured
from xbench_fast.runtime.reporting.paper import paper
from xbench_fast.runtime.reporting.printed_cells import marked
from xbench_fast.runtime.reporting.tables.metric_names import difference_of
from xbench_fast.runtime.reporting.tables.table import Cell, Column, Table
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results
from xbench_fast.runtime.results.run_directory import RunDirectory

VINDR = ["Other lesion", "Pleural effusion", "Edema"]


def marks(values: list[float | None], competing: list[bool] | None = None) -> list[str]:
    ranked = competing or [True] * len(values)
    rows = [[Cell(str(v), number=Measured(v, ranked=takes))] for v, takes in zip(values, ranked, strict=True)]
    return [row[0].mark for row in marked(rows)[0]]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.3, 0.5, 0.4], ["", "best", "second"]),
        ([0.3, 0.5], ["", "best"]),
        ([0.5], [""]),
        ([0.5, 0.5, 0.4], ["best", "best", "second"]),
        ([0.5, 0.4, 0.4, 0.1], ["best", "second", "second", ""]),
        ([0.5, 0.500004, 0.4], ["best", "best", "second"]),
        ([0.5, None, 0.4], ["best", "", ""]),
        ([0.5], [""]),
        ([0.5, 0.5], ["", ""]),
        ([None, None], ["", ""]),
        ([], []),
    ],
)
def test_best_and_second_best(values: list[float | None], wanted: list[str]) -> None:
    assert marks(values) == wanted


def test_baselines_do_not_compete() -> None:
    assert marks([0.9, 0.3, 0.5, 0.4], [False, True, True, True]) == ["", "", "best", "second"]


def test_cells_of_models_are_ranked_and_those_of_baselines_are_not(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1), "published")
        add_cell(made, "baseline:ones", "one", random_rows(1), "baseline")
    results = make_results(load_run(tmp_path / "run"), Choices(replicates=0))
    for place in ({"dataset": "one"}, {"dataset": "one", "name": CLASSES[0]}, {}):
        where = {"dataset": "", **place}
        model, blind = (results.number(name, field="dice_best", **where) for name in ("kad", "baseline:ones"))
        assert model.value == blind.value is not None and model.ranked and not blind.ranked


def test_signed_differences() -> None:
    assert [difference_of("pointing", value) for value in (0.0123, -0.0123, 0.0, -0.00001, None)] == [
        "+1.23",
        "-1.23",
        "0.00",
        "0.00",
        "-",
    ]


def test_a_table_is_broken_at_its_groups() -> None:
    columns = (Column("model"), *(Column(t, g) for g in "abc" for t in ("x", "y")))
    table = Table("t", columns, (tuple(str(i) for i in range(7)),), ("s",), ("n",), "name", True)
    parts = list(table.parts(len, 5))
    assert [[c.title + c.group for c in part.columns] for part in parts] == [
        ["model", "xa", "ya", "xb", "yb"], ["model", "xc", "yc"],
    ]  # fmt: skip
    assert parts[1].rows == (("0", "5", "6"),) and parts[1].notes == ("n",) and parts[1].detail
    assert [part.columns for part in table.parts(len, 3)] == [(columns[0], *columns[i : i + 2]) for i in (1, 3, 5)]
    assert [part.columns for part in table.parts(len, 0)] == [(columns[0], column) for column in columns[1:]]
    plain = Table("p", (Column("a"),), (("1",),))
    assert [(part.columns, part.rows) for part in plain.parts(len, 0)] == [(plain.columns, plain.rows)]


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """carzero and kad on a dataset read by the reader vindr, kad with stand-in weights."""
    details = {"reader": "vindr", "title": "VinDr-CXR", "findings": VINDR}
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for model, weights in (("carzero", "published"), ("kad", "stand-in"), ("ours", "published")):
            rows = other_answers(random_rows(7), len(model))
            for row in rows:
                row.finding = VINDR[CLASSES.index(row.finding)]
            add_cell(made, f"{model}-224", "lungs", rows, weights, model_family=model, **details)
    return tmp_path / "run"


def test_the_papers_cells_stand_beside_ones_own(published: Path) -> None:
    _, tables, markdown = report(published)
    of_paper = paper()
    table = tables["Table 1: grounding"]
    rows = {row[0]: row for row in table.rows}
    point = rows["carzero-224"][1]
    printed = of_paper.table1["carzero", "vindr", "pointing"]
    assert isinstance(point, Cell) and point.paper == printed.digits == "39.07"
    assert not point.difference, "of some pairs of the paper"
    standin = rows["kad-224"][2]
    assert isinstance(standin, Cell) and (standin.paper, standin.difference) == ("18.55", "")
    ours, fitted = rows["ours-224"][1], rows["carzero-224"][3]
    assert isinstance(ours, Cell) and ours.paper == "" and isinstance(fitted, Cell) and fitted.paper == ""
    assert "paper 39.07" in markdown
    assert any("kad-224 on VinDr-CXR, as the weights are stand-in, " in note for note in table.notes)


def test_tables_2_to_5_carry_the_papers_cells_and_their_flags(published: Path) -> None:
    _, tables, _ = report(published)
    table = tables["VinDr-CXR: pointing per class (the paper's Table 2)"]
    assert [column.title for column in table.columns] == ["model", "Mean", *VINDR[:2]]
    rows = {row[0]: row for row in table.rows}
    cells = rows["carzero-224"][1:]
    assert [cell.paper for cell in cells if isinstance(cell, Cell)] == ["39.07\u2020", "18.52\u2020", "51.06\u2020"]
    flags = [note for note in table.notes if note.startswith("\u2020")]
    assert len(flags) == 3 and any("Other lesion: repaired" in flag and "reads 51.06" in flag for flag in flags)
    lines = list(csv.DictReader(io.StringIO((published / "report" / "paper.csv").read_text())))
    lesion = next(line for line in lines if line["model"] == "carzero-224" and line["class"] == "Other lesion")
    assert (lesion["paper_percent"], lesion["paper_pairs"]) == ("18.52", "81") and "repaired" in lesion["paper_flag"]
    assert all(not line["difference_points"] and line["why_no_difference"] for line in lines)


def test_a_part_of_a_dataset_has_no_difference(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({"datasets": {"one": {"reader": "rsna"}}})
        add_cell(made, "carzero", "one", random_rows(1), "published", 30)
    _, tables, _ = report(tmp_path / "run", Choices(replicates=0))
    point = tables["Table 1: grounding"].rows[-1][1]
    assert isinstance(point, Cell) and (point.paper, point.difference) == ("83.66", "")


def test_best_values_are_marked_in_every_column(published: Path) -> None:
    data, tables, _ = report(published)
    rows = tables["Table 1: grounding"].rows[-3:]  # below those of n and of the floor
    for place, source, field in [
        (1, "grounding", "pointing"),
        (2, "grounding", "dice_best"),
        (3, "cross_fitted", "dice_best"),
    ]:
        values = [cell[source]["macro"][field] for cell in data["cells"]]
        found = [row[place].mark for row in rows if isinstance(row[place], Cell)]  # type: ignore[union-attr]
        assert found[values.index(max(values))] == "best" and sorted(found) == ["", "best", "second"]
    delta = [row[-1].mark for row in rows if isinstance(row[-1], Cell)]
    assert delta == ["", "", ""], "more or less delta is no better"
