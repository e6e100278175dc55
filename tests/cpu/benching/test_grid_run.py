"""The headline's benchmark as it is run, with one small model instead of seven."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import synthetic


@pytest.fixture
def grid(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    found = importlib.import_module("grid")
    monkeypatch.setattr(found, "MODELS", {"blocks": "32"})
    monkeypatch.setattr(found, "use_checkout", lambda: None)
    return found


def test_images_are_prepared_and_then_evaluated_in_the_batch_asked_for(
    grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    findings = ("Effusion", "Mass")
    synthetic.make_bundle(tmp_path / "bundles/blocks-32", graph=graph, sets=("chestxdet10",), findings=findings)
    runs: list[tuple[str, bool, dict[str, Any]]] = []
    real = grid.spend

    def spend(setting: Any, kind: str, data: Path, out: Path, cache: Path) -> Any:
        ready = cache.exists()
        spent = real(setting, kind, data, out, cache)
        runs.append((kind, ready, json.loads((out / "run.json").read_text()) if kind != "prepare" else {}))
        return spent

    monkeypatch.setattr(grid, "spend", spend)
    line = ["grid.py", "--bundles", str(tmp_path / "bundles"), "--images", "6", "--side", "48", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", [*line, "--batch", "3", "--json", str(tmp_path / "grid.json")])
    grid.main()
    kinds = ["prepare", "prepared", "from_files"]
    assert [(kind, ready) for kind, ready, _ in runs] == [(kind, kind == "prepared") for kind in kinds * 2]
    for _, _, run in runs:
        for cell in run.get("cells", {}).values():
            assert cell["ingredients"]["batch"] == 3 and cell["ingredients"]["engine"].startswith("onnxruntime-cpu")
    (row,) = json.loads((tmp_path / "grid.json").read_text())["rows"]
    assert (row["engine"], row["precision"], row["batch"], row["images"]) == ("onnxruntime-cpu", "fp32", 3, 6)
    assert set(grid.KINDS) <= set(row)


def test_the_grid_is_compared_by_model(grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With made-up costs: an image costs 4 s in float32, 1 in INT8, and each further prompt set half an image."""
    compared = importlib.import_module("grid_compared")
    monkeypatch.setattr(compared, "MODELS", {"blocks": "32", "more": "32"})
    monkeypatch.setattr(grid, "MODELS", {"blocks": "32", "more": "32"})
    monkeypatch.setattr(compared, "use_checkout", lambda: None)
    monkeypatch.setattr(compared, "export_missing", lambda setting: None)
    monkeypatch.setattr(compared, "encode_missing", lambda setting, folder: None)
    commands: list[list[str]] = []

    def spend(setting: Any, kind: str, data: Path, out: Path, cache: Path) -> Any:
        commands.append(setting.command(kind, data, out, cache))
        images = len(list((data / "test_data").iterdir()))
        each = 1 if setting.precision == "int8" else 4 + 2 * max(len(setting.prompts) - 1, 0)
        return grid.Spent(0.0, 3 + images * each)

    monkeypatch.setattr(compared, "spend", spend)
    for name in ("blocks", "more"):
        (tmp_path / f"{name}-32-int8").mkdir()
        metrics = {"images": 30, "pairs": 39, "hits_flipped": 1, "dice_change": 0.01, "auc_change": 0.0, "findings": 9}
        (tmp_path / f"{name}-32-int8" / "bundle.json").write_text(json.dumps({"parity": {"metrics": metrics}}))
    file = tmp_path / "compared.json"
    line = ["grid_compared.py", "--bundles", str(tmp_path), "--images", "6", "--side", "48", "--sets", "3"]
    monkeypatch.setattr(sys, "argv", [*line, "--json", str(file)])
    compared.main()
    (row,) = json.loads(file.read_text())["rows"]
    assert row["int8_times_less_cpu"] == 4.0 and row["sets_times_the_cpu"] == 2.0 and row["sets"] == 3
    assert row["cpu_seconds"]["fp32"] == 2 * (3 + 4 * grid.CASES)
    assert row["models"]["more"]["verdict"] == {key: metrics[key] for key in list(metrics)[:5]}
    evaluations = [command for command in commands if "eval" in command]
    assert len(evaluations) == 2 * 2 * 2 * 3, "models, rounds, samples, settings"
    assert sum(command.count("--prompts") for command in evaluations) == 8 * 3
    assert sum("blocks-32-int8" in command for command in evaluations) == 4


def test_a_command_that_fails_is_said(grid: Any, tmp_path: Path) -> None:
    setting = grid.Setting(tmp_path / "none")
    with pytest.raises(SystemExit, match=r"prepared ended with status \d: .*none"):
        grid.spend(setting, "prepared", tmp_path / "data", tmp_path / "out", tmp_path / "cache")
