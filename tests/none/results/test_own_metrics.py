"""A metric of a user has the values, intervals and tests of the project's own number that it repeats."""

from __future__ import annotations

import csv
import json
from itertools import product
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
def dice(area, overlap, region):
    return 2 * overlap / (area + region)
def iou(area, overlap, region):
    return (overlap / (area + region - overlap)).tolist()
def cut(map, mask):
    above = [map >= level / 100 for level in range(101)]
    return [2 * (a & mask).sum() / (a.sum() + mask.sum()) for a in above]
def short(area):
    return area[:50] * 0
def ragged(area):
    return [[0], [0, 1]]
def below(area):
    return 0.5 - (area == area[70])
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
        ("pointing", "hits", "there is a number 'pointing' already"),
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
        ({"function": "m.py:f", "levels": "yes"}, "true or false"),
    ],
)
def test_a_bad_table_is_one_sentence(run: Path, given: dict[str, object], words: str) -> None:
    with pytest.raises(xb.XBenchError, match=words):
        xb.load_run(run).table(metrics={"mine": given}, replicates=0)


@pytest.mark.parametrize(
    ("name", "function", "words"),
    [
        ("mine", "short", r"answered array\(\[0, .* not one number for each of the 101 thresholds, for Mass in"),
        ("mine", "ragged", r"answered \[\[0\], \[0, 1\]\], not one number for each"),
        ("mine", "hits", "not one number for each"),
        ("mine", "below", r"answered -0.5 at threshold 0.7, not a number between 0 and 1, for"),
        ("mine", "raises", "raised ZeroDivisionError"),
        ("dice", "dice", "there is a number 'dice_best' already"),
        ("best", "dice", "there is a number 'best_tau' already"),
    ],
)
def test_bad_levels_are_one_sentence(run: Path, file: Path, name: str, function: str, words: str) -> None:
    with pytest.raises(xb.XBenchError, match=words) as raised:
        xb.load_run(run).table(metrics={name: {"function": f"{file}:{function}", "levels": True}}, replicates=0)
    assert "\n" not in str(raised.value)


def test_numbers_of_two_metrics_have_two_names(run: Path, file: Path) -> None:
    levels = {"function": f"{file}:dice", "levels": True}
    with pytest.raises(xb.XBenchError, match=r"\[metrics.a_best\]: there is a number 'a_best' already"):
        xb.load_run(run).table(metrics={"a": levels, "a_best": f"{file}:hits"}, replicates=0)


_PARTS = ("fixed", "best", "cross_fitted")


@pytest.mark.parametrize(
    "choices",
    [
        *({"best": unit} for unit in ("per_class", "per_dataset", "per_model", "per_image", "cross_fit")),
        {"protocol": "medklip"},
        {"protocol": "mavl"},
        {"tau_from": 0.01, "constant": "skip", "mean": "micro", "mean_datasets": "micro"},
    ],
    ids=lambda choices: next(iter(choices.values())),
)
def test_levels_repeat_dice_and_iou(run: Path, file: Path, choices: Any) -> None:
    """Values, intervals, means over datasets, differences and p, to the bit; IoU at its own threshold."""
    metrics = {name: {"function": f"{file}:{name}", "levels": True} for name in ("dice", "iou")}
    metrics = {f"my_{name}": table for name, table in metrics.items()}
    opened, options = xb.load_run(run), {"iou_at": "independent", "replicates": 40, **choices}
    for name in ("grounding", "classes", "differences"):
        table = opened.table(name, metrics=metrics, **options)
        own = table[table.metric.str.startswith("my_")].reset_index(drop=True)
        own["metric"] = own.metric.str.removeprefix("my_")
        built_in = table[table.metric.isin([f"{of}_{part}" for of in ("dice", "iou") for part in _PARTS])]
        keys = ["model", "dataset", "finding", "metric"] + ["other"] * (name == "differences")
        both = own.merge(built_in, on=keys, suffixes=("", "_built_in"))
        assert len(both) and (len(both) == len(own) == len(built_in) or name == "differences")
        for column in [column for column in built_in if column not in keys]:
            assert both[column].equals(both[f"{column}_built_in"].rename(column)), (name, column)
        plain = opened.table(name, **options)
        assert table[~table.metric.str.startswith("my_")].reset_index(drop=True).equals(plain), "nothing else is lost"


