"""Reports: stored counts -> tables, checked against plain loops and scikit-learn."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from evaluation_world import World
from exact_units import units
from result_rows import ResultRow
from stored_counts import CLASSES, PIXELS, add_cell, random_rows
from synthetic import make_bundle, make_dataset
from written_report import report, rows_of, texts
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.figures.figure import conditions
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.reporting.tables.metric_names import percent
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run, store_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1))
        add_cell(made, "kad", "two", random_rows(2))
        add_cell(made, "clip", "one", random_rows(1, negative=True), "stand-in", 30)
        made.set_cell("clip", "two", "failed", reason="it broke")
        made.set_cell("toy", "one", "skipped", reason="no prompts")
        made.set_cell("toy", "two", "running", key="k", file="cells/none.parquet")
    return tmp_path / "run"


def test_one_model_differs_from_no_other_in_tables_that_say_so(tmp_path: Path) -> None:
    heads = {}
    for models in (("kad",), ("kad", "clip")):
        with RunDirectory(tmp_path / models[-1]) as made:
            made.begin({})
            for name in models:
                add_cell(made, name, "one", random_rows(1))
        report(tmp_path / models[-1])
        for file in ("differences.csv", "auc_differences.csv"):
            head, *rows = (tmp_path / models[-1] / "report" / file).read_text().splitlines()
            assert (
                heads.setdefault(file, head) == head
                and head.startswith("dataset,")
                and bool(rows) == (models[1:] != ())
            )


def rounded(value: float) -> float:
    """To a multiple of 2^-32 (docs/metrics.md §8.1)."""
    return units(value) / 2**32


def naive_class(rows: list[ResultRow], finding: str) -> dict[str, float]:
    """Grounding of a class by loops over pairs and thresholds (docs/metrics.md §4, §5)."""
    pairs = [row for row in rows if row.finding == finding and row.area is not None]
    curve, iou_curve = [], []
    for k in range(101):
        dice, iou = [], []
        for row in pairs:
            a, o, r = int(row.area[k]), int(row.overlap[k]), row.region_area  # type: ignore[index]
            assert r is not None
            dice.append(rounded(2 * o / (a + r)))
            iou.append(rounded(o / (a + r - o)))
        curve.append(sum(dice) / len(dice))
        iou_curve.append(sum(iou) / len(iou))
    best = max(range(101), key=lambda k: (curve[k], -k))
    whole = [rounded(2 * row.region_area / (PIXELS + row.region_area)) for row in pairs if row.region_area]
    return {
        "n": len(pairs),
        "best_threshold": best / 100,
        "pointing": sum(bool(row.hit) for row in pairs) / len(pairs),
        "dice_best": curve[best],
        "iou_best": iou_curve[best],
        "dice_fixed": curve[50],
        "iou_fixed": iou_curve[50],
        "delta_dice": 100 * (curve[best] - curve[50]),
        "floor_dice": sum(whole) / len(whole),
        "floor_iou": sum(rounded((row.region_area or 0) / PIXELS) for row in pairs) / len(pairs),
    }


NUMBERS = ("pointing", "dice_best", "iou_best", "dice_fixed", "iou_fixed", "delta_dice", "floor_dice", "floor_iou")


def test_grounding_equals_plain_loops(run: Path) -> None:
    data, _, _ = report(run)
    means = {}
    for cell, seed in zip(data["cells"], (1, 2, 1), strict=True):
        rows = random_rows(seed, negative=cell["model"] == "clip")
        expected = [naive_class(rows, finding) for finding in CLASSES[:2]]
        for found, want in zip(cell["grounding"]["classes"], expected, strict=False):
            assert (found["n"], found["best_tau"]) == (want["n"], want["best_threshold"])
            for name in NUMBERS:
                assert found[name] == pytest.approx(want[name], abs=1e-12)
        empty = cell["grounding"]["classes"][2]
        assert (empty["name"], empty["n"], empty["dice_best"]) == ("Edema", 0, None)
        for name in NUMBERS:
            mean = sum(item[name] for item in expected) / 2
            assert cell["grounding"]["macro"][name] == pytest.approx(mean, abs=1e-12)
            micro = sum(item[name] * item["n"] for item in expected) / sum(item["n"] for item in expected)
            assert cell["grounding"]["micro"][name] == pytest.approx(micro, abs=1e-12)
            means.setdefault((cell["model"], name), []).append(mean)
    for name in NUMBERS:
        assert data["models"]["kad"]["mean_of_datasets"][name] == pytest.approx(np.mean(means["kad", name]), abs=1e-12)
    toy = data["models"]["toy"]
    assert toy["datasets"] == 0 and set(toy["mean_of_datasets"].values()) == {None} and toy["intervals"] == {}


def test_table_1_has_the_papers_shape(run: Path) -> None:
    data, tables, markdown = report(run)
    table = tables["Table 1: grounding"]
    assert table.groups == ["The one", "The two", "mean of datasets"]
    assert [c.title for c in table.columns][1:6] == ["Point", "Dice*", "Dice cross-fitted", "IoU*", "IoU cross-fitted"]
    rows = rows_of(table)
    assert list(rows) == ["n pairs", "all-ones", "kad", "clip", "toy"]
    cell = data["cells"][0]
    mean, fitted = cell["grounding"]["macro"], cell["cross_fitted"]["macro"]
    values = (mean["pointing"], mean["dice_best"], fitted["dice_best"], mean["iou_best"], fitted["iou_best"])
    assert rows["kad"][:5] == tuple(map(percent, values))
    floors = [mean[name] for name in ("chance", "floor_dice", "floor_dice", "floor_iou", "floor_iou")]
    assert rows["all-ones"][:5] == tuple(map(percent, floors))
    assert rows["n pairs"][:6] == (str(cell["n"]), "", "", "", "", str(data["cells"][1]["n"]))
    assert rows["clip"][5:10] == ("-",) * 5 and set(rows["toy"]) == {"-"}
    assert [row[0].note for row in table.rows if not isinstance(row[0], str)] == ["1 of 2 datasets"]
    assert any("in-sample: threshold chosen on the same data" in note for note in table.notes)
    assert any("cross-fitted: threshold chosen on other patients" in line for line in table.legend)
    assert "| toy | " + " | ".join(rows["toy"]) + " |" in markdown
    lines = list(csv.DictReader(io.StringIO((run / "report" / "table1.csv").read_text())))
    assert float(lines[0]["dice_fixed_percent"]) == pytest.approx(100 * mean["dice_fixed"])
    assert float(lines[0]["delta_dice_points"]) == pytest.approx(mean["delta_dice"])
    assert float(lines[0]["dice_cross_fitted_percent"]) == pytest.approx(100 * fitted["dice_best"])
    assert [(line["model"], line["dataset"], line["n"]) for line in lines[3:]] == [
        ("clip", "two", ""), ("toy", "two", ""),
    ]  # fmt: skip
    assert lines[3]["remark"] == "failed: it broke" and lines[4]["remark"].startswith("not finished")


def test_class_tables_give_n_floor_and_chance(run: Path) -> None:
    data, tables, _ = report(run)
    grounding, fitted = data["cells"][0]["grounding"], data["cells"][0]["cross_fitted"]
    classes = {item["name"]: item for item in grounding["classes"]}
    other = {item["name"]: item for item in fitted["classes"]}
    pointing = tables["The one: pointing per class"]
    assert [c.title for c in pointing.columns] == ["model", "Mean", "Mass", "Effusion"]
    rows = rows_of(pointing)
    assert rows["n"] == ("", *(str(classes[name]["n"]) for name in CLASSES[:2]))
    assert rows["chance"][1] == percent(classes["Mass"]["floor_iou"])
    assert rows["kad"] == (
        percent(grounding["macro"]["pointing"]),
        *(percent(classes[name]["pointing"]) for name in CLASSES[:2]),
    )
    dice = tables["The one: Dice per class at the best threshold"]
    assert [(c.group, c.title) for c in dice.columns][1:6] == [
        ("Mean", "Dice*"), ("Mean", "cross-fitted"), ("Mass", "Dice*"), ("Mass", "cross-fitted"), ("Mass", "tau"),
    ]  # fmt: skip
    mass, rows = classes["Mass"], rows_of(dice)
    assert rows["kad"][2:5] == (
        percent(mass["dice_best"]),
        percent(other["Mass"]["dice_best"]),
        f"{mass['best_tau']:.2f}",
    )
    assert rows["all-ones"][2:5] == (percent(mass["floor_dice"]),) * 2 + ("",)
    assert rows["n"][2:5] == (str(mass["n"]), "", "")


def test_threshold_table_says_what_the_choice_is_worth(run: Path) -> None:
    data, tables, _ = report(run)
    table = tables["Threshold sensitivity"]
    assert [column.title for column in table.columns][1:5] == ["Dice 0.5", "IoU 0.5", "delta", "delta cross-fitted"]
    found, fitted = data["cells"][0]["grounding"]["macro"], data["cells"][0]["cross_fitted"]["macro"]
    points = (found["delta_dice"] / 100, fitted["delta_dice"] / 100)
    assert rows_of(table)["kad"][:4] == tuple(map(percent, (found["dice_fixed"], found["iou_fixed"], *points)))
    assert found["delta_dice"] >= max(0, fitted["delta_dice"])


def test_models_with_different_pairs_have_their_own_n(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "a", "one", random_rows(1))
        add_cell(made, "b", "one", random_rows(5))
    _, tables, _ = report(tmp_path / "run")
    labels = list(rows_of(tables["The one: pointing per class"]))
    assert labels == ["n, a", "n, b", "chance, a", "chance, b", "a", "b"]
    first = list(rows_of(tables["Table 1: grounding"]))
    assert first == ["n pairs, a", "n pairs, b", "all-ones, a", "all-ones, b", "a", "b"]


def test_worthless_weights_are_stamped_on_every_table(run: Path) -> None:
    _, tables, markdown = report(run)
    line = "clip: stand-in weights: the numbers say nothing about the model"
    for title, table in tables.items():
        assert (line in table.stamps) == (not title.startswith("The two")), title
        assert all("stand-in" not in stamp for stamp in table.stamps) == title.startswith("The two")
    assert markdown.count(line) == sum(line in table.stamps for table in tables.values()) == 9
    for name in ("table1.csv", "classes.csv", "recognition.csv", "coverage.csv"):
        rows = list(csv.DictReader(io.StringIO((run / "report" / name).read_text())))
        finished = [row for row in rows if row["model"] == "clip" and row["dataset"] == "one"]
        assert finished and all(
            row["remark"] == "stand-in weights: the numbers say nothing about the model" for row in finished
        )


def test_a_demo_model_says_that_it_never_saw_a_radiograph(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad-demo", "phantoms", random_rows(1), "demo")
    _, tables, _ = report(tmp_path / "run")
    wanted = "kad-demo: demo model trained on generated phantoms; it never saw a radiograph"
    assert all(wanted in table.stamps for table in tables.values())


def test_limits_and_holes_are_stamped(run: Path) -> None:
    _, tables, _ = report(run)
    stamps = tables["Table 1: grounding"].stamps
    assert "The one: only the first 30 cases were evaluated (clip)" in stamps
    assert "The two: 2 of 30 images are missing or unreadable and not counted" in stamps
    results = make_report(run, Choices(replicates=0)).results
    assert conditions(results, results.finished) == tuple(f"Note: {line}." for line in stamps), "so are figures"


@pytest.mark.parametrize(
    ("limit", "every", "stamped"),
    [(30, 30, False), (30, 31, True), (30, None, True), (40, 30, False), (None, 30, False)],
)
def test_a_limit_is_stamped_only_if_it_left_cases_out(
    tmp_path: Path, limit: int | None, every: int | None, stamped: bool
) -> None:
    """`every`: cases of the dataset, which runs of earlier versions do not say."""
    told = {} if every is None else {"dataset_cases": every}
    with RunDirectory(tmp_path / "run") as made:
        made.begin({"datasets": {"one": {"reader": "rsna"}}})
        add_cell(made, "carzero", "one", random_rows(1), limit=limit, **told)
    data, tables, _ = report(tmp_path / "run")
    line = "The one: only the first 30 cases were evaluated"
    assert {line in table.stamps for table in tables.values()} == {stamped}
    assert data["cells"][0]["limit"] == (30 if stamped else None)
    notes = " ".join(tables["Table 1: grounding"].notes)
    assert ("as only a part of the dataset was evaluated" in notes) == stamped


def test_an_evaluation_says_how_many_cases_there_are(tmp_path: Path) -> None:
    """A bundle and a baseline, by limits below, at and above the dataset's 20 cases, and without."""
    data = DatasetConfig("coco", make_dataset(tmp_path / "data", 20), "coco")
    bundle = make_bundle(tmp_path / "blocks-32").path
    for limit in (12, 20, 25, None):
        world = World(tmp_path / str(limit))
        world.run([bundle], [data], baselines=["baseline:ones"], limit=limit)
        assert {world.entry(f"{name}--coco")["dataset_cases"] for name in ("blocks-32", "baseline:ones")} == {20}
        stamps = report(world.out)[1]["Table 1: grounding"].stamps
        assert [line for line in stamps if "only the first" in line] == [
            line for line in ("coco: only the first 12 cases were evaluated",) if limit == 12
        ]


