"""What of a run a report shows: models and datasets in a chosen order, under their printed names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_counts import add_cell, other_answers, random_rows
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.reporting.presentation import Presentation, parse_columns, parse_names
from xbench_fast.runtime.reporting.report import Report, make_report, write_report
from xbench_fast.runtime.reporting.tables.table import cell_of
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("empty_drawings")


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
    names = [cell_of(row[0]).text for row in table.rows]
    assert [name for name in names if not name.startswith(("n pairs", "all-ones"))] == [
        "toy",
        "mine",
    ]
    assert table.groups == ["The two", "The one", "mean of datasets"]
    assert found.facts["models shown"] == "toy, mine" and found.facts["datasets shown"] == "two, one"


def test_means_and_ranks_are_of_what_is_shown(run: Path) -> None:
    """toy has a mean where the other dataset is not shown; where toy is not shown, its other pairs are not said."""

    def means(found: Report) -> dict[str, str]:
        table = found.tables[0]
        at = next(i for i, column in enumerate(table.columns) if column.group == table.groups[-1])
        return {cell_of(row[0]).text: cell_of(row[at]).text for row in table.rows}

    assert means(shown(run))["toy"] == "-"
    alone = shown(run, datasets=("one",))
    assert alone.tables[0].groups == ["The one"], "a mean of datasets needs two"
    assert means(alone)["toy"] != "-" and any("not ranked" in note for note in alone.tables[0].notes)
    two = shown(run, models=("mine", "kad-224"))
    assert not any("not ranked" in note or "toy" in note for note in two.tables[0].notes)
    marks = [cell_of(row[1]).mark for row in two.tables[0].rows[-2:]]
    assert sorted(marks) == ["", "best"]
    assert {item.family for item in two.blocks[0][1].numbers if item.field == "auc"} == {1}
    three = shown(run, models=("also", "mine", "kad-224"))
    assert {i.family for i in three.blocks[0][1].numbers if (i.field, i.dataset) == ("auc", "one")} == {3}


def test_printed_names_stand_everywhere(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "report",
                str(run),
                "--no-page",
                "--replicates",
                "0",
                "--name",
                "kad-224=KAD",
                "--name",
                "toy=Toy, ours",
                "--name",
                "one=First",
            ]
        )
    assert ended.value.code == 0
    folder = run / "report"
    texts = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
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
        ({"models": ("kad",)}, "--model: the run has no model 'kad': did you mean 'kad-224'?"),
        ({"datasets": ("three",)}, "--dataset: the run has no dataset 'three'"),
        ({"models": ("mine", "toy"), "datasets": ("two",)}, "--model: the run has nothing of toy on two"),
        ({"names": {"kad": "KAD"}}, "--name: the run has no model or dataset 'kad': did you mean 'kad-224'?"),
        ({"names": {"kad-224": "mine"}}, "--name gives two models the name 'mine'"),
    ],
)
def test_a_wrong_name_is_said(run: Path, chosen: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        shown(run, **chosen)


def test_two_models_may_exchange_their_names(run: Path) -> None:
    found = shown(run, names={"kad-224": "mine", "mine": "kad-224"})
    assert found.results.models == ("mine", "kad-224", "toy", "also")
    assert found.results.cells["mine", "one"].family == "kad-224"


def test_printed_names_are_read() -> None:
    assert parse_names(["a=A", "b=B, b", " c = C=c"]) == {"a": "A", "b": "B, b", "c": "C=c"} and parse_names(()) == {}
    for wrong in ("a", "=A", "a=", "a= "):
        with pytest.raises(ConfigError, match="not of the form NAME=PRINTED"):
            parse_names([wrong])


@pytest.fixture
def paper_run(tmp_path: Path) -> Path:
    """Two models on RSNA, one of the family kad, and on a dataset that the paper does not have."""
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for place, (model, family) in enumerate((("kad-224", "kad"), ("mine", "own"))):
            add_cell(made, model, "lungs", other_answers(random_rows(1), place), reader="rsna", model_family=family)
            add_cell(made, model, "other", other_answers(random_rows(2), place), reader="coco", model_family=family)
    return tmp_path / "run"


def cells(found: Report, table: int = 0) -> dict[str, list[str]]:
    return {cell_of(row[0]).text: [cell_of(item).text for item in row[1:]] for row in found.tables[table].rows}


def test_rows_of_the_paper_are_marked_and_not_ranked(paper_run: Path) -> None:
    found = shown(
        paper_run,
        models=("paper:clip", "mine", "paper"),
        columns=("pointing", "dice_best", "iou_best"),
        names={"paper:clip": "CLIP, printed"},
    )
    table, rows = found.tables[0], cells(found)
    others = ("BiomedCLIP", "MedKLIP", "KAD", "MAVL", "CARZero", "DeViDe")
    assert list(rows)[2:] == ["CLIP, printed\u2021", "mine", *(f"{name}\u2021" for name in others)]
    assert rows["CLIP, printed\u2021"] == ["7.39", "20.20", "11.97", "-", "-", "-"]
    assert rows["MAVL\u2021"][1] == "20.14\u2020", "with its known problem"
    assert any(note.startswith("\u2021 as XBench (arXiv 2510.19599) prints it") for note in table.notes)
    assert not any(cell_of(item).mark for row in table.rows for item in row if "\u2021" in cell_of(row[0]).text)
    assert "\u2020 MAVL, The lungs, Dice*: below the all-ones mask" in table.notes
    assert "KAD\u2021" not in cells(shown(paper_run, models=("kad-224", "paper"))), "the run has it"
    assert list(cells(shown(paper_run, models=("paper",))))[2:4] == ["CLIP\u2021", "BiomedCLIP\u2021"]


def test_a_printed_row_needs_a_number(paper_run: Path) -> None:
    found = shown(paper_run, models=("paper:clip", "mine"), datasets=("other",))
    assert not any("\u2021" in cell_of(row[0]).text for table in found.tables for row in table.rows)
    assert not any("\u2021" in note for table in found.tables for note in table.notes)


def test_the_papers_numbers_beside_ones_own_are_a_column(paper_run: Path) -> None:
    def beside(*columns: str) -> set[str]:
        found = shown(paper_run, columns=columns)
        return {cell_of(item).paper for row in found.tables[0].rows for item in row} - {""}

    assert "70.11" in beside() and beside("pointing", "paper") == {"70.11"} and beside("pointing") == set()
    notes = shown(paper_run, columns=("pointing",)).tables[0].notes
    assert not any("paper" in note for note in notes)


def test_chosen_numbers_stand_in_every_form(paper_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = paper_run.parent / "for the paper"
    given = (
        "--out",
        str(folder),
        "--model",
        "paper:kad",
        "--model",
        "mine",
        "--column",
        "iou",
        "--column",
        "point",
        "--intervals",
        "inline",
        "--replicates",
        "20",
    )
    with pytest.raises(SystemExit) as ended:
        main(["report", str(paper_run), "--no-page", "--name", "mine=Ours_1", *given])
    assert ended.value.code == 0
    assert not (paper_run / "report").exists()
    markdown, latex = (folder / "tables.md").read_text(), (folder / "latex" / "table1.tex").read_text()
    assert "| model | The lungs: IoU\\* | The lungs: Point | The other: IoU\\* |" in markdown
    assert "| KAD\u2021 | 28.05 | 70.11 | - | - |" in markdown
    assert "model & IoU* & Point & IoU* & Point" in latex and "KAD$^\\ddagger$ & 28.05 & 70.11 & -- & --" in latex
    assert "Ours\\_1 &" in latex and "mean of datasets" not in latex
    out = capsys.readouterr().out
    assert "Ours_1" in out and "mean of datasets" not in out.split("more tables")[0].split("\n\n*")[0]


def test_tables_of_an_earlier_report_go_and_other_files_stay(paper_run: Path) -> None:
    folder = paper_run / "report" / "latex"
    write_report(shown(paper_run), page=False)
    (folder / "mine.tex").write_text("\\section{Of the author}")
    assert (folder / "pointing-other.tex").exists()
    write_report(shown(paper_run, datasets=("lungs",)), page=False)
    assert not (folder / "pointing-other.tex").exists() and (folder / "mine.tex").exists()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"columns": ("dise_best",)}, "--column: there is no number 'dise_best': did you mean 'dice_best'?"),
        ({"models": ("paper:kadd",)}, "--model: the paper has no model 'paper:kadd': did you mean 'paper:kad'?"),
    ],
)
def test_a_wrong_number_or_row_is_said(chosen: dict[str, tuple[str, ...]], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        Presentation(**chosen)  # type: ignore[arg-type]


def test_numbers_are_named_by_key_or_heading() -> None:
    assert parse_columns(("point", "Dice", "dice-cross-fitted", "mean", "point")) == (
        "pointing",
        "dice_best",
        "dice_cross_fitted",
        "mean",
    )