def test_levels_of_maps_are_those_of_the_counts(run: Path, file: Path) -> None:
    metrics = {"cut": {"function": f"{file}:cut", "maps": True, "levels": True}}
    table = xb.load_run(run).table("classes", metrics=metrics, replicates=40)
    maps = ~table.model.str.startswith("baseline")
    for part in _PARTS:
        own, built_in = (table.metric == f"{name}_{part}" for name in ("cut", "dice"))
        values = table[own & maps].value.reset_index(drop=True)
        assert values.notna().any() and values.equals(table[built_in & maps].value.reset_index(drop=True))
        assert table[own & ~maps].value.isna().all()


def test_files_show_levels_as_they_show_dice(run: Path, file: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "own.toml", tmp_path / "out"
    config.write_text(f"[metrics.mine]\nfunction = '{file}:dice'\nlevels = true\n")
    options = ["--config", config, "--out", out, "--replicates", 40, "--quiet", "--no-page"]
    assert command("report", run, *options) == 0
    for path in (out / "latex").glob("*.tex"):
        heads = "".join(part.split(r"\midrule")[0] for part in path.read_text().split(r"\toprule")[1:])
        columns = heads.count("mine"), heads.count("mine cross-fitted"), heads.count("mine 0.5")
        expected = {"table1": (6, 3, 0), "thresholds": (3, 0, 3), "differences": (2, 1, 0)}
        assert columns == expected.get(path.stem.partition("-")[0], (0, 0, 0)), (path, heads)
    for name in ("table1.csv", "classes.csv"):
        with (out / name).open(newline="") as stream:
            for row in csv.DictReader(stream):
                for part, end in product(_PARTS, ("percent", "low", "high")):
                    assert row[f"mine_{part}_{end}"] == row[f"dice_{part}_{end}"], name
    found = json.loads((out / "report.json").read_text())
    for cell in found["cells"]:
        for source in ("grounding", "cross_fitted"):
            for row in (cell[source]["macro"], *cell[source]["classes"]):
                assert row["mine_best"] == row["dice_best"] and row["mine_tau"] == row["best_tau"]
        for own in cell["intervals"].values():
            assert all(own.get(f"mine_{part}") == own.get(f"dice_{part}") for part in _PARTS)
    text = (out / "tables.md").read_text()
    table = text.split("\n## ")[1]
    assert "mine\\* " in table and "mine cross-fitted " in table
    assert "metric mine, at its own best threshold and at 0.5" in text
    assert command("report", run, *options, "--column", "mine_best") == 0
    table = (out / "tables.md").read_text().split("\n## ")[1]
    assert "in-sample" in table and "cross-fitted:" not in table


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
        curves = [np.divide(pair["overlap"], np.maximum(pair["area"], 1)) for pair in pairs[row["class"]]]
        for part, value in (("best", np.max(np.mean(curves, axis=0))), ("fixed", np.mean(curves, axis=0)[50])):
            assert float(row[f"my_precision_{part}_percent"]) == pytest.approx(100 * value, abs=1e-6)
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


def test_boxes_have_no_best_threshold(file: Path, tmp_path: Path) -> None:
    data = make_box_data(tmp_path / "data")
    answers(data, tmp_path / "mine.jsonl")
    assert evaluate(data, "--model", f"boxes:{tmp_path / 'mine.jsonl'}") == 0
    metrics = {"mine": {"function": f"{file}:dice", "levels": True}}
    table = xb.load_run(tmp_path / "run").table(metrics=metrics, replicates=40)
    for part in _PARTS:
        own, built_in = (table[table.metric == f"{name}_{part}"].drop(columns="metric") for name in ("mine", "dice"))
        assert own.reset_index(drop=True).equals(built_in.reset_index(drop=True))
        assert built_in.value.notna().all() == (part == "fixed")
    xb.report(tmp_path / "run", page=False, metrics=metrics, replicates=40)
    first = (tmp_path / "run" / "report" / "tables.md").read_text().split("\n## ")[1]
    head = next(line for line in first.splitlines() if line.startswith("|"))
    assert "mine 0.5 |" in head and head.count("mine") == 1


def test_no_mean_over_datasets_where_one_cannot_be_fitted(file: Path, tmp_path: Path) -> None:
    """All pairs of the second dataset are of one patient."""
    data, other = make_box_data(tmp_path / "data"), make_box_data(tmp_path / "other")
    told = json.loads((other / "annotations.json").read_text())
    images = [{**image, "patient_id": "p"} for image in told["images"]]
    (other / "annotations.json").write_text(json.dumps({**told, "images": images}))
    second = ["--data", f"other={other}", "--data-option", "other.reader=coco"]
    assert evaluate(data, *second, "--model", "baseline:center", "--model", "baseline:chance") == 0
    table = xb.load_run(tmp_path / "run").table(metrics={"mine": {"function": f"{file}:dice", "levels": True}})
    for part in _PARTS:
        own, built_in = (table[(table.metric == f"{name}_{part}") & (table.dataset == "")] for name in ("mine", "dice"))
        assert own.value.tolist() == built_in.value.tolist() or (own.value.isna().all() and built_in.value.isna().all())
        assert len(own) == 2 and own.value.isna().all() == (part == "cross_fitted")


def test_compare_has_own_metrics_as_built_in_ones(
    run: Path, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models of one run: pointing, Dice at 0.5 of maps, and Dice at each level."""
    config = tmp_path / "own.toml"
    tables = {"hits": "", "drawn": "maps = true\n", "dice": "levels = true\n"}
    lines = (f"[metrics.my_{name}]\nfunction = '{file}:{name}'\n{more}" for name, more in tables.items())
    config.write_text("".join(lines))
    same = {"my_hits": "pointing", "my_drawn": "dice_fixed"} | {f"my_dice_{part}": f"dice_{part}" for part in _PARTS}
    place, models = [run, "--config", config], ("a", "b")
    options = [*(part for name in models for part in ("--model", name)), "--replicates", 40]
    conditions = [("--fail-if", f"{name}_drop < -100") for names in same.items() for name in names]
    asked = [part for condition in conditions for part in condition]
    assert command("compare", *place, *options, *asked, "--json", tmp_path / "all.json") == 0
    said = capsys.readouterr().out
    assert "my dice, cross-fitted" in said and f"metric my_hits: {file}:hits, SHA-256 " in said
    made = json.loads((tmp_path / "all.json").read_text())
    measures = made["measures"]
    for own, built_in in same.items():
        assert measures[f"{own}_drop"] is not None and measures[f"{own}_drop"] == measures[f"{built_in}_drop"]
    found = list[Any]()
    groups = [cell[key] for cell in made["cells"] for key in ("changes", "findings")]
    for changes in (*groups, *(mean["changes"] for mean in made["means"])):
        of = {(change["metric"], change["finding"]): {**change, "metric": ""} for change in changes}
        pairs = [(of.get((own, name)), of.get((same[own], name))) for own in same for _, name in of]
        assert pairs and all(own == built_in for own, built_in in pairs)
        found += [own for own, _ in pairs if own is not None]
    assert any(own["interval"] for own in found) and any(own["p"] is not None for own in found)
    metrics = {"mine": {"function": f"{file}:dice", "levels": True}}
    table = xb.compare(run, models=models, metrics=metrics, replicates=40).table()
    for part in _PARTS:
        one, two = (table[table.metric == f"{name}_{part}"].drop(columns="metric") for name in ("mine", "dice"))
        assert len(one) and one.reset_index(drop=True).equals(two.reset_index(drop=True))
    assert command("compare", *place, *options, "--fail-if", "my_dice_drop > 0") == 2
    assert "did you mean 'my_dice_best_drop'" in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(xb.XBenchError, match="there is a number 'auc' already"):
        xb.compare(run, models=models, metrics={"auc": f"{file}:hits"})


def test_groups_of_models_have_own_metrics(run: Path, file: Path, tmp_path: Path) -> None:
    config = tmp_path / "own.toml"
    config.write_text(
        f"[groups.g]\none = ['a']\ntwo = ['b']\n[metrics.my_hits]\nfunction = '{file}:hits'\n"
        f"[metrics.my_dice]\nfunction = '{file}:dice'\nlevels = true\n"
    )
    options = ["--config", config, "--out", tmp_path / "out", "--replicates", 40, "--over", "patients"]
    assert command("study", "groups", run, *options) == 0
    made = json.loads((tmp_path / "out" / "groups.json").read_text())
    same = {"my_hits": "pointing", "my_dice_fixed": "dice_fixed", "my_dice_cross_fitted": "dice_cross_fitted"}
    for table in ("contrasts", "groups"):
        by = {row["measure"]: {**row, "measure": ""} for row in made[table]}
        assert all(by[own] == by[built_in] for own, built_in in same.items())
        assert "my_dice_best" not in by
    for row in made["models"]:
        assert all(row[own] == row[built_in] for own, built_in in same.items())
    assert any(fact.startswith(f"metric my_hits: {file}:hits") for fact in made["facts"])
    assert "my dice cross-fitted" in (tmp_path / "out" / "groups.md").read_text()


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
