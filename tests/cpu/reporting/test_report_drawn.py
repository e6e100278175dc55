"""RUN/report/: what is written when figures and the page are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_counts import add_cell, random_rows
from xbench_fast.engines.errors import DataError, RunError
from xbench_fast.runtime.reporting.gallery import assembly
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory

pytest.importorskip("matplotlib", reason="figures need matplotlib")
pytest.importorskip("jinja2", reason="the page needs Jinja2")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1))
        add_cell(made, "mavl", "one", random_rows(2))
    return tmp_path / "run"


def files(run: Path) -> list[str]:
    return sorted(path.relative_to(run / "report").as_posix() for path in (run / "report").rglob("*") if path.is_file())


def test_a_whole_report(run: Path) -> None:
    (run / "report" / "figures").mkdir(parents=True)
    for kind in ("pdf", "svg", "png"):
        (run / "report" / "figures" / f"figure-9-old.{kind}").write_text("of an earlier report")
    said: list[str] = []
    written = write_report(make_report(run, Choices(replicates=40)), say=said.append)
    names = [path.relative_to(run / "report").as_posix() for path in written]
    assert names[0] == "index.html" and sorted(names) == files(run) and said == []
    drawn = [name for name in names if name.startswith("figures/")]
    assert {Path(name).suffix for name in drawn} == {".pdf", ".svg", ".png"} and len(drawn) >= 12
    page = (run / "report" / "index.html").read_text()
    for text in (
        "Table 1: grounding",
        "Differences between models: The one",
        "Coverage",
        "40 resamples of the patients",
    ):
        assert text in page


def test_overlays_that_cannot_be_made_do_not_lose_the_page(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (RunError("The maps are gone."), DataError("The folder is gone.")):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(assembly, "make_gallery", fail)
        write_report(make_report(run, Choices(replicates=0)))
        assert str(error) in (run / "report" / "index.html").read_text()


def test_a_report_without_a_page_leaves_the_page_of_before_and_says_so(run: Path) -> None:
    write_report(make_report(run, Choices(replicates=0)))
    folder, said = run / "report", []
    before = {path: path.read_bytes() for path in (folder / "index.html", *(folder / "figures").iterdir())}
    write_report(make_report(run, Choices(replicates=0, protocol="paper")), page=False, say=said.append)
    assert {path: path.read_bytes() for path in before} == before and len(before) > 6
    assert len(said) == 1 and said[0].startswith(f"index.html and figures in {folder} are of an earlier report")
    write_report(make_report(run, Choices(replicates=0)), out=run / "other", page=False, say=said.append)
    assert len(said) == 1
