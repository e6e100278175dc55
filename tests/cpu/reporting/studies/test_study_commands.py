"""`xbench-fast study` of one run: its numbers against loops over the stored rows, and how odd runs are handled."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from sklearn.metrics import roc_auc_score
from stored_counts import add_cell, random_rows
from study_world import PIXELS, answer, dice, make_runs, mean, pairs_of, stored, study
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.load_rows import load_run
from xbench_fast.runtime.results.numbers.run_numbers import make_results
from xbench_fast.runtime.results.run_directory import RunDirectory


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("studies"))


def test_thresholds(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    said = study(capsys, "thresholds", run, "--replicates", 50, "--within", 10)
    assert "in-sample" in said and "cross-fitted" in said and "n pairs" in said
    data = answer(run, "thresholds")
    for model in ("a", "b"):
        deltas = []
        for dataset in ("coco", "second"):
            classes = pairs_of(stored(run, model, dataset))
            curves = {name: [mean(dice(row, k) for row in own) for k in range(101)] for name, own in classes.items()}
            curves["mean"] = [mean(curve[k] for curve in curves.values()) for k in range(101)]
            for name, curve in curves.items():
                rows = [r for r in data["curves"] if (r["model"], r["dataset"], r["class"]) == (model, dataset, name)]
                assert [row["tau"] for row in rows] == [k / 100 for k in range(101)]
                assert [row["dice"] for row in rows] == pytest.approx(curve, abs=2e-10)
                own = classes.get(name) or [row for each in classes.values() for row in each]
                if len({row["patient_id"] for row in own}) < 10:
                    assert all(r["dice_low"] is r["iou_high"] is None for r in rows), "no band of so few patients"
                else:
                    assert all(r["dice_low"] - 1e-9 <= r["dice_high"] for r in rows)
                assert all(r["iou"] <= r["dice"] + 1e-12 for r in rows)
                (row,) = [
                    r for r in data["sensitivity"] if (r["model"], r["dataset"], r["class"]) == (model, dataset, name)
                ]
                near = [k for k in range(101) if curve[k] >= 0.9 * max(curve)]
                assert row["tau_best"] == curve.index(max(curve)) / 100
                assert row["near_low"] * 100 >= near[0] - 1e-9 and row["near_high"] * 100 <= near[-1] + 1e-9
                if name != "mean":
                    assert row["n"] == len(classes[name])
                    assert row["delta_best_points"] == pytest.approx(100 * (max(curve) - curve[50]))
                    assert row["delta_cross_fitted_points"] <= row["delta_best_points"] + 1e-9
                    assert row["area_fixed"] == pytest.approx(mean(r["area"][50] / PIXELS for r in classes[name]))
            deltas.append(mean(100 * (max(curves[name]) - curves[name][50]) for name in classes))
        (row,) = [r for r in data["delta_dice"] if r["model"] == model]
        assert row["delta_best_points"] == pytest.approx(mean(deltas)) and row["datasets"] == 2
        ends = row["delta_best_points_low"], row["delta_best_points_high"]
        assert ends == (None, None) or ends[0] <= ends[1]
    reliable = [r for r in data["reliability"] if (r["model"], r["dataset"], r["class"]) == ("a", "coco", "Mass")]
    own = pairs_of(stored(run, "a", "coco"))["Mass"]
    inside, every = (sum(r[field][30] - r[field][31] for r in own) for field in ("overlap", "area"))
    assert reliable[30]["inside"] == pytest.approx(inside / every) and reliable[30]["saliency"] == 0.305
    table = list(csv.DictReader(io.StringIO((run / "studies/thresholds/delta_dice.csv").read_text())))
    assert [row["model"] for row in table] == ["a", "b", "baseline:ones"]
    assert float(table[2]["delta_best_points"]) == 0


def test_correlation(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    said = study(capsys, "correlation", run, "--replicates", 50)
    assert "baseline:ones on coco (coco) is left out: a baseline has no score" in said
    data = answer(run, "correlation")
    points = {}
    for model in ("a", "b"):
        for dataset in ("coco", "second"):
            rows = [row for row in stored(run, model, dataset) if row["status"] == "ok"]
            aucs = []
            for name in ("Mass", "Effusion"):
                own = [row for row in rows if row["finding"] == name]
                aucs.append(roc_auc_score([r["label"] for r in own], [r["logit"] for r in own]))
            pointing = mean(mean(row["hit"] for row in own) for own in pairs_of(rows).values())
            points[model, dataset] = (mean(aucs), pointing)
            (row,) = [r for r in data["points"] if (r["model"], r["dataset"]) == (model, dataset)]
            assert (row["auc"], row["pointing"]) == pytest.approx(points[model, dataset])
    x, y = (np.array([point[i] for point in points.values()]) for i in (0, 1))
    cells, centred = (
        next(r for r in data["correlation"] if r["points"] == name) for name in ("cells", "cells, centred")
    )
    assert cells["r2"] == pytest.approx(stats.pearsonr(x, y).statistic ** 2) and cells["r2_fisher_low"] is None
    for values in (x, y):
        values -= np.tile([values[::2].mean(), values[1::2].mean()], 2)
    if centred["r2"] is not None:
        assert centred["r2"] == pytest.approx(stats.pearsonr(x, y).statistic ** 2)
    models = next(row for row in data["correlation"] if row["points"] == "models")
    assert models["n"] == 2 and models["r2"] is None  # two points lie on a line, whatever they are
    assert {row["without"] for row in data["left_out"]} == {"a", "b"}


def test_strata(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    assert "mean of datasets" not in study(capsys, "strata", run, "--dataset", "coco", "--replicates", 40)
    said = study(capsys, "strata", run, "--replicates", 50)
    assert "Wilson" in said and "mean of datasets: unweighted" in said
    rows = answer(run, "strata")["strata"]
    every = [row for own in pairs_of(stored(run, "b", "coco")).values() for row in own]
    for name, low, high in (("tiny", 0, 0.005), ("small", 0.005, 0.02), ("medium", 0.02, 0.08), ("large", 0.08, 2)):
        own = [row for row in every if low <= row["region_area"] / PIXELS < high]
        (found,) = [
            r for r in rows if (r["model"], r["dataset"], r["division"], r["stratum"]) == ("b", "coco", "fixed", name)
        ]
        assert found["n"] == len(own)
        if not own:
            assert found["pointing"] is None and found["above_chance_low"] is None
            continue
        curve = [mean(dice(row, k) for row in own) for k in range(101)]
        chance = mean(row["region_area"] / PIXELS for row in own)
        assert found["above_chance"] == pytest.approx(mean(row["hit"] for row in own) - chance)
        assert (found["dice_fixed"], found["dice_best"]) == pytest.approx((curve[50], max(curve)))
        people = {row["patient_id"] for row in own}
        assert found["pointing_interval"] == ("wilson" if len(people) > 1 else None)
        assert len(people) < 2 or found["pointing_low"] <= found["pointing"]
        assert (found["dice_fixed_low"] is None) == (len(people) < 4), "an interval of so few says nothing"
    means = {r["stratum"]: r for r in rows if (r["model"], r["dataset"]) == ("b", "mean of datasets")}
    assert sum(r["n"] for r in means.values()) == sum(
        len(own) for dataset in ("coco", "second") for own in pairs_of(stored(run, "b", dataset)).values()
    )
    for name, found in means.items():  # pairs of datasets that share images are not put together
        own = [r for r in rows if (r["model"], r["division"], r["stratum"]) == ("b", "fixed", name) and r["n"]
               and r["dataset"] in ("coco", "second")]  # fmt: skip
        for key in ("pointing", "above_chance", "chance", "dice_best", "dice_cross_fitted", "floor_dice"):
            known = [r[key] for r in own if r[key] is not None]
            assert found[key] == (pytest.approx(mean(known)) if known else None), (name, key)
    thirds = [r["n"] for r in rows if (r["model"], r["dataset"], r["division"]) == ("b", "coco", "thirds")]
    assert sum(thirds) == len(every) and max(thirds) - min(thirds) <= 2


def test_failures(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    study(capsys, "failures", run, "--replicates", 50, "--cases", 2, "--top", 1)
    data = answer(run, "failures")
    assert {row["model"] for row in data["classes"]} == {"a", "b"}
    for model in ("a", "b"):
        classes = pairs_of(stored(run, model, "coco"))
        score = {}
        for name, own in classes.items():
            best = max(range(101), key=lambda k, own=own: (mean(dice(row, k) for row in own), -k))  # type: ignore[misc]
            score |= {(row["case_id"], name): dice(row, best) for row in own}
        chosen = [r for r in data["cases"] if (r["model"], r["dataset"]) == (model, "coco")]
        ends = {row["end"]: row["class"] for row in data["classes"] if row["model"] == model and row["end"]}
        assert [(row["end"], row["class"]) for row in chosen] == [
            (end, ends[end]) for end in ("worst", "best") for _ in classes[ends[end]][:2]
        ]
        for end, part in (("worst", slice(2)), ("best", slice(-2, None))):
            order = sorted(dice_of for (_, name), dice_of in score.items() if name == ends[end])
            assert [row["dice"] for row in chosen if row["end"] == end] == pytest.approx(order[part])
        for row in chosen:
            assert row["dice"] == pytest.approx(score[row["case"], row["class"]])
            with Image.open(run / "studies" / "failures" / row["overlay"]) as image:
                picture = np.asarray(image.convert("RGB")).astype(int)
            assert picture.shape[:2] == (448 + 48, 896)
            source = next(r for r in classes[row["class"]] if r["case_id"] == row["case"])
            truth = np.unpackbits(np.frombuffer(source["region"], np.uint8).reshape(224, 28), axis=1, bitorder="little")
            large = truth.repeat(2, 0).repeat(2, 1).astype(bool)
            green = (picture[:448, :448] == (64, 220, 96)).all(axis=2)
            assert green.any() and not (green & ~large).any()
            inner = large[2:, 1:-1] & large[:-2, 1:-1] & large[1:-1, 2:] & large[1:-1, :-2] & large[1:-1, 1:-1]
            assert not (green[1:-1, 1:-1] & inner).any()
            assert picture[:448, :448][~green].std() > 5  # the radiograph is there
    (worst,) = [r for r in data["classes"] if (r["model"], r["dataset"], r["end"]) == ("a", "coco", "worst")]
    hits = {name: mean(row["hit"] for row in own) for name, own in pairs_of(stored(run, "a", "coco")).items()}
    assert worst["pointing"] == pytest.approx(min(hits.values()))
    # Another question leaves none of the files of the last one behind.
    study(capsys, "failures", run, "--replicates", 50, "--no-overlays")
    assert not list((run / "studies" / "failures" / "overlays").glob("*.png"))


def test_one_estimate_has_one_interval_in_report_and_studies(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    for name in ("failures", "thresholds", "correlation"):
        study(capsys, name, run, "--replicates", 50, "--seed", 5, *(("--no-overlays",) if name == "failures" else ()))
    found = make_results(load_run(run), Choices(replicates=50, seed=5))
    seen = set()

    def same(row: dict[str, Any], column: str, field: str, name: str) -> None:
        if row["model"].startswith("baseline:"):
            return  # a report scores reference rows on the pairs of the models they stand beside
        interval = found.number(row["model"], row["dataset"], field, name).interval
        ends = (row[f"{column}_low"], row[f"{column}_high"])
        seen.add("none" if interval is None else interval.method)
        wanted = (None, None) if interval is None else (interval.low, interval.high)
        assert ends == (wanted if interval is None else pytest.approx(wanted)), (row["model"], name, field)

    for row in answer(run, "failures")["classes"]:
        for field in ("pointing", "dice_fixed", "dice_best"):
            same(row, field, field, row["class"])
    for row in answer(run, "thresholds")["sensitivity"]:
        name = "" if row["class"] == "mean" else row["class"]
        for field in ("dice_fixed", "dice_best", "dice_cross_fitted"):
            same(row, field, field, name)
    for row in answer(run, "correlation")["points"]:
        if row["points"] == "cells":
            same(row, "auc", "auc", "")
            same(row, "pointing", "pointing", "")
    assert {"bootstrap", "wilson"} <= seen


NAMES = ("thresholds", "correlation", "strata", "failures", "errors", "calibration")


@pytest.mark.parametrize("name", NAMES)
def test_runs_without_what_a_study_needs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No pairs, one model, no scores, cells that failed: a sentence or empty tables, never a traceback."""
    with RunDirectory(tmp_path / "run") as made:
        made.begin({})
        empty = random_rows(1)
        for row in empty:
            row.area = row.overlap = row.region = row.frame = row.saliency = None
            row.region_area, row.label, row.logit = 0, 1, None
        add_cell(made, "kad", "one", empty)
        add_cell(made, "blind", "one", random_rows(2), "baseline")
        made.set_cell("kad", "two", "failed", reason="it broke")
    study(capsys, name, tmp_path / "run", "--replicates", 40)
    data = answer(tmp_path / "run", name)
    assert "kad on two: failed: it broke" in data["facts"] and data["study"] == name
    assert (tmp_path / "run" / "studies" / name / f"{name}.md").read_text().startswith("# ")


