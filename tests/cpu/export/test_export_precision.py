"""`--precision fp16|bf16`: the types in both graphs, how they run on a CPU, and what the report says."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from xbench_fast.engines.backends.rounding import with_rounding
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import BundleError, ConfigError, EngineError, ExportError, MissingExtraError
from xbench_fast.engines.manifest_json import parse_manifest
from xbench_fast.engines.precisions import stated_precision
from xbench_fast.engines.prompts.prompt_encoding import TextEncoder
from xbench_fast.engines.prompts.prompt_files import FindingPrompts
from xbench_fast.engines.select import open_engine
from xbench_fast.engines.tokenizing import bundle_tokenizer
from xbench_fast.export.cli.radiographs import EvaluationMetrics, open_radiographs
from xbench_fast.export.half_precision import KEPT, PRODUCTS, lower
from xbench_fast.export.onnx_graph import export_image, export_text
from xbench_fast.export.parity.checks import LOW_TOLERANCE
from xbench_fast.export.parity.probes import probe_images
from xbench_fast.export.parity.trial_data import TrialData
from xbench_fast.export.pipeline import BundleOptions, ModelSource, export_adapter, export_bundle
from xbench_fast.runtime.trust.probes.randomised import graph_layers

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
ml_dtypes = pytest.importorskip("ml_dtypes")
for package in ("torch", "onnxscript"):
    pytest.importorskip(package)
METRICS = EvaluationMetrics()
FLOAT, TYPES = 1, {"fp16": 10, "bf16": 16}
PROMPTS = {"mine": (FindingPrompts("Effusion", ("fluid", "water"), ("no fluid",)), FindingPrompts("Mass", ("mass",)))}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four pictures, three boxes."""
    folder = tmp_path_factory.mktemp("parity-data")
    (folder / "images").mkdir()
    for number, picture in enumerate(probe_images(224)[:4]):
        Image.fromarray(picture[0]).save(folder / "images" / f"{number}.png")
    rows = ["image,class,x,y,width,height", "0.png,Mass,10,10,90,90", "1.png,Effusion,100,20,80,120"]
    rows += ["0.png,Effusion,5,100,70,90", "2.png,,,,,", "3.png,Other,1,1,9,9"]
    (folder / "annotations.csv").write_text("\n".join(rows))
    return folder


def opened(folder: Path) -> TrialData | None:
    return open_radiographs([folder])[0]


@pytest.fixture(scope="module", params=["fp16", "bf16"])
def half(
    request: pytest.FixtureRequest, kad_demo: Any, images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bundle]:
    """The small model in lower precision: fp16 from float32 graphs exported before, bf16 from the beginning."""
    out = tmp_path_factory.mktemp(request.param)
    if request.param == "bf16":
        yield export_bundle(
            ModelSource("kad", variant="demo"),
            out,
            BundleOptions(precision="bf16", prompts=PROMPTS, metrics=METRICS, parity_data=opened(images)),
        ).bundle
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in ("image", "text"):

            def copy(adapter: Any, folder: Path, opset: int, name: str = name) -> Any:
                assert opset == 20
                (folder / f"{name}.onnx").write_bytes(kad_demo.result.bundle.file(name).read_bytes())
                return kad_demo.result.bundle.graph(name)

            patch.setattr(f"xbench_fast.export.onnx_graph.export_{name}", copy)
        adapter = dataclasses.replace(kad_demo.adapter)
        yield export_adapter(adapter, out, BundleOptions(precision="fp16", prompts=PROMPTS, metrics=METRICS)).bundle


def inferred(path: Path) -> tuple[Any, dict[str, int]]:
    """The graph and the element type of every tensor in it."""
    graph = onnx.shape_inference.infer_shapes(onnx.load(path), strict_mode=True).graph
    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return graph, types | {tensor.name: tensor.data_type for tensor in graph.initializer}


