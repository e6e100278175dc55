"""RUN/report/: what is written where nothing can be drawn, or nothing be written."""

from __future__ import annotations

import errno
import html
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from stored_counts import add_cell, random_rows
from written_report import FILES
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.evaluation import progress
from xbench_fast.runtime.evaluation.progress import SilentProgress
from xbench_fast.runtime.reporting.presentation import Presentation, parse_columns
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.reporting.tables.markdown_csv import markdown_text
from xbench_fast.runtime.reporting.tables.table import MEAN_OF_DATASETS, Column, Table
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1))
        add_cell(made, "mavl", "one", random_rows(2))
    return tmp_path / "run"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment without the packages of the extra `report`."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("matplotlib", "jinja2")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("matplotlib", "jinja2"):
        monkeypatch.setitem(sys.modules, name, None)
    yield


def files(run: Path) -> list[str]:
    return sorted(path.relative_to(run / "report").as_posix() for path in (run / "report").rglob("*") if path.is_file())


@pytest.mark.usefixtures("bare")
def test_without_the_extra_the_tables_are_written_and_it_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["report", str(run), "--quiet", "--replicates", "0"])
    shown = capsys.readouterr()
    own = [name for name in files(run) if not name.startswith("latex/")]
    assert left.value.code == 0 and own == FILES
    lines = shown.err.splitlines()
    assert len(lines) == 2 and all("install xbench-fast[report]" in line for line in lines)
    *told, last = [Path(line.removeprefix("written: ")) for line in shown.out.splitlines()]
    count = len(list((run / "report" / "latex").iterdir()))
    assert str(last) == f"{run / 'report' / 'latex'} ({count} files)" and count > 5
    assert sorted(path.name for path in told) == FILES and all(path.is_file() for path in told)


def test_a_disk_that_refuses_is_one_sentence(run: Path) -> None:
    made = make_report(run, Choices(replicates=0))
    (run / "report").write_text("a file in the way")
    with pytest.raises(RunError, match="cannot be written"):
        write_report(made, page=False)


def test_a_report_without_a_finished_cell_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    with RunDirectory(path) as made:
        made.begin({})
        made.give_up("kad", "one", "failed", "the folder of images is gone")
        made.set_cell("mavl", "one", "running")
    with pytest.raises(SystemExit) as left:
        main(["report", str(path), "--no-page"])
    shown = capsys.readouterr()
    assert left.value.code == 1 and not shown.out and not (path / "report").exists()
    assert shown.err.startswith("Error: ") and "has no finished cell to report" in shown.err
    assert "kad on one (failed: the folder of images is gone); mavl on one (not finished); " in shown.err
    assert shown.err.rstrip().endswith("run the same eval command again.")


def test_cells_that_are_not_finished_are_named_above_table_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunDirectory(run) as made:
        made.give_up("kad", "two", "failed", "no such file.")
    with pytest.raises(SystemExit) as left:
        main(["report", str(run), "--no-page", "--replicates", "0"])
    shown = capsys.readouterr().out
    assert left.value.code == 0 and "report.json" in " ".join(files(run))
    line = "2 of 3 cells finished; not finished: kad on two (failed: no such file)\n"
    assert shown.index(line) < shown.index("Table 1")
    with pytest.raises(SystemExit):
        main(["report", str(run), "--no-page", "--replicates", "0", "--dataset", "one"])
    assert "not finished" not in capsys.readouterr().out