def test_stamps_name_the_models_they_hold_for_where_models_differ(tmp_path: Path) -> None:
    rows = {limit: random_rows(1)[: 3 * limit] for limit in (10, 20, 30)}
    limits = {"a": 10, "b": 20, "c": 10, "d": 30}
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        for model, limit in limits.items():
            add_cell(made, model, "one", rows[limit], limit=limit, dataset_cases=30)
            add_cell(made, model, "two", rows[10], limit=10, dataset_cases=30)
    stamps = report(tmp_path / "run")[1]["Table 1: grounding"].stamps
    assert [line for line in stamps if "only the first" in line] == [
        "The one: only the first 10 cases were evaluated (a, c)",
        "The two: only the first 10 cases were evaluated",
        "The one: only the first 20 cases were evaluated (b)",
    ]


def test_a_part_of_a_dataset_is_stamped_and_not_held_against_the_paper(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1), shard={"index": 2, "of": 4, "cases": [8, 16, 32]})
    data, tables, _ = report(tmp_path / "run")
    wanted = "The one: only shard 2 of 4 was evaluated; merge them all"
    assert all(wanted in tables[title].stamps for title in ("Table 1: grounding", "Recognition"))
    assert [cell["shard"] for cell in data["cells"]] == ["2 of 4"]


