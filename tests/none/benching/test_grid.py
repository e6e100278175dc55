"""The headline of the benchmarks: its arithmetic, its rows over time, and what docs/performance.md says of it."""

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


def test_noise_is_not_extrapolated(grid: Any) -> None:
    found = grid.extrapolate([{"prepared 4": grid.Spent(10.0, 14.0), "prepared 24": grid.Spent(9.0, 15.0)}],
                             "prepared", 24, 2)  # fmt: skip
    assert found["seconds"] is None and found["cpu_seconds"] == 14 + round(12_597 / 20)
    assert grid.shown("prepared", found).endswith("more images took no longer; raise --images or --rounds")


def test_a_sample_of_all_cases_is_not_extrapolated(grid: Any) -> None:
    found = grid.extrapolate([{"prepared 4": grid.Spent(3.0, 9.0), "prepared 12601": grid.Spent(14.2, 90.0)}],
                             "prepared", grid.CASES, 16)  # fmt: skip
    assert (found["seconds"], found["cpu_seconds"]) == (14, 90)


def test_engine_batch_and_precision_reach_the_commands(grid: Any, tmp_path: Path) -> None:
    setting = grid.Setting(tmp_path, "tensorrt", "fp16", 256)
    prepare, prepared = (
        setting.command(kind, tmp_path / "data", tmp_path / "out", tmp_path / "cache")
        for kind in ("prepare", "prepared")
    )
    assert prepare[2:4] == ["fast", "prepare"] and prepared[2:4] == ["fast", "eval"]
    assert "--engine" not in prepare and prepared[prepared.index("--engine") + 1] == "tensorrt"
    assert prepared[-2:] == ["--batch", "256"] and prepared.count("--model") == 7 and "kad-224-fp16" in prepared
    for line in (prepare, prepared):
        assert line[line.index("--cache") + 1] == str(tmp_path / "cache")
    assert "kad-224" in grid.Setting(tmp_path).command("from_files", tmp_path, tmp_path, tmp_path)


def test_engines_and_batches_have_rows_of_their_own(grid: Any) -> None:
    rows: list[dict[str, Any]] = [{"commit": "a", "machine": {}, "value": 0}]
    for engine, batch, value in (("tensorrt", 64, 1), ("tensorrt", 256, 2), ("tensorrt", 64, 3)):
        row = {"commit": "a", "machine": {}, "engine": engine, "precision": "fp16", "batch": batch, "value": value}
        rows = grid.kept_rows(rows, row)
    old = {"commit": "a", "machine": {}, "engine": "onnxruntime-cpu", "precision": "fp32", "batch": None, "value": 9}
    assert [row["value"] for row in grid.kept_rows(rows, old)] == [9, 3, 2], "a row that names no engine is the CPU's"


def test_each_round_is_kept_and_a_copy_without_history_has_no_commit(
    grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third round fails; the row has the two before it."""
    turns = iter((1.0, 2.0))

    def one_round(setting: Any, samples: Any, kinds: Any) -> Any:
        seconds = next(turns, None)
        if seconds is None:
            raise SystemExit("not every cell was evaluated")
        return {f"{kind} {count}": grid.Spent(seconds, seconds) for kind in kinds for count in samples}

    monkeypatch.setattr(grid, "one_round", one_round)
    monkeypatch.setattr(grid, "ROOT", tmp_path)  # a folder without a repository
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    out, samples = tmp_path / "grid.json", {4: tmp_path, 24: tmp_path}
    with pytest.raises(SystemExit, match="not every cell"):
        grid.measure(grid.Setting(tmp_path), samples, ("prepared",), 3, out)
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["rounds"], row["commit"], row["engine"]) == (2, "unknown", "onnxruntime-cpu")
    assert row["prepared"]["seconds"] is None, "24 images took as long as 4: there is nothing to extrapolate"


def test_one_row_for_each_commit_and_machine(grid: Any) -> None:
    rows: list[dict[str, Any]] = []
    for commit, cores, value in (("a", 2, 1), ("b", 2, 2), ("a", 4, 3), ("a", 2, 4)):
        rows = grid.kept_rows(rows, {"commit": commit, "machine": {"cores": cores}, "value": value})
    assert [(row["commit"], row["machine"]["cores"], row["value"]) for row in rows] == [
        ("a", 2, 4),
        ("b", 2, 2),
        ("a", 4, 3),
    ]


def test_the_page_has_the_latest_row(root: Path, grid: Any) -> None:
    record = json.loads((root / "benchmarks" / "results" / "grid-cpu.json").read_text(encoding="utf-8"))
    latest = record["rows"][-1]
    assert record["cases"] == grid.CASES and record["models"] == list(grid.MODELS) and latest["machine"]["cores"] == 2
    text = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    found = re.search(r"extrapolated from (\d+)\).* ([\d,]+) s from files, ([\d,]+) s from prepared images", text)
    assert found is not None
    assert int(found[1]) == latest["images"]
    for quoted, kind in zip(found.groups()[1:], ("from_files", "prepared"), strict=True):
        assert int(quoted.replace(",", "")) == latest[kind]["seconds_if_all_cores_were_busy"]
