"""A small run with everything a study may ask for, and its rows as a test's own loops want them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluation_world import World
from synthetic import make_bundle, make_dataset
from xbench_fast.engines.geometry import Geometry
from xbench_fast.runtime.cli.app import main
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_json import read_run, store_run

PIXELS = 224 * 224


def make_runs(root: Path) -> Path:
    """run/run: models a, b (a crop) and a baseline on two datasets that tables call alike; other/run: a with other
    prompts on the first, which is read under two names there."""
    for folder in ("run", "other"):
        (root / folder).mkdir()
    first, second = make_dataset(root / "first", 30), make_dataset(root / "second", 20, seed=5, missing=(3,))
    alike = {"title": "coco"}
    config = [
        DatasetConfig("coco", first, "coco", options=alike),
        DatasetConfig("second", second, "coco", prompts="coco", options=alike),
    ]
    one = make_bundle(root / "bundles" / "a")
    crop = make_bundle(root / "bundles" / "b", several=True, geometry=Geometry("crop", 32, 36, "bilinear"))
    made = World(root / "run")
    made.run([one.path, crop.path], config, baselines=["baseline:ones"])
    _configured(config, made.out)
    other = World(root / "other")
    twice = [config[0], DatasetConfig("again", first, "coco", prompts="coco", options=alike)]
    other.run([make_bundle(root / "others" / "a", several=True).path], twice)
    _configured(twice, other.out)
    return root


def _configured(config: list[DatasetConfig], run: Path) -> None:
    """Notes in run.json where the datasets are, as the command line does."""
    data = read_run(run)
    data["config"] = {
        "datasets": {
            item.name: {"root": str(item.root), "reader": item.reader, "options": dict(item.options)} for item in config
        }
    }
    store_run(run, data)


def study(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["study", *map(str, arguments)])
    said = capsys.readouterr()
    assert stop.value.code == code, said.err
    return said.out if code == 0 else said.err


def answer(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "studies" / name / f"{name}.json").read_text())
    return found


def stored(run: Path, model: str, dataset: str) -> list[dict[str, Any]]:
    entry = json.loads((run / "run.json").read_text())["cells"][f"{model}--{dataset}"]
    rows: list[dict[str, Any]] = pq.read_table(run / entry["file"]).to_pylist()
    return rows


def pairs_of(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        if row["area"] is not None:
            found[row["finding"]].append(row)
    return found


def dice(row: dict[str, Any], k: int) -> float:
    return 2 * row["overlap"][k] / (row["area"][k] + row["region_area"])


def mean(values: Any) -> float:
    return float(np.mean(list(values)))
