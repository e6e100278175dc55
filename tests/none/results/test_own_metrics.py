"""A metric of a user has the values, intervals and tests of the project's own number that it repeats."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb
from box_world import answers, command, evaluate, make_box_data
from doc_blocks import blocks
from numpy.typing import NDArray
from study_world import make_runs, pairs_of, stored
from xbench_fast.runtime.reporting.tables.metric_names import METRICS

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
def stops(hit):
    raise SystemExit("two\\nlines")
def drawn(map, mask):
    print("seen")
    above = map >= 0.5
    return 2 * (above & mask).sum() / (above.sum() + mask.sum())
def counted(map, mask, area, overlap):
    above = [map >= level / 100 for level in range(101)]
    return [a.sum() for a in above] == [*area] and [(a & mask).sum() for a in above] == [*overlap]
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
        ("mine", "stops", r"raised SystemExit \(two lines\) in \S+m.py, line 19,"),
        ("mine", "drawn", "takes an argument 'map', which needs maps = true"),
        ("pointing", "hits", "the project has a number"),
        ("Mine", "hits", "small letters"),
    ],
)
def test_bad_input_is_one_sentence(run: Path, file: Path, name: str, function: str, words: str) -> None:
    with pytest.raises(xb.XBenchError, match=words) as raised:
        xb.load_run(run).table(metrics={name: f"{file}:{function}"}, replicates=0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"function": "m.py:f", "map": True}, "did you mean 'maps'"),
        ({"function": "m.py:f", "maps": 1}, "true or false"),
    ],
)
def test_a_bad_table_is_one_sentence(run: Path, given: dict[str, object], words: str) -> None:
    with pytest.raises(xb.XBenchError, match=words):
        xb.load_run(run).table(metrics={"mine": given}, replicates=0)


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "1 / 0", "raise ValueError('two\\nlines')"])
def test_a_file_that_stops_at_import_is_one_sentence(run: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "m.py").write_text(text)
    with pytest.raises(
        xb.XBenchError, match=r"cannot be imported: (SystemExit|ZeroDivisionError|ValueError)"
    ) as raised:
        xb.load_run(run).table(metrics={"mine": f"{tmp_path / 'm.py'}:f"}, replicates=0)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("protocol", ["default", "medklip"])
def test_maps_are_those_that_were_counted(
    run: Path, file: Path, protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = {"mine": {"function": f"{file}:drawn", "maps": True}}
    table = xb.load_run(run).table("classes", metrics=metrics, replicates=40, protocol=protocol)
    said = capsys.readouterr()
    assert "seen" in said.err and "seen" not in said.out
    columns = ["model", "dataset", "finding", "value", "low", "high", "n"]
    own, built_in = (table[table.metric == name][columns].reset_index(drop=True) for name in ("mine", "dice_fixed"))
    maps = ~built_in.model.str.startswith("baseline")
    assert own[maps].value.notna().any() and own[maps].equals(built_in[maps])
    assert own[~maps].value.isna().all() and built_in[~maps].value.notna().any()
    plain = xb.load_run(run).table("classes", replicates=40, protocol=protocol)
    assert table[table.metric != "mine"].reset_index(drop=True).equals(plain), "nothing else is lost"


def test_every_level_of_a_map_is_that_of_the_counts(run: Path, file: Path) -> None:
    metrics = {"mine": {"function": f"{file}:counted", "maps": True}}
    table = xb.load_run(run).table(metrics=metrics, replicates=0)
    assert {*table[(table.metric == "mine") & table.value.notna()].value} == {1.0}


def test_the_page_says_what_is_so(run: Path, root: Path, tmp_path: Path) -> None:
    code, config = (block.text for block in blocks(root, "docs/metrics.md") if block.language in ("python", "toml"))
    (tmp_path / "metrics.py").write_text(code)
    (tmp_path / "xbench.toml").write_text(config)
    options = ["--config", tmp_path / "xbench.toml", "--out", tmp_path, "--no-page", "--quiet", "--replicates", 0]
    assert command("report", run, *options) == 0
    with (tmp_path / "classes.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["model"] == "a" and row["dataset"] == "coco"]
    pairs = pairs_of(stored(run, "a", "coco"))
    for row in rows:
        shares = [pair["overlap"][50] / np.unpackbits(bits(pair)).sum() for pair in pairs[row["class"]]]
        assert float(row["my_recall_percent"]) == pytest.approx(100 * np.mean(shares), abs=1e-6)
        assert 0 < float(row["my_inside_percent"]) < 100
    assert len(rows) == len(pairs) > 1


def bits(pair: dict[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(pair["region"], np.uint8)


def test_columns_and_notes_of_own_metrics(
    run: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, out = tmp_path / "own.toml", tmp_path / "out"
    config.write_text(f"[metrics.mine]\nfunction = '{file}:drawn'\nmaps = true\n")
    options = ["--config", config, "--out", out, "--replicates", 40, "--no-page", "--quiet"]
    assert command("report", run, *options, "--column", "mine", "--json", "-") == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == json.loads((out / "report.json").read_text()) and "seen" in said.err
    first = (out / "tables.md").read_text().split("\n## ")[1]
    head, _, *body = [line for line in first.split("\n") if line.startswith("|")]
    assert "mine |" in head and "Dice" not in head
    assert [line.count("n/a (no maps)") for line in body if "baseline" in line] == [2]
    assert command("report", run, *options, "--column", "mines") == 2


def test_boxes_have_no_maps(file: Path, tmp_path: Path) -> None:
    data = make_box_data(tmp_path / "data")
    answers(data, tmp_path / "mine.jsonl")
    assert evaluate(data, "--model", f"boxes:{tmp_path / 'mine.jsonl'}") == 0
    table = xb.load_run(tmp_path / "run").table(metrics={"mine": {"function": f"{file}:drawn", "maps": True}})
    values = table.groupby("metric").value
    assert values.count()["mine"] == 0 < values.count()["dice_fixed"]


def test_a_mistyped_number_of_the_project_is_none_of_a_user() -> None:
    with pytest.raises(KeyError):
        METRICS["dice_bset"]


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