@pytest.mark.parametrize("name", ["image", "text"])
def test_products_are_lowered_and_norms_softmax_and_outputs_are_not(half: Bundle, name: str, kad_demo: Any) -> None:
    graph, types = inferred(half.file(name))
    low = TYPES[half.manifest.precision]
    kinds: dict[str, list[int]] = {}
    for node in graph.node:
        floats = {types[part] for part in node.input if types.get(part) in (FLOAT, low)}
        assert len(floats) <= 1 or node.op_type == "Cast", f"{node.op_type} mixes types"
        kinds.setdefault(node.op_type, []).extend(floats)
        if node.op_type in KEPT:
            assert floats == {FLOAT}, node.op_type
    kept = {"image": {"Softmax", "LayerNormalization"}, "text": {"Softmax", "LayerNormalization"}}
    assert set(kinds) >= kept[name]
    products = [kind for operator in PRODUCTS for kind in kinds.get(operator, ())]
    assert products.count(FLOAT) == {"image": 2, "text": 1}[name], "the last product before each output"
    assert products.count(low) > 5 * products.count(FLOAT)
    before, after = (onnx.load(bundle.file(name)).graph for bundle in (kad_demo.result.bundle, half))
    assert [value.name for value in after.input] == [value.name for value in before.input]
    for old, new in zip((*before.input, *before.output), (*after.input, *after.output), strict=True):
        assert old.type == new.type
    assert half.file(name).stat().st_size < 0.7 * kad_demo.result.bundle.file(name).stat().st_size
    assert stated_precision(onnx.load(half.file(name))) == half.manifest.precision


def test_the_bundle_says_its_precision_and_engines_report_it(half: Bundle) -> None:
    precision = half.manifest.precision
    assert half.name == f"kad-demo-{precision}" and half.manifest.variant == f"demo-{precision}"
    assert half.manifest.opset == {"fp16": 20, "bf16": 22}[precision]
    prompts = half.prompt_set("mine")
    with open_engine(half, "onnxruntime-cpu", threads=1) as engine:
        assert engine.info.precision == precision
        scores = engine.run(probe_images(224)[:2], prompts.features)
    assert scores.logits.dtype == scores.saliency.dtype == np.float32
    words, encoder = bundle_tokenizer(half), TextEncoder.of(half, threads=1)
    batch = words(prompts.texts)
    np.testing.assert_allclose(encoder.run(batch.ids, batch.mask), prompts.features, rtol=0, atol=1e-3)


def test_the_report_is_about_tensors_and_metrics(half: Bundle, images: Path) -> None:
    precision, parity = half.manifest.precision, half.manifest.parity
    kinds = {check["compares"] for check in parity["worst_per_kind"]}
    rounded, native = "float32 graph, every result rounded", "float32 graph, file as it is"
    assert kinds >= {"model", rounded} and (native in kinds) == (precision == "fp16")
    for check in parity["worst_per_kind"]:
        low = check["compares"].startswith("float32 graph")
        assert check["allowed"] == (LOW_TOLERANCE[precision] if low else 1e-4) and check["passed"]
        assert not low or 1e-5 < check["needed"] < LOW_TOLERANCE[precision]
    outputs = {check["output"] for check in parity["worst_per_kind"] if check["compares"] == rounded}
    assert outputs == {"features", "logits", "saliency"}
    assert parity["passed"] is True and parity["precision"] == precision
    assert ("did not run" in parity["precision_engine"]) == (precision == "bf16")
    metrics = parity["metrics"]
    if precision == "fp16":
        assert metrics["data"] == "probe pictures with made-up regions and labels"
        assert (metrics["images"], metrics["findings"], metrics["pairs"]) == (10, 21, 210)
    else:
        assert metrics["data"] == "the user's images" and len(metrics["annotations_sha256"]) == 64
        assert (metrics["images"], metrics["pairs"], metrics["findings"]) == (4, 3, 2)
        assert {pair["image"] for pair in metrics["worst"]} <= {"annotations.csv row 2", "annotations.csv row 3"}
    assert metrics["prompt_set"] == {"fp16": "vindr", "bf16": "mine"}[precision]
    assert 0 <= metrics["hits_flipped"] <= metrics["pairs"]
    assert 0 <= metrics["dice_change"] < 0.2 and len(metrics["auc"]) == 2 and len(metrics["worst"]) <= 5
    assert str(images) not in (half.path / "bundle.json").read_text()


