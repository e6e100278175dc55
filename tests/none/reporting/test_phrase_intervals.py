"""Intervals of CNR and mIoU against a loop over replicates, and maps that their model has smoothed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.metrics_gpu.grounding.phrases import PhraseScores, phrase_means, scores_on_grid
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.sweep.masks import unpack_masks
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.reporting.phrase_tables import _intervals
from xbench_fast.runtime.results.run_json import read_run, store_run
from xbench_fast.runtime.results.selected_pairs import Patients


def test_maps_that_their_model_has_smoothed_are_not_smoothed_again(tmp_path: Path) -> None:
    """As bundles state it, and in results of older versions by model and map; a note names those models."""
    states = {"plain": 0.0, "once": 1.5, "wide": 3.0, "old": 0.0, "other": 0.0}
    bundles = [make_bundle(tmp_path / f"{name}-32", smoothing=sigma).path for name, sigma in states.items()]
    world = World(tmp_path)
    world.run(bundles, [DatasetConfig("coco", make_dataset(tmp_path / "data"), "coco")])
    data = read_run(world.out)
    assert {name: data["cells"][f"{name}-32--coco"]["smoothing"] for name in states} == states
    for name, choice in (("old", "official"), ("other", "patch-text")):
        del data["cells"][f"{name}-32--coco"]["smoothing"]
        data["cells"][f"{name}-32--coco"] |= {"model_family": "biovil", "saliency_map": choice}
    store_run(world.out, data)
    with pytest.raises(SystemExit) as ended:
        main(["report", str(world.out), "--protocol", "biovil", "--no-page", "--quiet", "--replicates", "0"])
    assert not ended.value.code
    told = json.loads((world.out / "report/report.json").read_text())["phrases"]
    found = {row["model"].removesuffix("-32"): row for row in told if not row["finding"]}
    kept = [row for row in world.table("plain-32--coco").to_pylist() if row["saliency"] is not None]

    def means(sigma: float) -> Any:
        scores = []
        for row in kept:
            saliency = np.array(row["saliency"], np.float32).reshape(4, 4)
            (region,) = unpack_masks(np.frombuffer(row["region"], np.uint8).reshape(1, 224, 28), 224)
            scores.append(scores_on_grid(saliency, region, tuple(row["frame"]), sigma=sigma))
        return phrase_means(scores, [row["finding"] for row in kept])

    for sigma, names in ((1.5, ("plain", "other")), (0.0, ("once", "wide", "old"))):
        for name in names:
            assert (found[name]["cnr"], found[name]["miou"]) == (means(sigma).cnr, means(sigma).miou), name
    assert found["once"]["cnr"] != found["plain"]["cnr"]
    assert {name: row["smoothing"] for name, row in found.items()} == {**states, "old": 1.5}
    text = (world.out / "report/tables.md").read_text()
    assert "smoothed by the model itself, so not smoothed again: once-32, wide-32, old-32" in text
    assert "with another Gaussian than the protocol's 1.5 cells: wide-32 (3 cells)" in text


def test_intervals_are_those_of_a_loop_over_the_drawn_patients() -> None:
    rng = np.random.default_rng(6)
    number, groups = 90, 30
    class_of, of_pair = rng.integers(0, 2, number), rng.integers(0, groups, number)
    class_of[:2], of_pair[:2] = 2, (0, 1)  # a finding of two patients has no interval of its own
    scores = []
    for place in range(number):
        if place % 9 == 8:
            scores.append(PhraseScores(math.nan, (math.nan,) * 5, unseen=True))
        else:
            # A region that fills what the model saw has an IoU and no CNR.
            cnr = math.nan if place % 10 == 7 else float(rng.normal())
            scores.append(PhraseScores(cnr, tuple(rng.random(5).tolist())))
    draws = draw_patients(groups, 200, 3)
    patients = Patients("d", {str(place): place for place in range(groups)}, draws, np.zeros((1, groups), np.intp))
    found = _intervals(scores, class_of.astype(np.intp), of_pair.astype(np.intp), patients)
    values = {
        "cnr": [score.cnr for score in scores],
        "cnr_absolute": [abs(score.cnr) for score in scores],
        "iou@0.3": [score.iou[2] for score in scores],
        "miou": [score.miou for score in scores],
        "miou_with_unseen": [0.0 if score.unseen else score.miou for score in scores],
    }
    for name, each in values.items():
        drawn: list[list[float]] = [[], [], []]
        for counts in draws.counts.tolist():
            means = []
            for finding in range(3):
                own = [(counts[of_pair[p]], each[p]) for p in range(number) if class_of[p] == finding]
                own = [(count, value) for count, value in own if count and not math.isnan(value)]
                if own:
                    means.append(sum(count * value for count, value in own) / sum(count for count, _ in own))
                    if finding < 2:
                        drawn[finding].append(means[-1])
            drawn[2].append(sum(means) / len(means))
        for place, column in ((0, drawn[0]), (1, drawn[1]), (3, drawn[2])):
            at = found[place][name]
            assert at is not None
            assert (at.low, at.high) == pytest.approx(np.percentile(column, [2.5, 97.5]), abs=1e-9)
        assert found[2][name] is None
    none = _intervals(
        scores, class_of.astype(np.intp), of_pair.astype(np.intp), Patients("d", {}, None, np.zeros((1, 0), np.intp))
    )
    assert not any(none)
