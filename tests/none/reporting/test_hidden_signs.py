"""Names with control characters, marks of direction and formulas: no output sends them to what obeys them."""

from __future__ import annotations

import csv
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from result_rows import ResultRow
from stored_counts import add_cell, random_rows
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.reporting.presentation import Presentation
from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.trust.card.making import with_cards

CASES = Path(__file__).parents[2] / "cases"
HIDDEN = ("\x1b", "\x07", "\x7f", "\x9b", "\r", "\u2028", "\u202e", "\u2066", "\u200f")
NAME = "\x1b]52;c;cHduZWQ=\x1b\\|<b>" + "".join(HIDDEN) + "Mass"


def command(*words: object, status: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, words)))
    assert ended.value.code == status


def hidden(text: str) -> list[str]:
    return [sign for sign in HIDDEN if sign in text]


def hostile(rows: list[ResultRow]) -> list[ResultRow]:
    for row in rows:
        row.case_id = f"{row.case_id}\x1b[2J\u202e"
    return rows


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    with RunDirectory(path) as made:
        made.begin({"datasets": {}})
        rows = hostile(random_rows(1))
        findings = list(dict.fromkeys(row.finding for row in rows))
        for row in rows:
            row.finding = NAME if row.finding == findings[0] else row.finding
        told = {"findings": [NAME, *findings[1:]], "title": f"The {NAME}", "reader": "coco"}
        for model in ("kad", f"clip{NAME}"):
            add_cell(made, model, f"d{NAME}", rows, **told)
        made.set_cell(f"gone{NAME}", f"d{NAME}", "failed", reason=f"it broke {NAME}")
    return path


def test_no_file_and_no_line_of_a_report_holds_them(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command("report", run, "--full", "--card", "--replicates", 40)
    said = capfd.readouterr()
    assert not hidden(said.out + said.err) and "\\u202e" in said.out
    kinds = {".md", ".tex", ".csv", ".json", ".html"}
    texts = [path for path in (run / "report").rglob("*") if path.suffix in (*kinds, ".svg")]
    assert {path.suffix for path in texts} >= kinds
    for path in texts:
        assert not hidden(path.read_bytes().decode()), path
    told = json.loads((run / "report" / "report.json").read_text())
    assert f"d{NAME}" in {cell["dataset"] for cell in told["cells"]}, "JSON keeps the names as they are"


def test_tables_stay_whole(run: Path) -> None:
    write_report(make_report(run, Choices(replicates=0)), page=False)
    lines = (run / "report" / "tables.md").read_text().split("\n")
    for above, line in pairwise(lines):
        if above.startswith("| ") and line.startswith("| "):
            assert above.replace("\\|", "").count("|") == line.replace("\\|", "").count("|")
    assert "<b>" not in (run / "report" / "tables.md").read_text()


def test_a_study_and_a_run_file_hold_none(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command("study", "strata", run, "--replicates", 40)
    said = capfd.readouterr()
    assert not hidden(said.out + said.err)
    for path in [*(run / "studies" / "strata").glob("*.[mcj]*"), run / "run.json"]:
        assert not hidden(path.read_bytes().decode()), path


def test_errors_and_wrong_usage_show_them(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command("report", tmp_path / NAME.replace("/", ""), status=1)
    command("report", tmp_path, f"--{NAME}", status=2)
    said = capfd.readouterr()
    assert not hidden(said.out + said.err) and "\\x1b" in said.err and "\\u202e" in said.err


def test_the_audit_of_a_dataset_shows_names_whole(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    folder = CASES / "terminal-escapes-in-names"
    command("datasets", "check", "d", "--data", f"d={folder}", "--data-option", "d.reader=coco")
    said = capfd.readouterr().out
    assert not hidden(said) and "\\x1b]52;c;cHduZWQ=\\x1b\\\\x1b[2JMass" in said and "a\\u202eb" in said


def test_texts_in_csv_are_no_formulas_and_numbers_stay(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(CASES / "csv-formulas" / "d", tmp_path / "d")
    data = ("--data", f"d={tmp_path / 'd'}", "--data-option", "d.reader=csv")
    command("eval", "--model", "baseline:center", "--dataset", "d", *data, "--no-cache", "--out", tmp_path / "run")
    report = make_report(tmp_path / "run", Choices(replicates=40))
    write_report(with_cards(report, [], page=False), page=False)
    texts = {}
    for raw in (False, True):
        write_report(make_report(tmp_path / "run", Choices(replicates=40), Presentation(raw_csv=raw)), page=False)
        file = tmp_path / "run" / "report" / "classes.csv"
        texts[raw] = {row["class"]: row for row in csv.DictReader(file.read_text().splitlines())}
    assert set(texts[False]) == {"'=1+1", "'@SUM(1)", "'+2", "'-3", "Mass"}
    assert set(texts[True]) == {"=1+1", "@SUM(1)", "+2", "-3", "Mass"}
    for name, row in texts[True].items():
        other = next(each for key, each in texts[False].items() if key.removeprefix("'") == name)
        assert {key: value for key, value in other.items() if key != "class"} == {
            key: value for key, value in row.items() if key != "class"
        }
        assert float(row["delta_dice_points"]) == float(other["delta_dice_points"])
    capfd.readouterr()
    command("study", "strata", tmp_path / "run", "--replicates", 40, "--raw-csv", "--quiet")