def test_tensorrt_takes_both_graphs_with_the_types_they_state(half: Bundle) -> None:
    """A strongly typed builder, as TensorRT 11's; it parses without a GPU."""
    trt = pytest.importorskip("tensorrt_rtx")
    logger = trt.Logger(trt.Logger.Severity.ERROR)
    wanted = {"fp16": trt.DataType.HALF, "bf16": trt.DataType.BF16}[half.manifest.precision]
    for name in ("image", "text"):
        network = trt.Builder(logger).create_network(0)
        parser = trt.OnnxParser(network, logger)
        assert parser.parse(half.file(name).read_bytes()), [
            parser.get_error(n).desc() for n in range(parser.num_errors)
        ]
        layers = [network.get_layer(number) for number in range(network.num_layers)]
        found: dict[Any, set[Any]] = {}
        for layer in layers:
            found.setdefault(layer.type, set()).add(layer.get_output(0).dtype)
        assert found[trt.LayerType.MATRIX_MULTIPLY] == {wanted, trt.DataType.FLOAT}
        assert found[trt.LayerType.SOFTMAX] == found[trt.LayerType.NORMALIZATION] == {trt.DataType.FLOAT}
        assert name == "text" or found[trt.LayerType.CONVOLUTION] == {wanted}


# Small graphs


def small(weight: Any, *, name: str = "w") -> Any:
    """y = relu(x w) w2 + x w, over x float32 [B, 4]; every tensor is a plain one."""
    h = onnx.helper
    nodes = [
        h.make_node("MatMul", ["x", name], ["a"]),
        h.make_node("Relu", ["a"], ["b"]),
        h.make_node("MatMul", ["b", "v"], ["c"]),
        h.make_node("Mul", ["c", "scale"], ["d"]),
        h.make_node("Add", ["d", "a"], ["e"]),
        h.make_node("MatMul", ["e", "v"], ["y"]),
    ]
    weights = {name: weight, "v": np.eye(4, dtype=np.float32)[::-1] * 1.7, "scale": np.float32([0.3])}
    tensors = [onnx.numpy_helper.from_array(np.ascontiguousarray(v, np.float32), key) for key, v in weights.items()]
    x, y = (h.make_tensor_value_info(key, FLOAT, ["B", 4]) for key in "xy")
    return h.make_model(
        h.make_graph(nodes, "g", [x], [y], tensors), opset_imports=[h.make_opsetid("", 22)], ir_version=10
    )


