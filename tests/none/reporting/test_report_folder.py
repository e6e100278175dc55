"""RUN/report/: what is written when drawing is possible and when it is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stored_counts import add_cell, random_rows
from test_report import FILES
from xbench_fast.engines.errors import DataError, RunError
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.reporting.gallery import build
from xbench_fast.runtime.reporting.report import make_report, write_report
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
    assert left.value.code == 0 and files(run) == FILES
    lines = shown.err.splitlines()
    assert len(lines) == 2 and all("install xbench-fast[report]" in line for line in lines)
    told = [Path(line.removeprefix("written: ")) for line in shown.out.splitlines()]
    assert sorted(path.name for path in told) == FILES and all(path.is_file() for path in told)


def test_a_whole_report(run: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    pytest.importorskip("jinja2", reason="the page needs Jinja2")
    (run / "report" / "figures").mkdir(parents=True)
    (run / "report" / "figures" / "figure-9-old.svg").write_text("of an earlier report")
    said: list[str] = []
    written = write_report(make_report(run, Choices(replicates=10)), say=said.append)
    names = [path.relative_to(run / "report").as_posix() for path in written]
    assert names[0] == "index.html" and sorted(names) == files(run) and said == []
    drawn = [name for name in names if name.startswith("figures/")]
    assert {Path(name).suffix for name in drawn} == {".svg", ".png"} and len(drawn) >= 6
    page = (run / "report" / "index.html").read_text()
    for text in (
        "Table 1: grounding",
        "Differences between models: The one",
        "Coverage",
        "10 resamples of the patients",
    ):
        assert text in page


def test_overlays_that_cannot_be_made_do_not_lose_the_page(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    pytest.importorskip("jinja2", reason="the page needs Jinja2")
    for error in (RunError("The maps are gone."), DataError("The folder is gone.")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(build, "make_gallery", fail)
        write_report(make_report(run, Choices(replicates=0)))
        assert str(error) in (run / "report" / "index.html").read_text()


def test_a_report_without_a_page_leaves_no_page_of_before(run: Path) -> None:
    """It would show other numbers than the tables beside it."""
    write_report(make_report(run, Choices(replicates=0)))
    folder = run / "report"
    assert (folder / "index.html").exists() and list((folder / "figures").iterdir())
    write_report(make_report(run, Choices(replicates=0, protocol="paper")), page=False)
    assert not (folder / "index.html").exists() and not list((folder / "figures").iterdir())
    assert (folder / "tables.md").exists()


def test_a_disk_that_refuses_is_one_sentence(run: Path) -> None:
    made = make_report(run, Choices(replicates=0))
    (run / "report").write_text("a file in the way")
    with pytest.raises(RunError, match="cannot be written"):
        write_report(made, page=False)
