"""What of a run a report shows: models and datasets in a chosen order, under their printed names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_counts import add_cell, other_answers, random_rows
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.reporting.presentation import Presentation, parse_list, parse_names
from xbench_fast.runtime.reporting.report import Report, make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.tables.table import cell_of, plain


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three models; toy lacks the dataset two, and has other pairs than the others on one."""
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad-224", "one", random_rows(1))
        add_cell(made, "kad-224", "two", random_rows(2))
        add_cell(made, "mine", "one", other_answers(random_rows(1), 5))
        add_cell(made, "mine", "two", other_answers(random_rows(2), 6))
        add_cell(made, "toy", "one", random_rows(3))
        add_cell(made, "also", "one", other_answers(random_rows(1), 7))
    return tmp_path / "run"


def shown(path: Path, **chosen: object) -> Report:
    return make_report(path, Choices(replicates=0), Presentation(**chosen))  # type: ignore[arg-type]


def test_models_and_datasets_are_chosen_in_order(run: Path) -> None:
    found = shown(run, models=("toy", "mine"), datasets=("two", "one"))
    table = found.tables[0]
    assert [plain(row[0]) for row in table.rows if not plain(row[0]).startswith(("n pairs", "all-ones"))] == [
        "toy",
        "mine",
    ]
    assert table.groups == ["The two", "The one", "mean of datasets"]
    assert found.facts["models shown"] == "toy, mine" and found.facts["datasets shown"] == "two, one"


def test_means_and_ranks_are_of_what_is_shown(run: Path) -> None:
    """toy has a mean where the other dataset is not shown; where toy is not shown, its other pairs are not said."""

    def means(found: Report) -> dict[str, str]:
        table = found.tables[0]
        at = next(i for i, column in enumerate(table.columns) if column.group == "mean of datasets")
        return {plain(row[0]): cell_of(row[at]).text for row in table.rows}

    assert means(shown(run))["toy"] == "-"
    alone = shown(run, datasets=("one",))
    assert means(alone)["toy"] != "-" and any("not ranked" in note for note in alone.tables[0].notes)
    two = shown(run, models=("mine", "kad-224"))
    assert not any("not ranked" in note or "toy" in note for note in two.tables[0].notes)
    marks = [cell_of(row[1]).mark for row in two.tables[0].rows[-2:]]
    assert sorted(marks) == ["", "best"]
    assert {item.family for item in two.blocks[0].differences.numbers if item.field == "auc"} == {1}
    three = shown(run, models=("also", "mine", "kad-224"))
    assert {i.family for i in three.blocks[0].differences.numbers if (i.field, i.dataset) == ("auc", "one")} == {3}


def test_printed_names_stand_everywhere(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "--no-page", "--replicates", "0", "--names", 'kad-224=KAD,toy="Toy, ours",one=First'])
    assert ended.value.code == 0
    folder = run / "report"
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    for name in ("tables.md", "tables.tex", "table1.csv", "coverage.csv"):
        body = texts[name].rpartition("kad-224;")[2].partition("Provenance")[0]  # the provenance has keys of files
        assert "KAD" in body and "Toy, ours" in body and "kad-224" not in body, name
    assert "First: Point" in texts["tables.md"] and "The one" not in texts["tables.md"]
    told = json.loads(texts["report.json"])
    assert list(told["models"]) == ["KAD", "mine", "Toy, ours", "also"]
    assert told["names"] == {"kad-224": "KAD", "toy": "Toy, ours", "one": "First"}
    assert "KAD is kad-224; Toy, ours is toy; First is one" in texts["tables.md"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"models": ("kad",)}, "--models: the run has no model 'kad': did you mean 'kad-224'?"),
        ({"datasets": ("three",)}, "--datasets: the run has no dataset 'three'"),
        ({"names": {"kad": "KAD"}}, "--names: the run has no model or dataset 'kad': did you mean 'kad-224'?"),
        ({"names": {"kad-224": "mine"}}, "--names gives two models the name 'mine'"),
    ],
)
def test_a_wrong_name_is_said(run: Path, chosen: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        shown(run, **chosen)


def test_two_models_may_exchange_their_names(run: Path) -> None:
    found = shown(run, names={"kad-224": "mine", "mine": "kad-224"})
    assert found.results.models == ("mine", "kad-224", "toy", "also")
    assert found.results.cells["mine", "one"].family == "kad-224"


def test_lists_and_names_are_read() -> None:
    assert parse_list(" a, b,,a ") == ("a", "b") and parse_list(None) == ()
    assert parse_names('a=A,b="B, b", c = C=c') == {"a": "A", "b": "B, b", "c": "C=c"} and parse_names(None) == {}
    for wrong in ("a", "=A", "a=", 'a=""'):
        with pytest.raises(ConfigError, match="not of the form NAME=PRINTED"):
            parse_names(wrong)
