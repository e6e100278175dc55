"""Layers of a graph and their randomised weights, against goldens of an independent implementation."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import make_bundle, prompt_set, save_graph
from trust_graphs import fixed_map_bundle, golden_bundle, save_nodes
from xbench_fast.engines.backends.ort import CpuEngine
from xbench_fast.engines.bundle import Bundle, change_bundle
from xbench_fast.engines.errors import BundleError
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.trust.similarity import spearman, ssim
from xbench_fast.runtime.reporting.tables.stamps import stamp
from xbench_fast.runtime.trust.probes.probe import RULES
from xbench_fast.runtime.trust.probes.randomisation import exchanged_prompts
from xbench_fast.runtime.trust.probes.randomised import RandomisedGraph, graph_layers, randomised_values

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def golden(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "tests/golden/trust" / "randomisation.json").read_text())
    return found


@pytest.fixture(scope="module")
def tiny(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return golden_bundle(tmp_path_factory.mktemp("tiny"), root / "tests/golden/trust" / "tiny.onnx")


def test_layers_and_what_they_reach(golden: dict[str, Any], tiny: Bundle) -> None:
    layers = RandomisedGraph(tiny).layers
    assert [
        {"tensors": list(layer.tensors), "feeds_saliency": layer.feeds_saliency, "feeds_logits": layer.feeds_logits}
        for layer in layers
    ] == golden["layers"]


def test_permuted_and_redrawn_values(golden: dict[str, Any], tiny: Bundle) -> None:
    model = onnx.load(str(tiny.file("image")))
    values = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    for name, wanted in golden["tensors"].items():
        permuted = randomised_values(values[name], golden["seed"], wanted["k"], "permute")
        assert hashlib.sha256(permuted.tobytes()).hexdigest() == wanted["permuted_sha256"]
        redrawn = randomised_values(values[name], golden["seed"], wanted["k"], "redraw")
        assert redrawn.dtype == np.float32 and redrawn.shape == values[name].shape
        assert redrawn.reshape(-1)[:4] == pytest.approx(wanted["redrawn_first"], abs=1e-6)


def test_logits_and_maps_of_every_step(golden: dict[str, Any], tiny: Bundle, root: Path) -> None:
    arrays = np.load(root / "tests/golden/trust" / "randomisation.npz")
    graph = RandomisedGraph(tiny)
    with CpuEngine(tiny, threads=1) as engine:
        trained = engine.run(arrays["films"][:, None], arrays["text"])
    assert np.abs(trained.logits - golden["original_logits"]).max() < 1e-4
    assert np.abs(trained.saliency - arrays["saliency"]).max() < 1e-4
    first = trained.saliency.reshape(-1, 14, 14)
    digests = {tiny.digest}
    for step in golden["steps"]:
        place = step["layer"]
        chosen = graph.layers[place:] if step["mode"] == "cascade" else [graph.layers[place]]
        with graph.bundle(chosen, golden["seed"], step["rule"]) as bundle, CpuEngine(bundle, threads=1) as engine:
            assert bundle.manifest.weights == "randomised" and set(bundle.manifest.graphs) == {"image"}
            digests.add(bundle.digest)
            found = engine.run(arrays["films"][:, None], arrays["text"])
        assert not bundle.path.exists()
        assert np.abs(found.logits - step["logits"]).max() < 1e-4, step
        cells = found.saliency.reshape(*found.saliency.shape[:2], -1)[..., :2]
        assert np.abs(cells - step["saliency_first_cells"]).max() < 1e-4, step
        maps = found.saliency.reshape(-1, 14, 14)
        assert spearman(first, maps).mean() == pytest.approx(step["mean_spearman_grid"], abs=1e-4)
        full, other = (np.stack([scaled_map(each) for each in maps_]) for maps_ in (first, maps))
        assert ssim(full, other).mean() == pytest.approx(step["mean_ssim_224"], abs=1e-4)
    assert len(digests) == 15, "each step but the two equal pairs has a hash of its own"
    assert "randomised weights" in stamp("randomised")


def test_seeds_and_tensors_differ_and_the_spread_stays() -> None:
    values = np.random.default_rng(0).normal(3, 2, (50, 40)).astype(np.float32)
    for rule in RULES:
        found = [randomised_values(values, seed, number, rule) for seed, number in ((0, 0), (0, 1), (1, 0), (0, 0))]
        assert np.array_equal(found[0], found[3])
        assert not np.array_equal(found[0], found[1]) and not np.array_equal(found[0], found[2])
        assert found[0].mean() == pytest.approx(3, abs=0.2) and found[0].std() == pytest.approx(2, abs=0.1)
    assert np.array_equal(np.sort(randomised_values(values, 5, 7, "permute"), axis=None), np.sort(values, axis=None))
    assert randomised_values(values.astype(np.float16), 0, 0, "redraw").dtype == np.float16


def test_a_constant_that_is_named_is_left_as_it_is(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "smooth", graph=save_graph(tmp_path / "smooth.onnx"))
    learnt = [layer.tensors for layer in RandomisedGraph(bundle).layers]
    assert learnt == [("kernel", "ramp")]

    def named(name: str) -> Bundle:
        files = {each: bundle.path / each for each in bundle.manifest.files}
        return change_bundle(bundle.path, lambda old, folder: (replace(old.manifest, not_learnt=(name,)), files))

    ((tensors),) = [layer.tensors for layer in RandomisedGraph(named("ramp")).layers]
    assert tensors == ("kernel",)
    with pytest.raises(BundleError, match="has no learnt layer"):
        RandomisedGraph(named("kernel"))
    with pytest.raises(BundleError, match="has no tensor 'ramps', which bundle"):
        RandomisedGraph(named("ramps"))


def test_only_float_weights_that_are_finite_and_many_open_a_layer(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    arrays = {
        "mask": np.full((4, 4), -np.inf, np.float32),
        "scalar": np.float32(2),
        "single": np.ones((1, 1), np.float32),
        "whole": np.ones((4, 4), np.int64),
        "wide": np.ones((4, 4), np.float32),
    }
    nodes = [node("MatMul", [name, name], [f"{name}-out"]) for name in arrays if name != "scalar"]
    model = onnx.load(str(save_nodes(tmp_path / "g.onnx", [*nodes, node("Mul", ["scalar", "wide"], ["o"])], arrays)))
    assert [layer.tensors for layer in graph_layers(model)] == [("wide",)]


def test_a_tensor_used_in_a_branch_reaches_the_output(tmp_path: Path) -> None:
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    branch = h.make_graph(
        [h.make_node("Identity", ["made"], ["b"])], "b", [], [h.make_tensor_value_info("b", kind, [])]
    )
    nodes = [
        h.make_node("MatMul", ["text", "weights"], ["made"]),
        h.make_node("If", ["yes"], ["saliency"], then_branch=branch, else_branch=branch),
    ]
    arrays = {"weights": np.ones((2, 2), np.float32), "yes": np.array(True)}
    (layer,) = graph_layers(onnx.load(str(save_nodes(tmp_path / "g.onnx", nodes, arrays))))
    assert layer.feeds_saliency and not layer.feeds_logits


def test_layers_of_the_score_alone(tmp_path: Path) -> None:
    layers = RandomisedGraph(fixed_map_bundle(tmp_path / "fixed")).layers
    assert [(layer.tensors, layer.feeds_saliency, layer.feeds_logits) for layer in layers] == [
        (("kernel", "bias"), False, True),
        (("head",), False, True),
    ], "the mean of the pixels is used before the first layer"


def test_int8_is_refused(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b", graph=save_graph(tmp_path / "b.onnx"))
    with pytest.raises(BundleError, match="b is computed in INT8, and its weights cannot be randomised"):
        RandomisedGraph(replace(bundle, manifest=replace(bundle.manifest, precision="int8")))


@pytest.mark.parametrize("several", [False, True])
def test_every_finding_is_asked_with_the_features_of_another(several: bool) -> None:
    prompts = prompt_set(several=several)
    for seed in range(5):
        found = exchanged_prompts(prompts, seed)
        positive = {place: found.features[(found.finding_of == place) & (found.polarity > 0)] for place in range(3)}
        before = {place: prompts.features[(prompts.finding_of == place) & (prompts.polarity > 0)] for place in range(3)}
        sources = [
            [place for place in before if all(any((row == old).all() for old in before[place]) for row in rows)]
            for rows in positive.values()
        ]
        assert all(len(each) == 1 and each[0] != place for place, each in enumerate(sources))
        assert sorted(each[0] for each in sources) == [0, 1, 2]
        assert found.features.shape == prompts.features.shape
