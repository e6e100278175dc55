"""`xbench-fast study thresholds --at`: fixed thresholds, each against 0.5, by loops over the stored rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_world import PIXELS, answer, dice, make_runs, mean, pairs_of, stored, study


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("studies"))


def iou(row: dict[str, Any], k: int) -> float:
    return row["overlap"][k] / (row["area"][k] + row["region_area"] - row["overlap"][k])


def flipped(added: list[float]) -> float:
    """Share of random sign patterns that are at least as extreme."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (20_000, len(added)))
    return mean(np.abs(signs @ np.array(added)) >= abs(sum(added)) - 1e-12)


def test_fixed_thresholds(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Scores, differences from 0.5 and their tests by loops over the stored rows."""
    run = world / "run" / "run"
    study(capsys, "thresholds", run, "--replicates", 60, "--at", 0.9, "--at", 0.55, "--at", 0.5, "--at", 0.9)
    data = answer(run, "thresholds")
    assert data["settings"]["at"] == [0.5, 0.55, 0.9]
    rows = {(r["model"], r["dataset"], r["class"], r["tau"]): r for r in data["fixed"]}
    assert len(rows) == len(data["fixed"])
    raw: dict[str, list[float]] = {"dice": [], "iou": []}
    for model in ("a", "b"):
        means: dict[tuple[str, float], list[float]] = {}
        sums: dict[tuple[str, float], dict[str, float]] = {}
        for dataset in ("coco", "second"):
            classes = pairs_of(stored(run, model, dataset))
            for tau in (0.5, 0.55, 0.9):
                k = round(100 * tau)
                for score, at in (("dice", dice), ("iou", iou)):
                    values = {name: mean(at(row, k) for row in own) for name, own in classes.items()}
                    for name, value in (*values.items(), ("mean", mean(values.values()))):
                        assert rows[model, dataset, name, tau][score] == pytest.approx(value)
                    means.setdefault((score, tau), []).append(mean(values.values()))
                    added = sums.setdefault((score, tau), {})
                    for own in classes.values():
                        for row in own:
                            patient = f"{dataset} {row['patient_id'] or row['case_id']}"
                            gap = (at(row, k) - at(row, 50)) / len(own) / len(classes) / 2
                            added[patient] = added.get(patient, 0.0) + gap
                    row = rows[model, dataset, "mean", tau]
                    part = {name: 2 * gap for name, gap in added.items() if name.startswith(f"{dataset} ")}
                    if tau == 0.5:
                        assert row[f"{score}_difference"] is row[f"{score}_p"] is None
                    else:
                        raw[score] += [row[f"{score}_p"]]
                        assert row[f"{score}_difference"] == pytest.approx(sum(part.values()))
                        assert row[f"{score}_p"] == pytest.approx(flipped(list(part.values())), abs=0.02)
                        ends = row[f"{score}_difference_low"], row[f"{score}_difference_high"]
                        assert ends[0] <= row[f"{score}_difference"] <= ends[1]
                marked = mean(mean(r["area"][k] / PIXELS for r in own) for own in classes.values())
                assert rows[model, dataset, "mean", tau]["area"] == pytest.approx(marked)
            (old,) = [
                r for r in data["sensitivity"] if (r["model"], r["dataset"], r["class"]) == (model, dataset, "mean")
            ]
            for end in ("", "_low", "_high"):
                assert rows[model, dataset, "mean", 0.5][f"dice{end}"] == pytest.approx(old[f"dice_fixed{end}"])
        for (score, tau), values in means.items():
            row = rows[model, "mean of datasets", "mean", tau]
            assert row[score] == pytest.approx(mean(values)) and row["n"] == 29
            if tau != 0.5:
                raw[score] += [row[f"{score}_p"]]
                assert row[f"{score}_p"] == pytest.approx(flipped(list(sums[score, tau].values())), abs=0.02)
    bands = [r for r in data["curves"] if r["tau"] == 0.9 and r["class"] == "mean" and r["iou_low"] is not None]
    assert {r["dataset"] for r in bands} == {"coco"}, "the other dataset has too few patients for the bootstrap"
    for band in bands:
        row = rows[band["model"], "coco", "mean", 0.9]
        for end in ("dice_low", "dice_high", "iou_low", "iou_high"):
            assert row[end] == pytest.approx(band[end])
    for score, values in raw.items():
        tested = [r for r in data["fixed"] if r[f"{score}_p"] is not None]
        assert {r["model"] for r in tested} == {"a", "b"} and {r["class"] for r in tested} == {"mean"}
        assert {r[f"{score}_family"] for r in tested} == {len(values)} == {12}
        assert min(r[f"{score}_p_holm"] for r in tested) == pytest.approx(min(1, 12 * min(values)))
    row = rows["baseline:ones", "coco", "mean", 0.9]
    assert row["dice_difference"] == 0 and row["dice_p"] is None


@pytest.mark.parametrize("wrong", ["0.333", "1.01", "-0.1", "nan", "inf"])
def test_thresholds_that_were_not_counted(world: Path, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = study(capsys, "thresholds", world / "run" / "run", f"--at={wrong}", code=2)
    assert f"--at {float(wrong):g} was not counted: maps are counted at the 101 steps" in said
