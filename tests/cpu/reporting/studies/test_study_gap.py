"""`xbench-fast study gap`: AUC and pointing of each finding beside scikit-learn and loops over the rows that were
written."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from scipy import stats
from sklearn.metrics import roc_auc_score
from stored_counts import PIXELS, add_cell, finding_rows
from study_world import answer, make_runs, mean, study
from xbench_fast.runtime.results.run_directory import RunDirectory

SURE = {"Mass": (4.0, 0.1), "Nodule": (0.0, 0.95), "Effusion": (4.0, 0.95), "Edema": (0.0, 0.1), "Fracture": (9.0, 0.0)}
"""How much higher scores of images with the finding are, and how often the model points right."""
FINDINGS = tuple(SURE)
CELLS = [(model, dataset) for dataset in ("one", "two") for model in ("kad", "mavl")]
BASELINE, READER = "baseline:center", "reader:radiologist"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, str], list[ResultRow]]]:
    place, written = tmp_path_factory.mktemp("gap") / "run", {}
    weak = {name: (higher / 3, (right + 0.5) / 2) for name, (higher, right) in SURE.items()}
    with RunDirectory(place) as made:
        made.begin({})
        for place_of, dataset in enumerate(("one", "two")):
            for number, (model, strengths, weights) in enumerate(
                (("kad", SURE, "published"), ("mavl", weak, "published"), (BASELINE, weak, "baseline"))
            ):
                written[model, dataset] = list(finding_rows(place_of, 10 * place_of + number + 5, strengths))
                add_cell(made, model, dataset, written[model, dataset], weights, findings=list(FINDINGS))
        written[READER, "one"] = list(finding_rows(0, 99, dict.fromkeys(FINDINGS, (0.0, 0.8))))
        boxes = {"reader": "radiologist"}
        add_cell(made, READER, "one", written[READER, "one"], "boxes", findings=list(FINDINGS), boxes=boxes)
    return place, written


def values(rows: list[ResultRow], finding: str) -> tuple[float, float, float]:
    """AUC, pointing and chance."""
    own = [row for row in rows if row.finding == finding]
    pairs = [row for row in own if row.region_area]
    auc = roc_auc_score([row.label for row in own], [row.logit for row in own])
    return float(auc), mean(row.hit for row in pairs), mean((row.region_area or 0) / PIXELS for row in pairs)


def test_findings_and_lists(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    said = study(capsys, "gap", place, "--replicates", 200, "--no-overlays", "--auc", 0.75, "--pointing", 0.5)
    data = answer(place, "gap")
    rows = {(r["model"], r["dataset"], r["class"]): r for r in data["findings"]}
    assert len(rows) == len(data["findings"]) == 20 and {key[:2] for key in rows} == set(CELLS)
    family = []
    for (model, dataset, finding), row in rows.items():
        auc, pointing, chance = values(written[model, dataset], finding)
        assert (row["auc"], row["pointing"], row["chance"]) == pytest.approx((auc, pointing, chance))
        known = auc >= 0.75, pointing >= 0.5
        assert (
            row["quadrant"]
            == {
                (True, True): "recognised and grounded",
                (True, False): "recognised, not grounded",
                (False, True): "grounded, not recognised",
                (False, False): "neither",
            }[known]
        )
        own = [r for r in written[model, dataset] if r.finding == finding]
        assert row["positives"] == row["n"] == sum(r.label or 0 for r in own)
        if (dataset, finding) == ("one", "Fracture"):
            assert row["p"] is row["p_holm"] is row["auc_low"] is None, "two patients have it"
            continue
        assert row["auc_low"] <= auc <= row["auc_high"] and 0 <= row["share"] <= 1
        assert row["p"] == max(row["auc_p"], row["pointing_p"]) and row["family"] == 18
        family.append(row["p"])
    assert min(r["p_holm"] for r in rows.values() if r["p"] is not None) == pytest.approx(min(1.0, 18 * min(family)))
    for finding, quadrant in (("Mass", "recognised, not grounded"), ("Nodule", "grounded, not recognised")):
        row = rows["kad", "one", finding]
        assert row["quadrant"] == quadrant and row["p_holm"] < 0.05 and row["share"] > 0.98
    for quadrant in ("recognised, not grounded", "grounded, not recognised"):
        own = [r for r in rows.values() if r["quadrant"] == quadrant]
        sure = sum((r["p_holm"] or 1) < 0.05 for r in own)
        assert f"{quadrant}: {len(own)} of 20 findings of a model and dataset; after the correction {sure}" in said
        assert sure and len(own) > sure
    first, second = said.split("Recognised, not grounded\n")[1].split("Grounded, not recognised\n")
    assert "Mass" in first and "Nodule" not in first and "Nodule" in second.split("AUC and pointing over")[0]
    assert f"{READER} on The one" not in said


def test_both_numbers_share_the_draws(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Share of the quadrant and intervals of r over patients, by the recipe of docs/metrics.md §8.2."""
    place, written = run
    bounds = ("--auc", 0.8, "--pointing", 0.6)
    study(capsys, "gap", place, "--replicates", 60, "--no-overlays", *bounds, "--dataset", "two")
    data = answer(place, "gap")
    patients = sorted({row.patient_id for row in written["kad", "two"]})
    generator = np.random.Generator(np.random.PCG64(int.from_bytes(sha256(b"20251022 two").digest()[:8], "big")))
    number = {name: index for index, name in enumerate(patients)}
    draws = [np.bincount(generator.integers(0, 60, 60), minlength=60) for _ in range(60)]
    found = []
    for row in data["findings"]:
        own = [r for r in written[row["model"], "two"] if r.finding == row["class"]]
        label, logit = np.array([r.label for r in own]), np.array([r.logit for r in own])
        hit, owner = np.array([bool(r.hit) for r in own]), np.array([number[r.patient_id] for r in own])
        weights = [drawn[owner] for drawn in draws]
        auc = [roc_auc_score(label, logit, sample_weight=weight) for weight in weights]
        pointing = [np.average(hit[label == 1], weights=weight[label == 1]) for weight in weights]
        place_of = row["auc"] >= 0.8, row["pointing"] >= 0.6
        inside = [(a >= 0.8, p >= 0.6) == place_of for a, p in zip(auc, pointing, strict=True)]
        assert row["share"] == pytest.approx(mean(inside))
        flat = min(np.ptp(auc), np.ptp(pointing)) == 0
        assert row["together"] == (None if flat else pytest.approx(np.corrcoef(auc, pointing)[0, 1]))
        found.append((auc, pointing))
    assert any(0 < row["share"] < 1 for row in data["findings"])
    points = np.array(found).reshape(2, len(FINDINGS), 2, 60)
    centred = (points - points.mean(axis=1, keepdims=True)).reshape(1, -1, 2, 60)
    for row, own in zip(data["correlations"], (*points, *centred), strict=True):
        r = [np.corrcoef(own[..., draw].T)[0, 1] for draw in range(60)]
        assert (row["r_low"], row["r_high"]) == pytest.approx(tuple(np.percentile(r, [2.5, 97.5])))


