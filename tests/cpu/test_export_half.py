"""`--precision fp16`: the types in the graph, what stays float32, and what the report says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from xbench_fast.engines.bundle import Bundle
from xbench_fast.export.metric_parity import metric_changes
from xbench_fast.export.pipeline import export_bundle

onnx = pytest.importorskip("onnx")
for package in ("torch", "onnxscript", "onnxruntime"):
    pytest.importorskip(package)
FLOAT, HALF = 1, 10


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return export_bundle("kad", tmp_path_factory.mktemp("half"), variant="demo", precision="fp16").bundle


def test_matrices_are_half_and_norms_and_softmax_are_not(half: Bundle) -> None:
    graph = onnx.shape_inference.infer_shapes(onnx.load(half.file("image"))).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type in ("MatMul", "Conv", "Gemm"):
            assert {types[name] for name in node.input} == {HALF}, node.op_type
        if node.op_type in ("Softmax", "LayerNormalization"):
            assert types[node.input[0]] == types[node.output[0]] == FLOAT, node.op_type
    assert {node.op_type for node in graph.node} >= {"Conv", "MatMul", "Softmax", "LayerNormalization"}
    assert [types[value.name] for value in (*graph.input, *graph.output)] == [2, FLOAT, FLOAT, FLOAT]
    assert half.name == "kad-demo-fp16" and half.manifest.variant == "demo-fp16"


def test_the_report_has_its_own_tolerance_and_the_metrics(half: Bundle) -> None:
    parity = half.manifest.parity
    image = [check for check in parity["worst_per_kind"] if check["output"] != "features"]
    text = [check for check in parity["worst_per_kind"] if check["output"] == "features"]
    assert {check["allowed"] for check in image} == {3e-2} and {check["allowed"] for check in text} == {1e-4}
    assert parity["passed"] is True and 1e-4 < max(check["needed"] for check in image) < 3e-2
    assert set(parity["metrics"]) == {"pairs", "hits_flipped", "dice_change", "auc_change"}
    assert parity["metrics"]["pairs"] == 220


def outputs(seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.normal(size=(8, 3)).astype(np.float32), random.random((8, 3, 6, 6), dtype=np.float32)


def test_nothing_changes_for_equal_outputs() -> None:
    same = metric_changes(outputs(0), outputs(0))
    assert same == {"pairs": 24, "hits_flipped": 0, "dice_change": 0.0, "auc_change": 0.0}


def test_auc_is_that_of_scikit_learn_and_a_moved_maximum_flips() -> None:
    (logits, maps), (other, _) = outputs(0), outputs(1)
    labels = np.arange(8) % 2 == 0
    change = max(abs(roc_auc_score(labels, logits[:, q]) - roc_auc_score(labels, other[:, q])) for q in range(3))
    assert metric_changes((logits, maps), (other, maps))["auc_change"] == pytest.approx(change)
    corner = np.zeros_like(maps)
    corner[..., 0, 0] = 1
    opposite = corner[..., ::-1, ::-1]
    flipped = metric_changes((logits, corner), (logits, np.ascontiguousarray(opposite)))
    assert flipped["hits_flipped"] > 0 and flipped["dice_change"] > 0


def test_the_file_is_half_as_large(half: Bundle, tmp_path: Path) -> None:
    full = export_bundle("kad", tmp_path, variant="demo").bundle
    assert half.file("image").stat().st_size < 0.7 * full.file("image").stat().st_size