def test_coverage_counts_everything(run: Path) -> None:
    data, tables, _ = report(run)
    rows = {texts(row)[:2]: texts(row)[2:] for row in tables["Coverage"].rows}
    kad = [row for row in random_rows(1) if row.area is not None]
    degenerate, sub_pixel = sum(bool(row.degenerate) for row in kad), sum(bool(row.sub_pixel) for row in kad)
    assert degenerate and sub_pixel
    counts = ("30", "15", "1", "1", str(len(kad)), "0", str(degenerate), str(sub_pixel), "0", "0", "0")
    assert rows["kad", "The one"] == (*counts, "numpy fp32", "default", "done")
    assert rows["clip", "The two"][-1] == "failed: it broke"
    assert rows["toy", "The two"][-1].startswith("not finished")
    assert {item["reason"] for item in data["unfinished"]} >= {"failed: it broke", "skipped: no prompts"}


def test_coverage_names_classes_that_were_not_asked_for_and_later_attempts(tmp_path: Path) -> None:
    later = {"state": "failed", "reason": "its folder is gone", "at": "2026-01-02T03:04:05"}
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "kad", "one", random_rows(1), classes=[*CLASSES, "Nodle"], last_attempt=later)
    _, tables, _ = report(tmp_path / "run")
    table = tables["Coverage"]
    assert "not asked for on The one of kad: Nodle" in table.notes
    assert table.rows[0][-1] == "done; failed on 2026-01-02T03:04:05: its folder is gone"
    assert "its folder is gone" in (tmp_path / "run" / "report" / "coverage.csv").read_text()


