"""The headline of the benchmarks: its arithmetic, its rows over time, and what README says of it."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def grid(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module("grid")


def test_the_start_is_counted_once_and_the_slope_for_every_case(grid: Any) -> None:
    rounds = [
        {"prepared 4": grid.Spent(10.0 + extra, 14.0), "prepared 24": grid.Spent(30.0 + extra, 54.0)}
        for extra in (0.0, 1.0, 50.0)
    ]
    found = grid.extrapolate(rounds, "prepared", 24, 2)
    assert found["seconds"] == round(11 + 12_597 * 1.0) and found["cpu_seconds"] == round(14 + 12_597 * 2.0)
    assert found["seconds_if_all_cores_were_busy"] == found["cpu_seconds"] // 2


def test_one_row_for_each_commit_and_machine(grid: Any) -> None:
    rows: list[dict[str, Any]] = []
    for commit, cores, value in (("a", 2, 1), ("b", 2, 2), ("a", 4, 3), ("a", 2, 4)):
        rows = grid.kept_rows(rows, {"commit": commit, "machine": {"cores": cores}, "value": value})
    assert [(row["commit"], row["machine"]["cores"], row["value"]) for row in rows] == [
        ("a", 2, 4),
        ("b", 2, 2),
        ("a", 4, 3),
    ]


def test_readme_has_the_latest_row(root: Path, grid: Any) -> None:
    record = json.loads((root / "benchmarks" / "results" / "grid-cpu.json").read_text(encoding="utf-8"))
    latest = record["rows"][-1]
    assert record["cases"] == grid.CASES and record["models"] == list(grid.MODELS) and latest["machine"]["cores"] == 2
    text = (root / "README.md").read_text(encoding="utf-8")
    found = re.search(r"extrapolated from (\d+)\).* ([\d,]+) s from files, ([\d,]+) s from prepared images", text)
    assert found is not None
    assert int(found[1]) == latest["images"]
    for quoted, kind in zip(found.groups()[1:], grid.KINDS, strict=True):
        assert int(quoted.replace(",", "")) == latest[kind]["seconds_if_all_cores_were_busy"]
