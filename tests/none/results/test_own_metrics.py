"""A metric of a user has the values, intervals and tests of the project's own number that it repeats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import xbench_fast as xb
from study_world import make_runs

CODE = """
def half(area, overlap, region):
    return 2 * overlap[50] / (area[50] + region)
def hits(hit):
    return hit
def raises(region):
    return 1 / (region - region)
def nan(logit):
    return float("nan")
def more(hit):
    return 1.5
def text(hit):
    return "1"
def wrong(areas):
    return 0
def none():
    return 0
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models and a baseline on two datasets."""
    return make_runs(tmp_path_factory.mktemp("runs")) / "run" / "run"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "m.py"
    path.write_text(CODE)
    return path


def test_a_repeated_number_is_equal_to_the_bit(run: Path, file: Path) -> None:
    table = xb.load_run(run).table("classes", metrics={"mine": f"{file}:half"}, replicates=100)
    columns = ["model", "dataset", "finding", "value", "low", "high", "n"]
    own, built_in = (table[table.metric == name][columns].reset_index(drop=True) for name in ("mine", "dice_fixed"))
    maps = built_in.value.notna()
    assert maps.any()
    assert own[maps].equals(built_in[maps])


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("mine", "raises", "raised ZeroDivisionError"),
        ("mine", "nan", "answered nan"),
        ("mine", "more", "answered 1.5"),
        ("mine", "text", "no number"),
        ("mine", "wrong", "did you mean 'area'"),
        ("mine", "none", "takes no argument"),
        ("mine", "missing", "has no 'missing'"),
        ("pointing", "hits", "the project has a number"),
        ("Mine", "hits", "small letters"),
    ],
)
def test_bad_input_is_one_sentence(run: Path, file: Path, name: str, function: str, words: str) -> None:
    with pytest.raises(xb.XBenchError, match=words) as raised:
        xb.load_run(run).table(metrics={name: f"{file}:{function}"}, replicates=0)
    assert "\n" not in str(raised.value)


def test_a_changed_file_is_computed_again(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    values = []
    for answer in (0.25, 0.5):
        file.write_text(f"def fixed(hit):\n    return {answer}\n")
        table = xb.load_run(run).table(metrics={"mine": f"{file}:fixed"}, replicates=0)
        values.append(set(table[(table.metric == "mine") & table.value.notna()].value))
    assert values == [{0.25}, {0.5}]


def test_paired_tests_are_those_of_the_repeated_number(run: Path, file: Path, tmp_path: Path) -> None:
    xb.report(run, out=tmp_path, metrics={"mine": f"{file}:hits"}, replicates=40)
    found = json.loads((tmp_path / "report.json").read_text())["differences"]
    own, built_in = ([item for item in found if item["field"] == name] for name in ("mine", "pointing"))
    assert own and any(item["p"] is not None for item in own)
    assert [{**item, "field": ""} for item in own] == [{**item, "field": ""} for item in built_in]
