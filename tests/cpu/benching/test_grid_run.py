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


def test_a_command_that_fails_is_said(grid: Any, tmp_path: Path) -> None:
    setting = grid.Setting(tmp_path / "none")
    with pytest.raises(SystemExit, match=r"prepared ended with status \d: .*none"):
        grid.spend(setting, "prepared", tmp_path / "data", tmp_path / "out", tmp_path / "cache")
