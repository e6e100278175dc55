"""Tests that need a GPU, called over the device made of arrays, so that on a real one no mistake of theirs shows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fake_onnxruntime
import fake_tensorrt
import pytest
from synthetic import make_bundle, save_graph
from xbench_fast.engines.bundle import Bundle


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"called_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cupy(device: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch_on_cpu").install(monkeypatch)
    monkeypatch.setitem(sys.modules, "onnxruntime", fake_onnxruntime.make(device.streams))
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", fake_tensorrt.make("1.7.1.116", device.streams))
    return device


@pytest.fixture
def blocks(tmp_path: Path) -> Bundle:
    pytest.importorskip("onnx")
    return make_bundle(tmp_path / "blocks-32", several=True, graph=save_graph(tmp_path / "graph.onnx"))


def test_the_sweeps(root: Path, cupy: Any) -> None:
    module = loaded(root / "tests/gpu/metrics_gpu/test_sweep_gpu.py")
    module.test_equals_the_cpu(cupy, (14, 14), (33, 41), "bilinear")
    module.test_means_of_maps_have_the_bits_of_numpys(cupy, (3, 1))


@pytest.mark.parametrize("name", ["tensorrt", "tensorrt-rtx", "torch", "onnxruntime-cuda"])
def test_the_engines(root: Path, cupy: Any, blocks: Bundle, tmp_path: Path, name: str) -> None:
    module = loaded(root / "tests/gpu/evaluation/test_evaluation_gpu.py")
    assert module.REASONS[name]() is None
    module.test_slots_overlap_and_keep_their_scores(name, blocks, cupy)
    module.test_the_last_gpu_has_the_scores_of_the_first(name, blocks, cupy)
    (tmp_path / name).mkdir()
    module.compared(tmp_path / name, name, blocks, images=9, batch=4)


def test_the_captures_of_onnxruntime(root: Path, cupy: Any, blocks: Bundle) -> None:
    module = loaded(root / "tests/gpu/evaluation/test_evaluation_gpu.py")
    module.test_padded_launches_of_onnxruntime_are_captured(blocks, cupy)


def test_the_captures_of_torch(root: Path, cupy: Any, blocks: Bundle) -> None:
    loaded(root / "tests/gpu/evaluation/test_torch_gpu.py").test_launches_are_captured_and_replayed(blocks, cupy)


@pytest.mark.parametrize("lacking", [None, "tensorrt"])
def test_the_captures(
    root: Path, cupy: Any, blocks: Bundle, monkeypatch: pytest.MonkeyPatch, lacking: str | None
) -> None:
    if lacking:
        monkeypatch.setitem(sys.modules, lacking, None)
    loaded(root / "tests/gpu/evaluation/test_evaluation_gpu.py").test_launches_are_captured_and_replayed(blocks, cupy)
