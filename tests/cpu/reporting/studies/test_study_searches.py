"""Studies seek best thresholds as the protocol of a cell does, so that they say what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from study_world import answer, dice, mean, pairs_of, stored, study
from synthetic import make_bundle, make_dataset
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results.choices import Choices

CELL = ("a", "coco")


@pytest.fixture(scope="module", params=["default", "paper", "mavl", "medklip"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A model with weak maps, for which the whole image is the best mask where the search may begin at 0."""
    folder = tmp_path_factory.mktemp(request.param)
    world, data = World(folder), make_dataset(folder / "data", 40)
    bundle = make_bundle(folder / "bundles" / "a")
    world.run([bundle.path], [DatasetConfig("coco", data, "coco")], protocol=request.param, sweep=sweep)
    return request.param, world.out


def classes_of(run: Path) -> dict[str, list[dict[str, Any]]]:
    return pairs_of(stored(run, *CELL))


def best_levels(protocol: str, classes: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """By loops: the level of the best mean Dice from the protocol's first threshold on, per class or for them all."""
    first = 1 if protocol in ("paper", "mavl") else 0
    curves = {name: [mean(dice(row, k) for row in own) for k in range(101)] for name, own in classes.items()}
    if protocol == "mavl":
        shared = [mean(curve[k] for curve in curves.values()) for k in range(101)]
        curves = dict.fromkeys(curves, shared)
    return {name: max(range(first, 101), key=lambda k, c=curve: (c[k], -k)) for name, curve in curves.items()}  # type: ignore[misc]


def test_the_search_is_the_protocols(run: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    protocol, path = run
    classes = classes_of(path)
    levels = best_levels(protocol, classes)
    expected = {name: mean(dice(row, levels[name]) for row in own) for name, own in classes.items()}
    said = study(capsys, "calibration", path, "--replicates", 40)
    study(capsys, "thresholds", path, "--replicates", 40)
    study(capsys, "failures", path, "--replicates", 40)
    line = {
        "paper": "protocol paper searches for best thresholds: from 0.01 on",
        "mavl": "protocol mavl searches for best thresholds: one for all classes of a dataset, from 0.01 on",
    }.get(protocol)
    assert line in said if line else "searches for best thresholds" not in said
    calibrated = {r["class"]: r for r in answer(path, "calibration")["classes"] if r["method"] == "best"}
    tuned = {r["class"]: r for r in answer(path, "thresholds")["sensitivity"]}
    failed = {r["class"]: r for r in answer(path, "failures")["classes"]}
    for name, value in expected.items():
        assert calibrated[name]["dice"] == pytest.approx(value)
        assert tuned[name]["dice_best"] == failed[name]["dice_best"] == pytest.approx(value)
        assert failed[name]["tau_best"] == levels[name] / 100
    (held,) = [r for r in answer(path, "calibration")["cells"] if r["method"] == "held_out"]
    assert held["dice"] == pytest.approx(tuned["mean"]["dice_cross_fitted"])
    cell = make_report(path, Choices(replicates=0)).results.cells[CELL]
    assert cell.number("dice_best").value == pytest.approx(mean(expected.values()))
    assert tuned["mean"]["dice_best"] == pytest.approx(cell.number("dice_best").value)
    assert tuned["mean"]["dice_cross_fitted"] == pytest.approx(cell.number("dice_cross_fitted").value)


def test_near_best_begins_with_the_search(run: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    protocol, path = run
    study(capsys, "thresholds", path, "--replicates", 40, "--within", 20)
    first = 1 if protocol in ("paper", "mavl") else 0
    for name, own in classes_of(path).items():
        curve = [mean(dice(row, k) for row in own) for k in range(101)]
        best = low = high = max(range(first, 101), key=lambda k, c=curve: (c[k], -k))  # type: ignore[misc]
        while low > first and curve[low - 1] >= 0.8 * curve[best]:
            low -= 1
        while high < 100 and curve[high + 1] >= 0.8 * curve[best]:
            high += 1
        (row,) = [r for r in answer(path, "thresholds")["sensitivity"] if r["class"] == name]
        assert [round(100 * row[f]) for f in ("tau_best", "near_low", "near_high")] == [best, low, high]
        assert row["near_width_low"] >= 0


def test_the_worlds_tell_the_searches_apart(run: tuple[str, Path]) -> None:
    """Without this the tests above would pass with any search."""
    protocol, path = run
    classes = classes_of(path)
    curves = {name: [mean(dice(row, k) for row in own) for k in range(101)] for name, own in classes.items()}
    plain = {name: int(np.argmax(curve)) for name, curve in curves.items()}
    if protocol in ("paper", "mavl"):
        assert best_levels(protocol, classes) != plain
    assert json.loads((path / "run.json").read_text())["cells"]["a--coco"]["protocol"] == protocol
