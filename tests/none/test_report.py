"""Reports: stored counts -> tables, checked against plain loops and scikit-learn."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, roc_auc_score
from stored_counts import CLASSES, PIXELS, add_cell, random_rows
from xbench_fast.engines.errors import RunError
from xbench_fast.runtime.evaluation.rundir import RunDirectory
from xbench_fast.runtime.evaluation.scoring import Row
from xbench_fast.runtime.reporting.console import print_table
from xbench_fast.runtime.reporting.printed import percent
from xbench_fast.runtime.reporting.report import report_tables, write_report
from xbench_fast.runtime.reporting.table import Column, Table


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


def report(path: Path) -> tuple[dict[str, Any], dict[str, Table], str]:
    opened, results, tables = report_tables(path)
    written = write_report(opened, results, tables)
    assert sorted(p.name for p in written) == [
        "classes.csv", "coverage.csv", "recognition.csv", "report.json", "report.md", "table1.csv",
    ]  # fmt: skip
    data = json.loads((path / "report" / "report.json").read_text())
    return data, {table.title: table for table in tables}, (path / "report" / "report.md").read_text()


def naive_class(rows: list[Row], finding: str) -> dict[str, float]:
    """Grounding of a class by loops over pairs and thresholds (metrics specification §4, §5)."""
    pairs = [row for row in rows if row.finding == finding and row.area is not None]
    curve, iou_curve = [], []
    for k in range(101):
        dice, iou = [], []
        for row in pairs:
            a, o, r = int(row.area[k]), int(row.overlap[k]), row.region_area  # type: ignore[index]
            assert r is not None
            dice.append(2 * o / (a + r))
            iou.append(o / (a + r - o))
        curve.append(sum(dice) / len(dice))
        iou_curve.append(sum(iou) / len(iou))
    best = max(range(101), key=lambda k: (curve[k], -k))
    whole = [2 * row.region_area / (PIXELS + row.region_area) for row in pairs if row.region_area]
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
        "floor_iou": sum(row.region_area or 0 for row in pairs) / PIXELS / len(pairs),
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
    assert data["models"]["toy"] == {"mean_of_datasets": dict.fromkeys(NUMBERS), "datasets": 0}


def test_recognition_equals_scikit_learn(run: Path) -> None:
    data, tables, _ = report(run)
    for cell, seed in zip(data["cells"], (1, 2, 1), strict=True):
        negative = cell["model"] == "clip"
        for index, found in enumerate(cell["recognition"]["classes"]):
            rows = [r for r in random_rows(seed, negative=negative) if r.finding == found["name"] and r.status == "ok"]
            rows = [row for row in rows if row.label is not None]
            labels, logits = [row.label for row in rows], [float(row.logit or 0) for row in rows]
            said = [1 / (1 + math.exp(-value)) >= 0.5 for value in logits]
            assert (found["n"], found["positives"]) == (len(rows), sum(labels))
            if found["name"] == "Edema":
                assert found["auc"] is None and found["auprc"] is None and found["f1"] == 0
            else:
                assert found["auc"] == pytest.approx(roc_auc_score(labels, logits))
                assert found["auprc"] == pytest.approx(average_precision_score(labels, logits))
            assert found["f1"] == pytest.approx(f1_score(labels, said, zero_division=0))
            assert found["accuracy"] == pytest.approx(accuracy_score(labels, said))
            pair = [value >= float(row.logit_negative or 0) for value, row in zip(logits, rows, strict=True)]
            if negative:
                assert cell["pair"]["classes"][index]["f1"] == pytest.approx(f1_score(labels, pair, zero_division=0))
                assert cell["pair"]["classes"][index]["accuracy"] == pytest.approx(accuracy_score(labels, pair))
            else:
                assert cell["pair"]["classes"] == []
    table = tables["Recognition"]
    assert [row[-2:] for row in table.rows] == [("Edema", "Edema")] * 3
    cell = data["cells"][0]
    assert table.rows[0][3] == percent(np.mean([item["auc"] for item in cell["recognition"]["classes"][:2]]))
    cells = cell["recognition"]["classes"]
    hamming = sum(item["accuracy"] * item["n"] for item in cells) / sum(item["n"] for item in cells)
    assert float(table.rows[0][7]) == pytest.approx(100 * hamming, abs=0.0051)


def test_table_1_has_the_papers_shape(run: Path) -> None:
    data, tables, markdown = report(run)
    table = tables["Table 1: grounding"]
    assert table.groups == ["The one", "The two", "mean of datasets"]
    assert [c.title for c in table.columns][1:6] == ["Point", "Dice*", "all-ones", "IoU*", "all-ones"]
    assert [row[0] for row in table.rows] == ["kad", "clip (1 of 2 datasets)", "toy"]
    mean = data["cells"][0]["grounding"]["macro"]
    assert table.rows[0][1:6] == tuple(
        percent(mean[name]) for name in ("pointing", "dice_best", "floor_dice", "iou_best", "floor_iou")
    )
    assert table.rows[1][6:11] == ("-",) * 5 and set(table.rows[2][1:]) == {"-"}
    assert any("optimistic: threshold chosen on the same data" in note for note in table.notes)
    assert "| kad | " + " | ".join(table.rows[0][1:]) + " |" in markdown
    rows = list(csv.DictReader(io.StringIO((run / "report" / "table1.csv").read_text())))
    assert float(rows[0]["dice_fixed_percent"]) == pytest.approx(100 * mean["dice_fixed"])
    assert float(rows[0]["delta_dice_points"]) == pytest.approx(mean["delta_dice"])
    assert [(row["model"], row["dataset"], row["n"]) for row in rows[3:]] == [
        ("clip", "two", "0"), ("toy", "one", "0"), ("toy", "two", "0"),
    ]  # fmt: skip
    assert rows[3]["remark"] == "failed: it broke" and rows[5]["remark"].startswith("not finished")


def test_class_tables_give_n_floor_and_chance(run: Path) -> None:
    data, tables, _ = report(run)
    grounding = data["cells"][0]["grounding"]
    classes = {item["name"]: item for item in grounding["classes"]}
    pointing = tables["The one: pointing per class"]
    assert [c.title for c in pointing.columns] == ["model", "Mean", "Mass", "Effusion"]
    assert pointing.rows[0] == ("n", "", *(str(classes[name]["n"]) for name in CLASSES[:2]))
    assert pointing.rows[1][0] == "chance" and pointing.rows[1][2] == percent(classes["Mass"]["floor_iou"])
    assert pointing.rows[2] == (
        "kad",
        percent(grounding["macro"]["pointing"]),
        *(percent(classes[name]["pointing"]) for name in CLASSES[:2]),
    )
    dice = tables["The one: Dice per class at the best threshold"]
    assert [(c.group, c.title) for c in dice.columns][3:6] == [
        ("Mass", "Dice*"),
        ("Mass", "all-ones"),
        ("Mass", "tau*"),
    ]
    mass = classes["Mass"]
    assert dice.rows[1][3:6] == (percent(mass["dice_best"]), percent(mass["floor_dice"]), f"{mass['best_tau']:.2f}")


def test_models_with_different_pairs_have_their_own_n(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        add_cell(made, "a", "one", random_rows(1))
        add_cell(made, "b", "one", random_rows(5))
    _, tables, _ = report(tmp_path / "run")
    labels = [row[0] for row in tables["The one: pointing per class"].rows]
    assert labels == ["n, a", "n, b", "chance, a", "chance, b", "a", "b"]


def test_worthless_weights_are_stamped_on_every_table(run: Path) -> None:
    _, tables, markdown = report(run)
    line = "clip: stand-in weights: numbers mean nothing"
    for title, table in tables.items():
        assert (line in table.stamps) == (not title.startswith("The two")), title
        assert all("stand-in" not in stamp for stamp in table.stamps) == title.startswith("The two")
    assert markdown.count(line) == sum(line in table.stamps for table in tables.values()) == 5
    for name in ("table1.csv", "classes.csv", "recognition.csv", "coverage.csv"):
        rows = list(csv.DictReader(io.StringIO((run / "report" / name).read_text())))
        finished = [row for row in rows if row["model"] == "clip" and row["dataset"] == "one"]
        assert finished and all(row["remark"] == "stand-in weights: numbers mean nothing" for row in finished)


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
    assert "The one: only the first 30 cases were evaluated" in stamps
    assert "The two: 2 of 30 images are missing or unreadable and not counted" in stamps


def test_coverage_counts_everything(run: Path) -> None:
    data, tables, _ = report(run)
    rows = {row[:2]: row[2:] for row in tables["Coverage"].rows}
    kad = [row for row in random_rows(1) if row.area is not None]
    degenerate, rescued = sum(bool(row.degenerate) for row in kad), sum(bool(row.rescued) for row in kad)
    assert degenerate and rescued
    assert rows["kad", "The one"] == (
        "30",
        "1",
        "1",
        str(len(kad)),
        str(degenerate),
        str(rescued),
        "numpy fp32",
        "done",
    )
    assert rows["clip", "The two"][-1] == "failed: it broke"
    assert rows["toy", "The two"][-1].startswith("not finished")
    assert {item["reason"] for item in data["unfinished"]} >= {"failed: it broke", "skipped: no prompts"}


def test_a_damaged_result_is_no_result(run: Path) -> None:
    file = next((run / "cells").glob("kad--one-*.parquet"))
    file.write_bytes(file.read_bytes()[:-20])
    _, tables, _ = report(run)
    assert tables["Table 1: grounding"].rows[0][1:6] == ("-",) * 5
    rows = {row[:2]: row[-1] for row in tables["Coverage"].rows}
    assert "missing or damaged" in rows["kad", "The one"]


def test_a_report_is_a_pure_function_of_the_run(run: Path) -> None:
    report(run)
    before = {path.name: path.read_bytes() for path in (run / "report").iterdir()}
    report(run)
    assert {path.name: path.read_bytes() for path in (run / "report").iterdir()} == before


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run directory"):
        report_tables(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        report_tables(tmp_path)


def test_wide_tables_are_broken_at_groups() -> None:
    columns = [Column("model"), *(Column(title, f"set {i}") for i in range(6) for title in ("Point", "Dice"))]
    table = Table("wide", tuple(columns), (tuple(["name"] + [f"{i}.00" for i in range(12)]),), ("stamped",), ("noted",))
    for width, parts in ((200, 1), (60, 2)):
        console = Console(width=width, record=True, file=io.StringIO())
        print_table(console, table)
        text = console.export_text()
        assert text.count("name") == parts and text.count("stamped") == text.count("noted") == 1
        assert all(f" {i}.00" in text for i in range(12))


def test_models_and_datasets_stand_in_the_order_of_the_configuration(run: Path) -> None:
    file = run / "run.json"
    data = json.loads(file.read_text())
    data["config"] = {"bundles": ["toy", "unused", "clip"], "datasets": {"two": {}, "one": {}}}
    file.write_text(json.dumps(data))
    _, tables, _ = report(run)
    assert [row[0].split()[0] for row in tables["Table 1: grounding"].rows] == ["toy", "clip", "kad"]
    assert tables["Table 1: grounding"].groups[:2] == ["The two", "The one"]