def test_against_chance_baseline_and_reader(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    study(capsys, "gap", place, "--replicates", 60, "--no-overlays", "--pointing", 0.9)
    page = (place / "studies" / "gap" / "gap.md").read_text()
    assert all(f"minus {words}" in page for words in ("50", "chance", BASELINE, READER))
    rows = {
        (r["model"], r["dataset"], r["class"], r["measure"], r["against"]): r
        for r in answer(place, "gap")["references"]
    }
    assert len(rows) == 20 * 3 + 10
    raw: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (model, dataset, finding, measure, against), row in rows.items():
        auc, pointing, chance = values(written[model, dataset], finding)
        if measure == "auc":
            expected = auc - 0.5
        elif against == "chance":
            expected = pointing - chance
        else:
            expected = pointing - values(written[against, dataset], finding)[1]
        assert row["difference"] == pytest.approx(expected)
        raw.setdefault((measure, against), []).append(row)
    for (_, against), own in raw.items():
        tested = [row for row in own if row["p"] is not None]
        assert {row["family"] for row in tested} == {len(tested)}
        assert len(tested) == (10 if against == READER else 18 if own[0]["measure"] == "auc" else 20)
        assert min(r["p_holm"] for r in tested) == pytest.approx(min(1, len(tested) * min(r["p"] for r in tested)))
    assert rows["kad", "one", "Mass", "auc", "chance"]["p"] < 1e-6 < rows["kad", "one", "Edema", "auc", "chance"]["p"]
    assert rows["kad", "one", "Nodule", "auc", "chance"]["p"] > 0.05, "as its scores know nothing"
    sure = rows["kad", "one", "Nodule", "pointing", "chance"]
    assert sure["p"] < 1e-6 and sure["difference_low"] > 0.5


def test_correlation_over_findings(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    study(capsys, "gap", place, "--replicates", 60, "--no-overlays")
    rows = answer(place, "gap")["correlations"]
    assert [(r["model"], r["dataset"]) for r in rows[:-1]] == sorted(CELLS)
    centred = []
    for row in rows[:-1]:
        points = np.array([values(written[row["model"], row["dataset"]], name)[:2] for name in FINDINGS])
        centred.append(points - points.mean(axis=0))
        assert row["r"] == pytest.approx(np.corrcoef(points.T)[0, 1])
        assert row["spearman"] == pytest.approx(stats.spearmanr(*points.T).statistic)
        assert row["r_fisher_low"] < row["r"] < row["r_fisher_high"]
        assert (row["r_low"] is None) == (row["dataset"] == "one"), "its Fracture has no interval"
    assert rows[-1]["r"] == pytest.approx(np.corrcoef(np.concatenate(centred).T)[0, 1]) and rows[-1]["p"] is None


def test_examples_are_sure_misses_and_unsure_hits(run: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    place, written = run
    study(capsys, "gap", place, "--replicates", 40, "--no-overlays", "--auc", 0.75, "--top", 1, "--cases", 3)
    data = answer(place, "gap")
    rows = [r for r in data["examples"] if (r["model"], r["dataset"]) == ("kad", "one")]
    p_of = {r["class"]: r["p"] for r in data["findings"] if (r["model"], r["dataset"]) == ("kad", "one")}
    assert [r["end"] for r in rows] == ["recognised, not grounded"] * 3 + ["grounded, not recognised"] * 3
    for chosen, hit, sign in ((rows[:3], False, -1), (rows[3:], True, 1)):
        (finding,) = {r["class"] for r in chosen}
        own = [r for r in written["kad", "one"] if r.finding == finding and r.label and bool(r.hit) == hit]
        own.sort(key=lambda r: (sign * float(r.logit or 0), r.case_id))
        assert [r["case"] for r in chosen] == [r.case_id for r in own[:3]]
    assert rows[0]["class"] == "Mass" and p_of["Mass"] is not None


def test_overlays_figure_and_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = make_runs(tmp_path) / "run" / "run"
    said = study(capsys, "gap", world, "--replicates", 40, "--auc", 0.5, "--cases", 1)
    assert "No correlation: no model has 3 findings" in said
    files = answer(world, "gap")["files"]
    examples = answer(world, "gap")["examples"]
    assert {"gap.pdf", "gap.svg", "gap.png", "findings.csv"} < set(files)
    assert len(examples) == 2 and all((world / "studies" / "gap" / row["overlay"]).is_file() for row in examples)
    refused = study(capsys, "gap", world, "--model", "baseline:ones", code=1)
    assert "has no finding with both AUC and pointing: all its results are references" in refused
    assert "not in the range" in study(capsys, "gap", world, "--auc", 80, code=2)