def test_a_damaged_result_is_no_result(run: Path) -> None:
    file = next((run / "cells").glob("kad--one-*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    _, tables, _ = report(run)
    assert rows_of(tables["Table 1: grounding"])["kad"][:5] == ("-",) * 5
    rows = {texts(row)[:2]: row[-1] for row in tables["Coverage"].rows}
    assert "its result file" in rows["kad", "The one"]


def test_a_report_is_a_pure_function_of_the_run(run: Path) -> None:
    report(run, Choices(replicates=50))
    before = {path.name: path.read_bytes() for path in (run / "report").rglob("*.*")}
    (run / "report" / "report.md").write_text("of an earlier version")
    report(run, Choices(replicates=50))
    assert {path.name: path.read_bytes() for path in (run / "report").rglob("*.*")} == before


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        make_report(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        make_report(tmp_path)


def test_models_and_datasets_stand_in_the_order_of_the_configuration(run: Path) -> None:
    data = read_run(run)
    data["config"] = {"bundles": ["toy", "unused", "clip"], "datasets": {"two": {}, "one": {}}}
    store_run(run, data)
    _, tables, _ = report(run)
    assert list(rows_of(tables["Table 1: grounding"]))[-3:] == ["toy", "clip", "kad"]
    assert tables["Table 1: grounding"].groups[:2] == ["The two", "The one"]
