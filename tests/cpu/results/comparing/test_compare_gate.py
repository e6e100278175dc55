"""compare as a gate: what conditions mean, what they refuse, and the exit status of the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_counts import add_cell, random_rows
from xbench_fast.engines.errors import ConfigError
from xbench_fast.runtime.cli import main
from xbench_fast.runtime.reporting.comparison.gate import NAMES, Condition, Verdict, parse_condition
from xbench_fast.runtime.results.run_directory import RunDirectory

pytestmark = pytest.mark.usefixtures("empty_drawings")


class Ran:
    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["compare", *map(str, arguments)])
        self.status = caught.value.code
        self.out, self.err = capsys.readouterr()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """In run B one hit is lost, one logit moved by 0.5 and one case is gone."""
    for name in "ab":
        rows = random_rows(1)
        if name == "b":
            lost = next(row for row in rows if row.hit)
            lost.hit = False
            moved = next(row for row in rows if row.logit is not None)
            moved.logit = np.float32(moved.logit + 0.5)
            rows = [row for row in rows if row.case_id != "c29"]
        with RunDirectory(tmp_path / name) as run:
            run.begin({})
            add_cell(run, "kad", "one", rows)
    return tmp_path / "a", tmp_path / "b"


@given(st.sampled_from(list(NAMES)), st.sampled_from([">", ">=", "<", "<=", "==", "!="]), st.floats(-1e6, 1e6))
@settings(max_examples=60)
def test_a_condition_is_read_as_it_is_written(name: str, sign: str, limit: float) -> None:
    for text in (f"{name} {sign} {limit!r}", f"  {name}{sign}{limit!r} "):
        assert parse_condition(text) == Condition(name, sign, limit)


@given(st.text(max_size=40))
@settings(max_examples=100)
def test_any_other_text_is_refused_in_a_sentence(text: str) -> None:
    try:
        parse_condition(text)
    except ConfigError as error:
        assert "flipped_hits, lost_hits" in str(error)
    else:
        pytest.fail(f"{text!r} is no condition")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flipped_hit > 0", "did you mean 'flipped_hits'"),
        ("flipped_hits > many", "is no condition"),
        ("flipped_hits = 0", "is no condition"),
        ("flipped_hits > 0 or auc_drop > 1", "is no condition"),
        ("__import__('os') > 0", "is no condition"),
        ("flipped_hits > nan", "is no condition"),
        ("flipped_hits > inf", "is no condition"),
        ("", "is no condition"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_condition(text)


def test_a_condition_that_cannot_be_decided_lets_nothing_pass() -> None:
    condition = parse_condition("auc_drop > 5")
    assert Verdict(condition, None).fired and "cannot be decided" in str(Verdict(condition, None))
    assert Verdict(condition, 5.1).fired and not Verdict(condition, 5.0).fired


@pytest.mark.parametrize(
    ("conditions", "status"),
    [
        ([], 0),
        (["flipped_hits > 1"], 0),
        (["flipped_hits > 0"], 1),
        (["lost_hits == 1"], 1),
        (["gained_hits > 0", "flipped_hits > 5"], 0),
        (["flipped_hits > 5", "missing_rows > 0"], 1),
        (["max_logit_change > 0.5"], 0),
        (["max_logit_change >= 0.5"], 1),
        (["pointing_drop > 0"], 1),
        (["dice_best_drop > 0"], 0),
        (["missing_cells > 0", "changed_truth > 0"], 0),
    ],
)
def test_exit_status(
    capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path], conditions: list[str], status: int
) -> None:
    options = [part for text in conditions for part in ("--fail-if", text)]
    ran = Ran(capsys, *runs, "--quiet", "--replicates", 0, *options)
    assert ran.status == status, ran.err
    lines = ran.out.splitlines()
    assert len(lines) == len(conditions) and any(line.startswith("FAIL") for line in lines) == bool(status)


def test_files_are_written_before_the_gate_falls(capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path]) -> None:
    files = ("--json", "out/c.json", "--markdown", "out/c.md")
    ran = Ran(capsys, *runs, "--replicates", 40, "--classes", *files, "--fail-if", "lost_hits > 0")
    assert ran.status == 1 and "FAIL: lost_hits > 0 (lost_hits = 1)" in ran.out
    for title in ("Rows", "Changes", "Changes per finding", "Flipped hits", "Rows that only one run has"):
        assert title in ran.out
    data = json.loads(Path("out/c.json").read_text())
    assert data["gates"] == [{"condition": "lost_hits > 0", "value": 1, "fired": True}]
    assert data["cells"][0]["rows"]["flips"][0]["before"] == 1
    text = Path("out/c.md").read_text()
    assert text.startswith("# Comparison") and "## Flipped hits" in text and "FAIL: lost\\_hits" in text


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (["a"], 2, "Give a second run, or --model twice"),
        (["a", "b", *("--model", "kad") * 3], 2, "--model is given twice at most"),
        (["a", "--model", "kad", "--model", "kad"], 2, "nothing to compare"),
        (["a", "b", "--fail-if", "flips > 0"], 2, "unknown name 'flips'"),
        (["a", "b", "--replicates", "-1"], 2, "--replicates"),
        (["a", "nowhere"], 1, "nowhere is no run directory"),
        (["a", "b", "--model", "clip"], 1, "a has no model 'clip': known are kad"),
        (["a", "b", "--dataset", "two"], 1, "Neither run has a dataset 'two'"),
        (["a", "b", "--json", "a/run.json/x"], 1, "cannot be written"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], runs: tuple[Path, Path], line: list[str], status: int, words: str
) -> None:
    ran = Ran(capsys, *line)
    assert ran.status == status and words in ran.err and "Traceback" not in ran.err


def test_help_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(capsys, "--help")
    assert ran.status == 0 and all(name in ran.out for name in NAMES)
