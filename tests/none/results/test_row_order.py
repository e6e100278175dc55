"""Numbers do not depend on the order of a run's rows, nor on the shards that it was merged from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from result_rows import ResultRow
from stored_counts import CLASSES, add_cell, other_answers, random_rows
from xbench_fast.runtime.reporting.csv_and_json import to_json
from xbench_fast.runtime.reporting.report import make_report
from xbench_fast.runtime.results.choices import Choices
from xbench_fast.runtime.results.run_directory import RunDirectory


def shuffled(rows: list[ResultRow], order: np.ndarray) -> list[ResultRow]:
    """The rows with their cases in another order."""
    width = len(CLASSES)
    return [row for case in order.tolist() for row in rows[width * case : width * (case + 1)]]


def report_of(path: Path, order: np.ndarray, choices: Choices) -> tuple[dict[str, Any], list[Any]]:
    """report.json of a run with its cases in this order, and the cells of its tables."""
    one = random_rows(1)
    with RunDirectory(path) as made:
        made.begin({})
        for model, rows in {"kad": one, "clip": other_answers(one, 4)}.items():
            for place, dataset in enumerate(("one", "two")):
                add_cell(made, model, dataset, shuffled(rows, np.roll(order, place)))
        ones = {"model_family": "", "ties": "expected"}
        for row in one:
            if row.area is not None:
                row.area, row.overlap = np.full(101, 224 * 224, np.int32), np.full(101, row.region_area, np.int32)
        add_cell(made, "baseline:ones", "one", shuffled(one, order), "baseline", **ones)
    report = make_report(path, choices)
    told = json.loads(json.dumps(to_json(report.results, report.blocks, report.run.data)))
    del told["run"]
    return told, [[str(cell) for cell in row] for table in report.tables for row in table.rows]


@pytest.mark.parametrize(
    "choices",
    [{}, {"ties": "expected", "best": "per_dataset", "mean": "micro", "iou_at": "independent"}, {"best": "per_model"}],
    ids=["default", "per dataset, micro, expected ties", "per model"],
)
def test_a_run_with_shuffled_rows_has_the_same_report(tmp_path: Path, choices: dict[str, Any]) -> None:
    asked = Choices(replicates=50, seed=3, **choices)
    told = report_of(tmp_path / "plain", np.arange(30), asked)
    assert len(told[0]["cells"]) == 5
    rng = np.random.default_rng(0)
    shards = np.concatenate([np.arange(start, 30, 3) for start in (1, 0, 2)])
    for name, order in (("shards", shards), ("shuffled", rng.permutation(30))):
        assert report_of(tmp_path / name, order, asked) == told