@pytest.mark.parametrize(("precision", "kind"), [("fp16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_every_result_is_rounded_as_in_a_loop(tmp_path: Path, precision: str, kind: Any) -> None:
    random = np.random.default_rng(0)
    x, w = random.normal(size=(3, 4)).astype(np.float32), random.normal(size=(4, 4)).astype(np.float32)
    onnx.save(small(w), tmp_path / "full.onnx")
    lower(tmp_path / "full.onnx", tmp_path / "low.onnx", precision)
    session = ort.InferenceSession(with_rounding(tmp_path / "low.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": x})

    def r(values: Any) -> Any:
        return np.asarray(values, np.float32).astype(kind).astype(np.float32)

    v, scale = np.eye(4, dtype=np.float32)[::-1] * np.float32(1.7), np.float32(0.3)
    a = r(r(x) @ r(w))
    e = r(r(r(np.maximum(a, 0) @ r(v)) * r(scale)) + a)
    np.testing.assert_allclose(found, e @ v, rtol=1e-6)  # the last product is float32, with the weight as it was
    assert np.abs(found - ((np.maximum(x @ w, 0) @ v) * scale + x @ w) @ v).max() > 1e-4


def test_a_sum_beyond_the_range_of_fp16_is_seen_and_bf16_holds_it(tmp_path: Path) -> None:
    onnx.save(small(np.full((4, 4), 3e4, np.float32)), tmp_path / "full.onnx")
    x = np.ones((1, 4), np.float32)
    for precision, finite in (("fp16", False), ("bf16", True)):
        lower(tmp_path / "full.onnx", tmp_path / "low.onnx", precision)
        session = ort.InferenceSession(with_rounding(tmp_path / "low.onnx"), providers=["CPUExecutionProvider"])
        assert np.isfinite(session.run(None, {"x": x})[0]).all() == finite


def test_a_weight_beyond_the_range_of_fp16_keeps_its_node_in_float32(tmp_path: Path) -> None:
    weight = np.eye(4, dtype=np.float32)
    weight[0, 0] = np.finfo(np.float32).min
    onnx.save(small(weight), tmp_path / "full.onnx")
    for precision, wanted in (("fp16", FLOAT), ("bf16", 16)):
        lower(tmp_path / "full.onnx", tmp_path / "low.onnx", precision)
        graph, types = inferred(tmp_path / "low.onnx")
        assert types[next(node for node in graph.node if node.op_type == "MatMul").input[1]] == wanted


def test_what_onnx_does_not_define_for_bfloat16_stays_float32(tmp_path: Path) -> None:
    """Convolution has bfloat16 from opset 22 on; below, it must not get it."""
    h = onnx.helper
    nodes = [h.make_node("Conv", ["x", "k"], ["a"]), h.make_node("Conv", ["a", "k"], ["y"])]
    kernel = onnx.numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "k")
    x, y = (h.make_tensor_value_info(key, FLOAT, [1, 1, 4, 4]) for key in "xy")
    for opset, wanted in ((20, {FLOAT}), (22, {16})):
        graph = h.make_graph(nodes, "g", [x], [y], [kernel])
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)
        onnx.save(model, tmp_path / "full.onnx")
        lower(tmp_path / "full.onnx", tmp_path / "low.onnx", "bf16")
        found, types = inferred(tmp_path / "low.onnx")
        first = next(node for node in found.node if node.op_type == "Conv")
        assert {types[name] for name in first.input} == wanted


# Operators with a bfloat16 form in ONNX and, by ONNX Runtime's table of kernels, none in its CUDA provider (version 12
# of MaxPool ends the list there), or one in the newest versions only (AveragePool).
WITHOUT_A_KERNEL = {"MaxPool", "AveragePool", "GlobalMaxPool", "PRelu", "LeakyRelu", "Elu", "Selu", "Clip", "Ceil"}
WITHOUT_A_KERNEL |= {"Floor", "Round", "Resize", "GridSample", "Pad", "ReduceMax", "ReduceMin", "ConvTranspose", "Less"}
WITHOUT_A_KERNEL |= {"DepthToSpace", "SpaceToDepth", "Softplus", "Softsign", "Equal", "Greater", "ArgMax", "ArgMin"}


def without_a_kernel(path: Path) -> list[tuple[str, set[int]]]:
    """Each of those in the graph, with the types of its float tensors."""
    graph, types = inferred(path)
    nodes = [node for node in graph.node if node.op_type in WITHOUT_A_KERNEL]
    return [(node.op_type, {types.get(name) for name in (*node.input, *node.output)} & {FLOAT, 16}) for node in nodes]


@pytest.mark.parametrize("name", ["mavl", "medklip", "kad", "clip"])
def test_no_bf16_operator_lacks_its_kernel_on_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One such operator, and ONNX Runtime opens the whole graph on no GPU."""
    if name == "clip":
        pytest.importorskip("open_clip")
    from small_models import small_adapter

    adapter = small_adapter(name, monkeypatch)
    found = []
    for export in (export_image, export_text):
        file = tmp_path / export(adapter, tmp_path, 22).file
        lower(file, file, "bf16")
        found += without_a_kernel(file)
    assert all(kinds <= {FLOAT} for _, kinds in found)
    wanted = {"mavl": {"MaxPool", "PRelu"}, "medklip": {"MaxPool"}, "kad": {"MaxPool"}, "clip": set()}[name]
    assert {operator for operator, _ in found} >= wanted


# Of the models with maps of cells: products in float32, the last one before each output and two for each matrix that
# resizes the image or smooths the map; operators without a kernel.
LATER = {
    "biovil": (4, {"MaxPool"}),
    "biovil_t": (4, {"MaxPool"}),
    "chexzero": (4, set[str]()),
    "afloc": (6, {"MaxPool"}),
    "xrv": (2, {"MaxPool", "AveragePool"}),
}


@pytest.mark.parametrize("precision", TYPES)
@pytest.mark.parametrize("name", LATER)
def test_a_constant_that_was_not_learnt_multiplies_in_float32(
    small_bundles: dict[str, Bundle], tmp_path: Path, name: str, precision: str
) -> None:
    """Before the first layer and after the last product, which stays in float32 too, under the name of bundle.json."""
    bundle, (exact, pooling) = small_bundles[name], LATER[name]
    full, low = onnx.load(str(bundle.file("image"))), tmp_path / "low.onnx"
    full.opset_import[0].version = 22  # the operators are those of opset 20; convolution has bfloat16
    onnx.save(full, tmp_path / "full.onnx")
    lower(tmp_path / "full.onnx", low, precision, bundle.manifest.not_learnt)
    graph, types = inferred(low)
    products = [(node, types[node.output[0]]) for node in graph.node if node.op_type in PRODUCTS]
    assert [kind for _, kind in products].count(FLOAT) == exact < len(products)
    constants = set(bundle.manifest.not_learnt)
    assert {kind for node, kind in products if constants & set(node.input)} <= {FLOAT}
    assert {types[node.input[0]] for node in graph.node if "saliency" in node.output} == {FLOAT}
    layers = graph_layers(onnx.load(str(low)), bundle.manifest.not_learnt)
    assert not [tensor for layer in layers for tensor in layer.tensors if "matrix" in tensor], "no weight to randomise"
    if precision == "bf16":
        found = without_a_kernel(low)
        assert {operator for operator, _ in found} >= pooling and all(kinds <= {FLOAT} for _, kinds in found)
    inputs = {"pixels": probe_images(bundle.manifest.geometry.size)[:2], "text": bundle.prompt_set("coco").features}
    sessions = [ort.InferenceSession(graph) for graph in (bundle.file("image"), with_rounding(low))]
    for wanted, got in zip(*(session.run(["logits", "saliency"], inputs) for session in sessions), strict=True):
        assert np.abs(got - wanted).max() <= LOW_TOLERANCE[precision] * np.abs(wanted).max()


def test_pooling_in_bf16_stands_between_casts_and_keeps_the_flow(tmp_path: Path) -> None:
    """What follows them stays bf16, and the values are those of bf16."""
    h = onnx.helper
    window = {"kernel_shape": [2, 2], "strides": [1, 1]}
    nodes = [
        h.make_node("Conv", ["x", "k"], ["a"]),
        h.make_node("PRelu", ["a", "slope"], ["p"]),
        h.make_node("MaxPool", ["p"], ["m"], **window),
        h.make_node("AveragePool", ["m"], ["v"], **window),
        h.make_node("Add", ["v", "v"], ["s"]),
        h.make_node("Conv", ["s", "k"], ["y"]),
    ]
    tensors = [
        onnx.numpy_helper.from_array(np.full(shape, value, np.float32), key)
        for key, shape, value in (("k", (1, 1, 1, 1), 1.3), ("slope", (1,), 0.25))
    ]
    x, y = (h.make_tensor_value_info(key, FLOAT, [1, 1, side, side]) for key, side in (("x", 5), ("y", 3)))
    graph = h.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(
        h.make_model(graph, opset_imports=[h.make_opsetid("", 22)], ir_version=10), path := tmp_path / "full.onnx"
    )
    lower(path, tmp_path / "low.onnx", "bf16")
    assert without_a_kernel(tmp_path / "low.onnx") == [
        ("PRelu", {FLOAT}),
        ("MaxPool", {FLOAT}),
        ("AveragePool", {FLOAT}),
    ]
    low, types = inferred(tmp_path / "low.onnx")
    assert {types[n] for node in low.node if node.op_type == "Add" for n in node.input} == {16}
    session = ort.InferenceSession(with_rounding(tmp_path / "low.onnx"), providers=["CPUExecutionProvider"])
    picture = np.random.default_rng(2).normal(size=(1, 1, 5, 5)).astype(np.float32)
    (found,) = session.run(None, {"x": picture})

    def r(values: Any) -> Any:
        return np.asarray(values, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)

    a = r(r(picture[0, 0]) * r(1.3))
    p = r(np.where(a < 0, a * np.float32(0.25), a))
    m = np.array([[p[i : i + 2, j : j + 2].max() for j in range(4)] for i in range(4)])
    v = r([[m[i : i + 2, j : j + 2].mean() for j in range(3)] for i in range(3)])
    np.testing.assert_allclose(found[0, 0], r(v + v) * np.float32(1.3), rtol=1e-6)
    lower(path, tmp_path / "low.onnx", "fp16")
    low, types = inferred(tmp_path / "low.onnx")
    assert {types[node.output[0]] for node in low.node if node.op_type in ("PRelu", "MaxPool")} == {TYPES["fp16"]}


def test_a_graph_with_branches_is_refused(tmp_path: Path) -> None:
    h = onnx.helper
    one = h.make_graph(
        [h.make_node("Identity", ["x"], ["z"])], "branch", [], [h.make_tensor_value_info("z", FLOAT, ["B", 4])]
    )
    nodes = [
        h.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        h.make_node("Cast", ["s"], ["yes"], to=9),
        h.make_node("If", ["yes"], ["y"], then_branch=one, else_branch=one),
    ]
    x, y = (h.make_tensor_value_info(key, FLOAT, ["B", 4]) for key in "xy")
    model = h.make_model(h.make_graph(nodes, "g", [x], [y]), opset_imports=[h.make_opsetid("", 22)], ir_version=10)
    onnx.save(model, tmp_path / "full.onnx")
    with pytest.raises(ExportError, match=r"branches or loops .* cannot be written in fp16; use --precision fp32"):
        lower(tmp_path / "full.onnx", tmp_path / "low.onnx", "fp16")


# Mistakes


def test_wrong_precision_and_data_are_said_before_the_work(kad_demo: Any, tmp_path: Path, images: Path) -> None:
    adapter = dataclasses.replace(kad_demo.adapter)
    with pytest.raises(ConfigError, match="Unknown precision 'fp61': did you mean 'fp16'"):
        export_adapter(adapter, tmp_path, BundleOptions(precision="fp61"))
    with pytest.raises(ConfigError, match="go with --precision fp16, bf16, int8"):
        export_adapter(adapter, tmp_path, BundleOptions(parity_data=opened(images)))
    with pytest.raises(ConfigError, match="bf16 is judged by metrics; give BundleOptions"):
        export_adapter(adapter, tmp_path, BundleOptions(precision="bf16"))
    with pytest.raises(ConfigError, match="no prompt set asks for one of them"):
        other = {"mine": (FindingPrompts("Rod", ("rod",)),)}
        demo = dataclasses.replace(adapter, weights="demo")
        export_adapter(
            demo, tmp_path, BundleOptions(precision="bf16", prompts=other, metrics=METRICS, parity_data=opened(images))
        )
    assert not list(tmp_path.iterdir())


def test_a_manifest_with_another_precision_is_refused_and_an_old_one_is_fp32(half: Bundle) -> None:
    content = json.loads(half.manifest.dump())
    del content["precision"], content["checksum"]  # as older versions wrote it
    assert parse_manifest(json.dumps(content).encode(), "old").precision == "fp32"
    content["precision"] = "int4"
    with pytest.raises(BundleError, match="'precision' is 'int4'"):
        parse_manifest(json.dumps(content).encode(), "new")


def test_bf16_on_the_cpu_without_onnx_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match=r"broken\.onnx cannot be prepared for the CPU"):
        with_rounding(tmp_path / "broken.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match="A bf16 graph on the CPU needs onnx, which is not installed"):
        with_rounding(tmp_path / "broken.onnx")
