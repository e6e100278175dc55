"""The graphs of all models through TensorRT's own parser and builder, which need no GPU in TensorRT for RTX.

That the plans run, and how fast, only a GPU can show. The models are small; their operators are those of the real ones.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xbench_fast.engines.backends.gpu import Gpu
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.plans.build import build_plan
from xbench_fast.engines.plans.family import load_family
from xbench_fast.engines.plans.key import Profile, plan_key
from xbench_fast.engines.plans.store import PlanStore, provide_plan

pytest.importorskip("torch")
pytest.importorskip("tensorrt_rtx", reason="TensorRT for RTX is not installed")

from small_models import MODELS, small_adapter
from xbench_fast.export.half_precision import lower
from xbench_fast.export.int8 import Recipe, quantise
from xbench_fast.export.onnx_graph import export_image, opset_for
from xbench_fast.export.parity.probes import probe_images

CAPABILITY = "8.0"
PROFILE = Profile((1, 4, 8), (1, 6, 6))


@pytest.fixture(scope="module")
def family():
    return load_family("tensorrt-rtx")


def products(types):
    """{type: number of products}"""
    found: dict[str, int] = {}
    for (kind, dtype), count in types.counts.items():
        if kind in ("CONVOLUTION", "MATRIX_MULTIPLY"):
            found[dtype] = found.get(dtype, 0) + count
    return found


@pytest.mark.parametrize("name", MODELS)
def test_every_model_builds_in_float32_and_fp16(small_bundles, family, name, tmp_path):
    graph, not_learnt = small_bundles[name].file("image"), small_bundles[name].manifest.not_learnt
    exact = build_plan(family, graph, PROFILE, "fp32", capability=CAPABILITY)
    assert set(products(exact.types)) == {"FLOAT"} and len(exact.plan) > 1000
    half = tmp_path / "half.onnx"
    lower(graph, half, "fp16", not_learnt)
    built = build_plan(family, half, PROFILE, "fp16", capability=CAPABILITY)
    found = products(built.types)
    # Each of the two outputs has a last product, or two that are added, in float32; two more resize or smooth.
    assert found["HALF"] + found["FLOAT"] == products(exact.types)["FLOAT"]
    assert found["FLOAT"] <= max(4, 2 + 2 * len(not_learnt))
    assert not {(kind, "HALF") for kind in ("SOFTMAX", "NORMALIZATION")} & set(built.types.counts)
    with pytest.raises(EngineError, match="is no fp16 graph: its products compute"):
        build_plan(family, graph, PROFILE, "fp16", capability=CAPABILITY)
    with pytest.raises(EngineError, match="is no fp32 graph: its products compute"):
        build_plan(family, half, PROFILE, "fp32", capability=CAPABILITY)


@pytest.mark.parametrize("name", ["biovil", "chexzero", "afloc", "xrv"])
def test_models_of_cells_build_in_int8(small_bundles, family, name, tmp_path):
    bundle = small_bundles[name]
    inputs = {"pixels": probe_images(bundle.manifest.geometry.size)[:2], "text": bundle.prompt_set("coco").features}
    recipe = Recipe("tensorrt", not_learnt=frozenset(bundle.manifest.not_learnt))
    names = quantise(bundle.file("image"), tmp_path / "low.onnx", recipe, [inputs])
    built = build_plan(family, tmp_path / "low.onnx", PROFILE, "int8", capability=CAPABILITY)
    found = built.types.counts["DEQUANTIZE", "FLOAT"]
    assert len(names) < found <= 2 * len(names), "a weight each, and inputs, of which products can share one"
    assert products(built.types).keys() == {"FLOAT"} and len(built.plan) > 1000


def test_bfloat16_and_tf32_build(family, tmp_path, monkeypatch):
    export_image(small_adapter("kad", monkeypatch), tmp_path, opset_for("bf16"))
    lower(tmp_path / "image.onnx", tmp_path / "low.onnx", "bf16")
    built = build_plan(family, tmp_path / "low.onnx", PROFILE, "bf16", capability=CAPABILITY)
    found = products(built.types)
    assert found["BF16"] > 30 and found["FLOAT"] <= 4, "convolutions too, from opset 22 on"
    assert build_plan(family, tmp_path / "image.onnx", PROFILE, "tf32", capability=CAPABILITY).timing is None


def test_the_names_that_a_run_uses_are_those_of_the_library(family):
    """Plans are built here but not run: what the engine and the stand-in of its tests call must exist."""
    trt = family.module
    assert trt.BuilderFlag.REQUIRE_USER_ALLOCATION and trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
    assert trt.DynamicShapesKernelSpecializationStrategy.EAGER and trt.ExecutionContextAllocationStrategy.USER_MANAGED
    for owner, names in {
        trt.ICudaEngine: ("create_runtime_config", "create_execution_context", "device_memory_size_v2"),
        trt.IExecutionContext: ("set_device_memory", "set_optimization_profile_async", "execute_async_v3"),
        trt.IRuntimeCache: ("serialize", "deserialize"),
        trt.IRuntimeConfig: (
            "cuda_graph_strategy",
            "dynamic_shapes_kernel_specialization_strategy",
            "set_execution_context_allocation_strategy",
            "create_runtime_cache",
            "set_runtime_cache",
        ),
    }.items():
        assert not [name for name in names if not hasattr(owner, name)], owner


def test_a_full_size_model_builds(kad_224, family):
    built = build_plan(
        family, kad_224.result.bundle.file("image"), Profile((1, 8, 32), (1, 14, 75)), "fp32", capability=CAPABILITY
    )
    assert len(built.plan) > 50e6


def test_the_kept_plan_is_the_built_one(small_bundles, family):
    bundle: Bundle = small_bundles["kad"]
    key = plan_key(bundle, family, Gpu("NVIDIA A100", CAPABILITY), Profile.of(bundle, 4))
    said: list[str] = []
    first = provide_plan(bundle, family, key, capability=CAPABILITY, say=said.append)
    assert provide_plan(bundle, family, key, build=False, say=said.append) == first and len(said) == 1
    record = json.loads((PlanStore.of(bundle).folder / f"{key.stem}.json").read_text())
    assert record["key"]["gpu"] == {"name": "NVIDIA A100", "capability": "8.0"}
    assert record["layers"]["SOFTMAX FLOAT"] == 4


def test_what_the_parser_refuses_is_named(family, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n"]) for n in ("text", "logits")]
    node = helper.make_node("Unique", ["text"], ["logits"], name="the_one")
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 18)]
    )
    path: Path = tmp_path / "unique.onnx"
    onnx.save(model, str(path))
    with pytest.raises(EngineError, match=r"cannot read .*unique\.onnx: node the_one \(Unique\)") as raised:
        build_plan(family, path, PROFILE, "fp32", capability=CAPABILITY)
    assert "\n" not in str(raised.value)