def test_a_folder_that_may_not_be_written_names_the_option(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read-only file system, which also root cannot write to."""
    made = Path.mkdir

    def refused(path: Path, *arguments: Any, **options: Any) -> None:
        if run in (path, *path.parents):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        made(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refused)
    lines = {
        ("report", run, "--quiet", "--no-page"): f"{run}/report/",
        ("study", "thresholds", run, "--quiet", "--replicates", 10): f"{run}/studies/thresholds/",
        (
            "eval",
            "--model",
            "baseline:ones",
            "--data",
            f"coco={run}",
            "--out",
            run,
        ): f"The run directory {run} cannot be",
    }
    for line, place in lines.items():
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in line])
        told = capsys.readouterr().err
        assert ended.value.code == 1 and place in told and "Read-only file system; choose another " in told, told
        assert "--out" in told and len(told.splitlines()) == 1
    with pytest.raises(SystemExit):
        main(["report", str(run), "--quiet", "--no-page", "--out", str(run.parent / "elsewhere")])
    assert (run.parent / "elsewhere" / "tables.md").exists()
    with pytest.raises(SystemExit):
        main(["report", str(run), "--quiet", "--no-page", "--out", f"{run.parent}/e", "--json", f"{run}/x/r.json"])
    assert "choose another place with --json" in capsys.readouterr().err


def test_a_report_says_that_an_evaluation_runs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["report", str(run), "--no-page", "--replicates", "0"]
    study = ["study", "thresholds", str(run), "--replicates", "10"]
    sentence = f"An evaluation is writing to {run} now: what it has not finished is missing"
    with RunDirectory(run) as writing:
        writing.begin({})
        writing.set_cell("kad", "two", "running")
        for command in (line, study, ["compare", str(run), str(run), "--replicates", "0"]):
            with pytest.raises(SystemExit) as ended:
                main(command)
            told = capsys.readouterr()
            assert not ended.value.code and (told.out + told.err).count(sentence) == 1, command
        assert "- evaluation: An evaluation is writing to" in (run / "report" / "tables.md").read_text()
    for command in (line, study):
        with pytest.raises(SystemExit):
            main(command)
        told = capsys.readouterr()
        assert "is writing" not in told.out + told.err
    assert "is writing" not in (run / "report" / "tables.md").read_text()


def test_without_a_finished_cell_the_report_says_that_an_evaluation_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunDirectory(tmp_path / "new") as writing:
        writing.begin({})
        writing.set_cell("kad", "two", "running")
        with pytest.raises(SystemExit) as ended:
            main(["report", str(tmp_path / "new")])
    told = capsys.readouterr().err
    assert ended.value.code == 1 and "no finished cell to report yet: kad on two (being evaluated now). An ev" in told


def test_the_progress_of_a_report_is_shown(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, int, int]] = []

    class Recorded(SilentProgress):
        @contextmanager
        def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Callable[[int], None]]:
            counts: list[int] = []
            yield counts.append
            steps.append((title, total, sum(counts)))

    monkeypatch.setattr(progress, "progress_for", lambda console: Recorded())
    with pytest.raises(SystemExit):
        main(["report", str(run), "--no-page", "--quiet", "--replicates", "0"])
    assert steps == [("numbers of the report", 2, 2), ("tables, figures and page of the report", 1, 1)]


def test_a_mean_of_datasets_needs_two_datasets(run: Path) -> None:
    """Of one dataset it would repeat each number; delta Dice stands there alone, so it moves to the dataset."""
    choices = Choices(replicates=0)
    for table in make_report(run, choices).tables:
        assert MEAN_OF_DATASETS not in table.groups, table.title
        assert not any("over datasets" in note for note in table.notes), table.title
    one = next(table for table in make_report(run, choices).tables if table.first)
    assert [column.group for column in one.columns if column.key == "delta_dice"] == one.groups and len(one.groups) == 1
    with RunDirectory(run) as made:
        made.begin({})
        add_cell(made, "kad", "two", random_rows(3))
    two = next(table for table in make_report(run, choices).tables if table.first)
    assert two.groups[-1] == MEAN_OF_DATASETS and len(two.groups) == 3
    assert [column.group for column in two.columns if column.key == "delta_dice"] == [MEAN_OF_DATASETS]


@pytest.mark.parametrize(
    ("columns", "there"),
    [
        (("point",), set[str]()),
        (("point", "dice"), {"* in-sample"}),
        (("point", "dice_cross_fitted"), {"cross-fitted"}),
        (("delta_dice",), {"* in-sample", "delta Dice:"}),
        ((), {"* in-sample", "cross-fitted", "delta Dice:"}),
    ],
)
def test_notes_are_about_columns_that_are_there(run: Path, columns: tuple[str, ...], there: set[str]) -> None:
    shown = parse_columns(columns)
    made = make_report(run, Choices(replicates=0), Presentation(columns=shown))
    (table,) = (table for table in made.tables if table.first)
    starts = ("* in-sample", "cross-fitted", "delta Dice:")
    assert {start for start in starts for note in (*table.notes, *table.legend) if note.startswith(start)} == there


def test_the_legend_of_table_1_stands_apart_in_every_form(run: Path) -> None:
    """What columns mean never hides what is left out: the page folds it, the others name where it stands."""
    made = make_report(run, Choices(replicates=0))
    (one,) = (table for table in made.tables if table.first)
    assert one.legend and len(one.notes) <= 5 and not set(one.legend) & set(one.notes)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "--replicates", "0", "--quiet"])
    assert not ended.value.code
    folder = run / "report"
    markdown, latex = (folder / "tables.md").read_text(), (folder / "tables.tex").read_text()
    page = (folder / "index.html").read_text()
    assert f'"{one.legend_title}" at the end' in markdown and f"<summary>{one.legend_title}</summary>" in page
    for line in one.legend:
        assert markdown_text(line) in markdown.partition(f"## {one.legend_title}")[2]
        assert f"%   {line}" in latex.splitlines() and html.escape(line, quote=False) in page


def test_a_flag_of_the_paper_stands_where_its_column_does() -> None:
    table = Table(
        "t",
        (Column("model"), Column("Point", "A", "pointing"), Column("Dice*", "A", "dice_best")),
        (("kad", "1", "2"),),
        notes=("\u2020 kad, A, Point: rounded", "\u2020 kad, A, Dice*: other pairs", "\u2020 kad, Mass: swapped"),
    )
    assert table.chosen(["dice_best"]).notes == table.notes[1:]