def test_errors_are_sentences(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = world / "run" / "run"
    assert "no run directory" in study(capsys, "strata", tmp_path, code=1)
    assert "has no model 'kad': did you mean 'a'? known are a, b" in study(
        capsys, "strata", run, "--model", "kad", code=2
    )
    assert "has no dataset 'rsna'" in study(capsys, "thresholds", run, "--dataset", "rsna", code=2)
    with RunDirectory(tmp_path / "empty") as made:
        made.begin({})
        made.set_cell("kad", "one", "failed", reason="it broke")
    assert "no finished result to study (kad on one: failed: it broke)" in study(
        capsys, "calibration", tmp_path / "empty", code=1
    )


def test_without_matplotlib_there_are_tables_and_a_sentence(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    said = study(capsys, "strata", world / "run" / "run", "--replicates", 40, "--out", tmp_path / "here")
    assert "No figure: A figure needs matplotlib, which is not installed" in said
    assert {path.suffix for path in (tmp_path / "here").iterdir()} == {".md", ".json", ".csv"}


def test_the_same_question_has_the_same_answer(world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("x", "y"):
        study(capsys, "strata", world / "run" / "run", "--replicates", 40, "--out", tmp_path / place, "--quiet")
    names = sorted(path.name for path in (tmp_path / "x").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "y").iterdir())
    for name in names:
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes(), name
