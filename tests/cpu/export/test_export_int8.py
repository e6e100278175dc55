"""`--precision int8`: which products are in bytes, what they compute, and the verdict that every bundle has."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xbench_fast as xb
from click.testing import CliRunner
from PIL import Image
from xbench_fast import decoder_version
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import ConfigError, ExportError, ParityError
from xbench_fast.engines.plans.build import layer_types
from xbench_fast.engines.precisions import stated_precision
from xbench_fast.engines.quantised import FORMS, saturates
from xbench_fast.engines.select import open_engine
from xbench_fast.engines.tokenizing import bundle_tokenizer
from xbench_fast.export.bundle_options import BundleOptions, Int8Options
from xbench_fast.export.cli.export_command import command
from xbench_fast.export.cli.radiographs import EvaluationMetrics, open_radiographs
from xbench_fast.export.int8 import LayerError, Recipe, layer_errors, products_to_quantise, quantise
from xbench_fast.export.lower_precision import ExportedGraphs, choose_images, write_lower
from xbench_fast.export.parity.checks import ParityReport
from xbench_fast.export.parity.compare_graphs import check_parity
from xbench_fast.export.parity.low_precision import PrecisionTrial
from xbench_fast.export.parity.probes import probe_images
from xbench_fast.export.parity.trial_data import TrialData
from xbench_fast.export.pipeline import export_adapter
from xbench_fast.export.triton.repository import RepositoryChoices, write_repository

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
for package in ("torch", "onnxscript"):
    pytest.importorskip(package)
METRICS = EvaluationMetrics()
NOTHING = TrialData("none", "nowhere", (), prepare=lambda path, geometry: np.zeros(0, np.uint8))
FLOAT, BYTE, SIGNED, SUM = 1, 2, 3, 6
CLASSES = ("Mass", "Effusion")


WITHOUT_VNNI = (
    "this processor has no VNNI: it cuts sums of byte products to 16 bits, so the form vnni gives other numbers"
)
NEEDS_VNNI = pytest.mark.skipif(saturates(), reason=WITHOUT_VNNI)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen pictures of sixteen patients; three of four have a box."""
    folder = tmp_path_factory.mktemp("calibration")
    (folder / "images").mkdir()
    pictures, rows = probe_images(224), ["image,class,x,y,width,height,patient_id"]
    for number in range(16):
        picture = np.rot90(pictures[number % 10][0], number // 10)
        Image.fromarray(picture).save(folder / "images" / f"{number}.png")
        box = f"{CLASSES[number % 2]},{8 * number},{100 - 5 * number},90,80" if number % 4 else ",,,,"
        rows.append(f"{number}.png,{box},p{number}")
    (folder / "annotations.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def bundle(kad_demo: Any, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """The small model in INT8, from float32 graphs exported before."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("image", "text"):

            def copy(adapter: Any, folder: Path, opset: int, name: str = name) -> Any:
                (folder / f"{name}.onnx").write_bytes(kad_demo.result.bundle.file(name).read_bytes())
                return kad_demo.result.bundle.graph(name)

            patch.setattr(f"xbench_fast.export.onnx_graph.export_{name}", copy)
        patch.setattr("xbench_fast.export.parity.compare_graphs.check_parity", partial(check_parity, batches=(1,)))
        how = BundleOptions(precision="int8", metrics=METRICS, accept=100, int8=Int8Options(opened(images), "vnni"))
        yield export_adapter(dataclasses.replace(kad_demo.adapter), tmp_path_factory.mktemp("int8"), how).bundle


def opened(folder: Path) -> Any:
    return open_radiographs([folder])[0]


def lowered(kad_demo: Any, folder: Path, images: Path, accept: float, **int8: Any) -> tuple[Any, ParityReport]:
    """The graphs that an export would write into a bundle, without the export in float32."""
    made: Bundle = kad_demo.result.bundle
    for name in ("image", "text"):
        shutil.copy2(made.file(name), folder / f"{name}.onnx")
    features = [made.prompt_set("chestxdet10")]
    full = ExportedGraphs(kad_demo.adapter, bundle_tokenizer(made), folder, made.manifest.graphs, features)
    how = BundleOptions(
        precision="int8", metrics=METRICS, accept=accept, int8=Int8Options(opened(images), "vnni", **int8)
    )
    report = ParityReport({"reference": "none"})
    return write_lower(full, choose_images(how, kad_demo.adapter), report, lambda *_: features), report


def makers(graph: Any) -> dict[str, Any]:
    return {name: node for node in graph.node for name in node.output}


def in_bytes(graph: Any) -> set[str]:
    """The products whose two factors come from DequantizeLinear."""
    made = makers(graph)
    factors = {
        node.name: [made.get(name) for name in node.input[:2]] for node in graph.node if node.op_type in PRODUCTS
    }
    return {
        name for name, nodes in factors.items() if all(n is not None and n.op_type == "DequantizeLinear" for n in nodes)
    }


PRODUCTS = ("Conv", "MatMul", "Gemm")


def test_products_with_weights_are_in_bytes_and_nothing_else(bundle: Bundle, kad_demo: Any) -> None:
    model = onnx.load(bundle.file("image"))
    graph, made = model.graph, makers(model.graph)
    weights = {tensor.name for tensor in graph.initializer}
    low = in_bytes(graph)
    assert len(low) == bundle.manifest.quantisation.layers > 20
    others = [node for node in graph.node if node.op_type in PRODUCTS and node.name not in low]
    outputs = {value.name for value in graph.output}
    last = [node for node in others if node.input[1] in weights]
    assert len(last) <= len(outputs), "only the last product before an output keeps its weight in float32"
    for node in graph.node:
        if node.op_type in ("Softmax", "LayerNormalization", "ReduceMean"):
            maker = made.get(node.input[0])
            assert maker is None or maker.op_type != "DequantizeLinear", f"{node.op_type} takes bytes"
    assert [entry.domain for entry in model.opset_import] == [""] and not model.metadata_props
    assert stated_precision(model) == "int8"
    assert bundle.file("image").stat().st_size < 0.5 * kad_demo.result.bundle.file("image").stat().st_size
    assert bundle.file("text").read_bytes() == kad_demo.result.bundle.file("text").read_bytes()


def test_the_bundle_says_what_it_is(bundle: Bundle, images: Path) -> None:
    manifest = bundle.manifest
    assert (bundle.name, manifest.precision, manifest.variant) == ("kad-demo-int8", "int8", "demo-int8")
    how = manifest.quantisation
    assert how.compared_on == f"onnxruntime {ort.__version__}, CPUExecutionProvider"
    assert how.not_on == ("OpenVINO",)
    assert how.reader == decoder_version(), "who reads the bundle knows what read its calibration images"
    assert how is not None and (how.form, how.method, how.data) == ("vnni", "min-max", "the user's images")
    rows = {f"annotations.csv row {number + 2}": images / "images" / f"{number}.png" for number in range(16)}
    assert len(how.images) == 4 and all(image.name in rows for image in how.images)
    assert [image.sha256 for image in how.images] == [
        hashlib.sha256(rows[image.name].read_bytes()).hexdigest() for image in how.images
    ]
    metrics = manifest.parity["metrics"]
    assert metrics["images"] == 12 and metrics["left_out"] == {}
    assert set(metrics["speed"]) == {"ratio", "ms_per_image", "engine", "processor"} and metrics["speed"]["ratio"] > 0
    assert manifest.parity["precision"] == "int8" and manifest.parity["precision_engine"].endswith("the file itself")
    assert str(images) not in (bundle.path / "bundle.json").read_text()


@NEEDS_VNNI
def test_the_verdict_is_that_of_both_bundles_by_hand(bundle: Bundle, kad_demo: Any, images: Path) -> None:
    """Maps enlarged and cut by loops over pixels, on the images that do not calibrate."""
    metrics = bundle.manifest.parity["metrics"]
    calibrated = {image.name for image in bundle.manifest.quantisation.images}
    data, radiographs = opened(images), xb.load_dataset("csv", images)
    prompts = bundle.prompt_set(metrics["prompt_set"])
    cases = [case for case in data.images(bundle.manifest.geometry, prompts.findings) if case.name not in calibrated]
    assert len(cases) == metrics["images"]
    found = []
    for each in (kad_demo.result.bundle, bundle):
        with open_engine(each, "onnxruntime-cpu", threads=2) as engine:
            found.append([engine.run(case.pixels[None], prompts.features) for case in cases])
    flips, gaps, pairs = 0, [], 0
    for place, case in enumerate(cases):
        row = radiographs[int(case.name.rpartition(" ")[2]) - 2]
        for finding in row.findings:
            inside = row.mask(finding)
            query = prompts.findings.index(finding)
            (hit, dice), (other_hit, other_dice) = (judged(one[place].saliency[0, query], inside) for one in found)
            flips, pairs, gaps = flips + (hit != other_hit), pairs + 1, [*gaps, abs(dice - other_dice)]
    assert (metrics["pairs"], metrics["hits_flipped"]) == (pairs, flips) and pairs == 12 - sum(
        int(case.name.rpartition(" ")[2]) % 4 == 2 for case in cases
    )
    assert metrics["dice_change"] == pytest.approx(max(gaps), abs=1e-6) and max(gaps) > 0
    for name in ("pointing", "dice"):
        change = metrics["changes"][name]
        assert change["low"] <= change["change"] <= change["high"] and change["patients"] == pairs


def judged(saliency: Any, inside: Any) -> tuple[bool, float]:
    cells, side = saliency.shape[0], 224
    places = np.clip((np.arange(side) + 0.5) / side * cells - 0.5, 0, cells - 1)
    low = np.floor(places).astype(int)
    high, rest = np.minimum(low + 1, cells - 1), (places - low).astype(np.float32)
    wide = saliency[:, low] * (1 - rest) + saliency[:, high] * rest
    large = wide[low] * (1 - rest)[:, None] + wide[high] * rest[:, None]
    bright = (large - large.min()) / (large.max() - large.min()) >= np.float32(0.5)
    return bool(inside.flat[large.argmax()]), 2 * (bright & inside).sum() / (bright.sum() + inside.sum())


def test_a_change_beyond_the_bound_leaves_no_bundle(kad_demo: Any, images: Path, tmp_path: Path) -> None:
    words = r"^In int8 .* changes by .* points \(95 % .* --accept allows 0 points .*No bundle .*largest error .* %, "
    with pytest.raises(ParityError, match=words):
        lowered(kad_demo, tmp_path, images, accept=0)


def test_the_worst_layers_stay_float_until_it_is_accepted(
    kad_demo: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons, errors = ["Too much.", "Too much.", ""], []
    monkeypatch.setattr(PrecisionTrial, "refusal", lambda *_: reasons.pop(0))
    monkeypatch.setattr(PrecisionTrial, "speed", lambda *_: {"ratio": 1.0})

    def explained(*given: Any) -> Any:
        errors.append(layer_errors(*given))
        return errors[-1]

    monkeypatch.setattr("xbench_fast.export.int8.layer_errors", explained)
    low, report = lowered(kad_demo, tmp_path, images, accept=2, keep_float=("auto",))
    kept = set(low.quantisation.kept_float)
    assert kept == {errors[0][0].name, *(error.name for error in errors[1][:2])} and len(kept) == 3
    found = in_bytes(onnx.load(low.folder / "image.onnx").graph)
    assert not kept & found and len(found) == low.quantisation.layers
    assert len(report.checks) == 2 * 4, "the checks of refused graphs are not reported"


def test_half_of_the_layers_stay_float_at_most(
    kad_demo: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, tried = [f"layer{number}" for number in range(10)], []

    def write(source: Path, target: Path, recipe: Recipe, batches: Any) -> list[str]:
        tried.append(sorted(recipe.keep))
        return [name for name in names if name not in recipe.keep]

    left = lambda *_: [LayerError(name, "Conv", 0.1) for name in names if name not in tried[-1]]  # noqa: E731
    monkeypatch.setattr("xbench_fast.export.int8.quantise", write)
    monkeypatch.setattr("xbench_fast.export.int8.layer_errors", left)
    monkeypatch.setattr(PrecisionTrial, "extend", lambda *_: None)
    monkeypatch.setattr(PrecisionTrial, "refusal", lambda *_: "Too much.")
    words = (
        r"^Too much\. No bundle was written with 5 layers in float32, half of all\. .* layer5 \(Conv\) 10\.0 %, .*; try"
    )
    with pytest.raises(ParityError, match=words):
        lowered(kad_demo, tmp_path, images, accept=2, keep_float=("auto",))
    assert tried == [[], names[:1], names[:3], names[:5]]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_an_export_says_which_constants_were_not_learnt(
    kad_demo: Any, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    def lower(source: Path, target: Path, kind: str, not_learnt: Any) -> None:
        raise ExportError(f"{kind}: {sorted(not_learnt)}")

    def quantise(source: Path, target: Path, recipe: Recipe, batches: Any) -> list[str]:
        raise ExportError(f"int8: {sorted(recipe.not_learnt)}")

    monkeypatch.setattr("xbench_fast.export.half_precision.lower", lower)
    monkeypatch.setattr("xbench_fast.export.int8.quantise", quantise)
    made = kad_demo.result.bundle
    graphs, constants = {"image": made.graph("image")}, ("network.a", "network.b")
    full = ExportedGraphs(kad_demo.adapter, None, tmp_path, graphs, [made.prompt_set("chestxdet10")], constants)
    how = BundleOptions(precision=precision, metrics=METRICS, int8=Int8Options(opened(images), form="vnni"))
    with pytest.raises(ExportError, match=rf"^{precision}: \['network.a', 'network.b'\]$"):
        write_lower(full, how, ParityReport({"reference": "none"}), lambda *_: [])


def test_other_images_have_other_hashes(kad_demo: Any, images: Path, bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(images, tmp_path / "data")
    before = bundle.manifest.quantisation.images
    path = tmp_path / "data" / "images" / f"{int(before[0].name.rpartition(' ')[2]) - 2}.png"
    Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    after = lowered(kad_demo, tmp_path, tmp_path / "data", 100)[0].quantisation.images
    assert [image.name for image in before] == [image.name for image in after]
    assert [one == two for one, two in zip(before, after, strict=True)] == [False, True, True, True]


# Small graphs


def small(seed: int = 0) -> Any:
    """x [B, 3, 6, 6]: relu(conv(x)) as rows, times a weight that is cut and turned in the graph, then softmax, then a
    last product."""
    h, random = onnx.helper, np.random.default_rng(seed)
    tensors = {
        "k": random.normal(size=(4, 3, 3, 3)) * [[[[1]]], [[[5]]], [[[0.2]]], [[[1]]]],
        "b": random.normal(size=4),
        "w": random.normal(size=(10, 4)),
        "v": random.normal(size=(5, 5)),
    }
    nodes = [
        h.make_node("Conv", ["x", "k", "b"], ["a"], "conv"),
        h.make_node("Relu", ["a"], ["r"], "relu"),
        h.make_node("Reshape", ["r", "shape"], ["f"], "reshape"),
        h.make_node("Transpose", ["f"], ["g"], "turn", perm=[0, 2, 1]),
        h.make_node("Split", ["w"], ["w0", "w1"], "cut", num_outputs=2),
        h.make_node("Transpose", ["w1"], ["t"], "turn_weight", perm=[1, 0]),
        h.make_node("MatMul", ["g", "t"], ["m"], "product"),
        h.make_node("Softmax", ["m"], ["s"], "softmax"),
        h.make_node("MatMul", ["s", "v"], ["y"], "last"),
    ]
    constants = [onnx.numpy_helper.from_array(np.float32(value), key) for key, value in tensors.items()]
    constants.append(onnx.numpy_helper.from_array(np.array([0, 4, -1]), "shape"))
    x, y = h.make_tensor_value_info("x", FLOAT, ["B", 3, 6, 6]), h.make_tensor_value_info("y", FLOAT, ["B", None, 5])
    graph = h.make_graph(nodes, "g", [x], [y], constants)
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=10)


def batches(count: int = 4) -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    return [{"x": random.normal(size=(2, 3, 6, 6)).astype(np.float32)} for _ in range(count)]


def written(folder: Path, form: str, **how: Any) -> tuple[Any, list[str]]:
    onnx.save(small(), folder / "full.onnx")
    names = quantise(folder / "full.onnx", folder / f"{form}.onnx", Recipe(form, **how), batches())
    return onnx.load(folder / f"{form}.onnx"), names


def constant(model: Any, name: str) -> Any:
    return next(onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == name)


def test_one_layer_computes_the_sum_of_bytes(tmp_path: Path) -> None:
    """The convolution by four loops in whole numbers, from the scales and bytes in the file."""
    model, names = written(tmp_path, "vnni")
    assert names == ["conv", "product"]
    made, conv = makers(model.graph), next(node for node in model.graph.node if node.name == "conv")
    assert made[conv.input[2]].op_type == "DequantizeLinear"
    (scale, zero), (weight, scales) = (
        [constant(model, name) for name in made[conv.input[0]].input[1:]],
        [constant(model, name) for name in made[conv.input[1]].input[:2]],
    )
    bias = constant(model, made[conv.input[2]].input[0])
    x = batches(1)[0]["x"]
    low, high = (float(end(np.concatenate([b["x"] for b in batches()]))) for end in (np.min, np.max))
    assert scale == pytest.approx((high - low) / 255, rel=1e-5) and scales.shape == (4,)
    assert np.abs(weight).max(axis=(1, 2, 3)).tolist() == [127] * 4, "each channel has the whole range"
    values = np.clip(np.rint(x / scale) + zero, 0, 255).astype(int) - int(zero)
    exact = np.zeros((2, 4, 4, 4))
    for image, channel, row, column in np.ndindex(exact.shape):
        total = int((values[image, :, row : row + 3, column : column + 3] * weight[channel].astype(int)).sum())
        exact[image, channel, row, column] = (total + int(bias[channel])) * float(scale) * float(scales[channel])
    reader = next(node for node in model.graph.node if conv.output[0] in node.input)
    assert reader.op_type == "QuantizeLinear"
    assert not [node for node in model.graph.node if node.op_type == "Relu"], "the bytes begin at 0"
    (rounded,) = (node.output[0] for node in model.graph.node if reader.output[0] in node.input)
    if saturates():
        pytest.skip(WITHOUT_VNNI)
    model.graph.output.append(onnx.ValueInfoProto(name=rounded))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run([rounded], {"x": x})[0]
    np.testing.assert_allclose(found, np.maximum(exact, 0), atol=0.51 * float(constant(model, reader.input[1])))
    assert np.abs(found).max() > 5


def test_each_form_has_the_bytes_its_hardware_takes(tmp_path: Path) -> None:
    for form in FORMS:
        model, _ = written(tmp_path, form)
        made = makers(model.graph)
        conv = next(node for node in model.graph.node if node.name == "conv")
        weight, zero = (constant(model, made[conv.input[i]].input[j]) for i, j in ((1, 0), (0, 2)))
        assert weight.dtype == np.int8 and zero.dtype == (np.int8 if form == "tensorrt" else np.uint8)
        assert np.abs(weight.astype(int)).max() == (64 if form == "any-cpu" else 127)
        assert (zero == 0) == (form == "tensorrt")
        assert (conv.input[2] in made) == (form != "tensorrt"), "TensorRT takes biases in float32"
        readers = {node.op_type for node in model.graph.node if conv.output[0] in node.input}
        assert readers == ({"Relu"} if form == "tensorrt" else {"QuantizeLinear"})
        product = next(node for node in model.graph.node if node.name == "product")
        assert made[product.input[1]].op_type == "DequantizeLinear"
        assert constant(model, made[product.input[1]].input[0]).dtype == np.int8, "a folded weight, not an activation"
        assert not [node for node in model.graph.node if "m" in node.input and node.op_type == "QuantizeLinear"]


def sums(values: Any, weight: Any, *, cut: bool) -> Any:
    """uint8 [N, K] times int8 [K, M]; `cut`: as AVX2's vpmaddubsw, which adds two neighbours in 16 bits and stays at
    the largest number. ONNX Runtime on a Haswell processor gives these numbers."""
    products = values.astype(int)[:, :, None] * weight.astype(int)
    pairs = products[:, ::2] + products[:, 1::2]
    return (np.clip(pairs, -(2**15), 2**15 - 1) if cut else pairs).sum(axis=1)


def test_processors_without_vnni_cut_the_sums_of_the_full_range_only(tmp_path: Path) -> None:
    """One product from its bytes, as processors with and without VNNI compute it, for what calibrated it and for the
    inputs with the largest and smallest sums."""
    h, random = onnx.helper, np.random.default_rng(5)
    tensors = {"w": random.normal(size=(64, 16)), "v": random.normal(size=(16, 3))}
    nodes = [
        h.make_node("MatMul", ["x", "w"], ["m"], "product"),
        h.make_node("Softmax", ["m"], ["s"], "softmax"),
        h.make_node("MatMul", ["s", "v"], ["y"], "last"),
    ]
    constants = [onnx.numpy_helper.from_array(np.float32(value), key) for key, value in tensors.items()]
    x, y = h.make_tensor_value_info("x", FLOAT, ["B", 64]), h.make_tensor_value_info("y", FLOAT, ["B", 3])
    graph = h.make_graph(nodes, "g", [x], [y], constants)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=10), tmp_path / "full.onnx")
    rows = random.uniform(-1, 3, size=(32, 64)).astype(np.float32)
    for form, exact in (("vnni", False), ("any-cpu", True)):
        quantise(tmp_path / "full.onnx", tmp_path / f"{form}.onnx", Recipe(form), [{"x": rows}])
        model = onnx.load(tmp_path / f"{form}.onnx")
        made, product = makers(model.graph), next(node for node in model.graph.node if node.name == "product")
        scale, zero = (constant(model, name) for name in made[product.input[0]].input[1:])
        weight, scales = (constant(model, name) for name in made[product.input[1]].input[:2])
        values = np.clip(np.rint(rows / scale) + zero, 0, 255)
        assert (values.min(), values.max()) == (0, 255)
        ends = 255 * np.concatenate([weight.T > 0, weight.T < 0])
        for inputs in (values, ends):
            wide, narrow = (sums(inputs, weight, cut=cut) for cut in (False, True))
            assert (wide == narrow).all() == exact, (form, len(inputs))
        model.graph.output.append(onnx.ValueInfoProto(name="m"))
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        if exact or not saturates():
            whole = sums(values, weight, cut=False) - int(zero) * weight.sum(axis=0, dtype=int)
            np.testing.assert_allclose(session.run(["m"], {"x": rows})[0], whole * scale * scales, rtol=1e-5, atol=1e-4)


def test_percentiles_cut_what_is_rare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def scale(model: Any) -> float:
        made, conv = makers(model.graph), next(node for node in model.graph.node if node.name == "conv")
        return float(constant(model, made[conv.input[0]].input[1]))

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, some = written(tmp_path / "a", "vnni")[0], written(tmp_path / "b", "vnni", percentile=90.0)[0]
    assert 0.3 * scale(whole) < scale(some) < 0.8 * scale(whole)
    assert not capsys.readouterr().out, "the bundle's path is the first line that an export prints"
    assert Recipe("vnni").method == "min-max" and Recipe("vnni", 99.99).method == "percentile 99.99"


def test_layers_are_kept_by_name_and_explained_by_their_errors(tmp_path: Path) -> None:
    _, names = written(tmp_path, "vnni", keep=frozenset({"product"}))
    assert names == ["conv"]
    with pytest.raises(ConfigError, match=r"--keep-float produkt: .*did you mean 'product'"):
        written(tmp_path, "vnni", keep=frozenset({"produkt"}))
    with pytest.raises(ExportError, match="no product with a constant weight left"):
        written(tmp_path, "vnni", keep=frozenset({"product", "conv"}))
    written(tmp_path, "vnni")
    errors = layer_errors(tmp_path / "vnni.onnx", batches(2))
    assert {error.name for error in errors} == {"conv", "product"} and errors[0].error > errors[1].error > 0
    model = onnx.load(tmp_path / "vnni.onnx")
    made, conv = makers(model.graph), next(node for node in model.graph.node if node.name == "conv")
    (scale, zero), x = [constant(model, name) for name in made[conv.input[0]].input[1:]], batches(2)
    x = np.concatenate([entry["x"] for entry in x])
    noise = (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale - x
    weight, scales = (constant(model, name) for name in made[conv.input[1]].input[:2])
    full = constant(small(), "k")
    lost = weight * scales[:, None, None, None] - full
    wanted = np.sqrt((noise**2).sum() / (x**2).sum() + (lost**2).sum() / (full**2).sum())
    assert next(error.error for error in errors if error.name == "conv") == pytest.approx(wanted, rel=1e-3)
    assert str(errors[0]).endswith(" %")


def chain(folder: Path, *weights: str) -> Any:
    """x [B, 3, 6, 6] through a convolution, a ReLU and one more convolution with each of `weights`, in INT8."""
    h, random = onnx.helper, np.random.default_rng(3)
    tensors = {"k": random.normal(size=(4, 3, 1, 1)), "l": random.normal(size=(4, 4, 1, 1))}
    tensors |= {"m": random.normal(size=(4, 4, 1, 1)), "zeros": np.zeros((4, 4, 1, 1))}
    nodes = [h.make_node("Conv", ["x", "k"], ["a"], "first"), h.make_node("Relu", ["a"], ["0"], "relu")]
    nodes += [h.make_node("Conv", [f"{n}", name], [f"{n + 1}"], f"conv{n}") for n, name in enumerate(weights)]
    constants = [onnx.numpy_helper.from_array(np.float32(value), key) for key, value in tensors.items()]
    x, y = (
        h.make_tensor_value_info(name, FLOAT, ["B", channels, 6, 6])
        for name, channels in (("x", 3), (nodes[-1].output[0], 4))
    )
    model = h.make_model(
        h.make_graph(nodes, "g", [x], [y], constants), opset_imports=[h.make_opsetid("", 20)], ir_version=10
    )
    onnx.save(model, folder / "full.onnx")
    names = quantise(folder / "full.onnx", folder / "low.onnx", Recipe("vnni"), batches())
    assert names == ["first", *(f"conv{n}" for n in range(len(weights) - 1))]
    return onnx.load(folder / "low.onnx")


def test_a_relu_that_the_bytes_replace_is_no_error(tmp_path: Path) -> None:
    low = chain(tmp_path, "l", "zeros", "m")
    assert "Relu" not in {node.op_type for node in low.graph.node}
    errors = {error.name: error.error for error in layer_errors(tmp_path / "low.onnx", batches())}
    assert set(errors) == {"first", "conv0", "conv1"}
    assert 0 < errors["conv0"] < 0.02, "half of the values are below 0, and are meant to be cut"


@pytest.mark.parametrize("reader", ["node", "output"])
def test_a_relu_stays_where_its_input_has_another_reader(tmp_path: Path, reader: str) -> None:
    chain(tmp_path, "l", "m")
    full = onnx.load(tmp_path / "full.onnx")
    if reader == "node":
        full.graph.node.append(onnx.helper.make_node("Neg", ["a"], ["b"], "minus"))
    full.graph.output.append(onnx.helper.make_tensor_value_info("ba"[reader == "output"], FLOAT, ["B", 4, 6, 6]))
    (tmp_path / "two").mkdir()
    onnx.save(full, tmp_path / "two" / "full.onnx")
    quantise(tmp_path / "two" / "full.onnx", tmp_path / "two" / "low.onnx", Recipe("vnni"), batches())
    wanted, found = (
        ort.InferenceSession(tmp_path / "two" / name, providers=["CPUExecutionProvider"]).run(None, batches(1)[0])[1]
        for name in ("full.onnx", "low.onnx")
    )
    assert wanted.min() < -3 and wanted.max() > 3
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0.3)


def test_ranges_are_those_of_the_earlier_call(tmp_path: Path) -> None:
    first = written(tmp_path, "vnni")[0]
    quantise(tmp_path / "full.onnx", tmp_path / "vnni.onnx", Recipe("vnni"), [])
    assert onnx.load(tmp_path / "vnni.onnx") == first


def test_a_layer_in_float32_keeps_the_weight_that_it_shares(tmp_path: Path) -> None:
    low = chain(tmp_path, "l", "l")
    weight = constant(onnx.load(tmp_path / "full.onnx"), "l")
    last = next(node for node in low.graph.node if node.name == "conv1")
    np.testing.assert_array_equal(constant(low, last.input[1]), weight)
    assert {error.name for error in layer_errors(tmp_path / "low.onnx", batches())} == {"first", "conv0"}


def test_only_products_with_constant_weights_before_the_last_ones_are_candidates() -> None:
    assert products_to_quantise(small()) == ["conv"], "the other weight is computed in the graph, until it is folded"


def test_a_constant_that_was_not_learnt_is_no_weight() -> None:
    """Neither before the first layer nor after the last product, which stays the last one of its output."""
    h, model = onnx.helper, small()
    for name, first, last in (("resize", "x", "resized"), ("smoothing", "y", "smoothed")):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(6 if first == "x" else 5, dtype="f4"), name))
        node = h.make_node("MatMul", [first, name], [last], name)
        model.graph.node.insert(0 if first == "x" else len(model.graph.node), node)
    model.graph.node[1].input[0] = "resized"
    model.graph.output[0].name = "smoothed"
    assert products_to_quantise(model) == ["resize", "conv", "last"]
    assert products_to_quantise(model, frozenset({"resize", "smoothing"})) == ["conv"]


@pytest.mark.parametrize("name", ["biovil", "biovil_t", "chexzero", "afloc", "xrv"])
def test_models_of_cells_are_in_bytes_but_for_their_matrices(
    small_bundles: dict[str, Bundle], tmp_path: Path, name: str
) -> None:
    bundle = small_bundles[name]
    inputs = {"pixels": probe_images(bundle.manifest.geometry.size)[:2], "text": bundle.prompt_set("coco").features}
    matrices, full = frozenset(bundle.manifest.not_learnt), bundle.file("image")
    for form in ("vnni", "tensorrt"):
        low = tmp_path / f"{form}.onnx"
        names = quantise(full, low, Recipe(form, not_learnt=matrices), [inputs])
        graph = onnx.load(low).graph
        made, constants = makers(graph), {tensor.name: tensor.data_type for tensor in graph.initializer}
        assert in_bytes(graph) == set(names) and len(names) > 7
        products = [node for node in graph.node if node.op_type in PRODUCTS and matrices & set(node.input)]
        assert len(products) == 2 * len(matrices)
        for node in (*products, *(node for node in graph.node if node.op_type in ("Softmax", "LayerNormalization"))):
            assert not [value for value in node.input if value in made and made[value].op_type == "DequantizeLinear"]
        assert {constants[matrix] for matrix in matrices} <= {FLOAT}
    if saturates():
        pytest.skip(WITHOUT_VNNI)
    sessions = [ort.InferenceSession(file) for file in (full, tmp_path / "vnni.onnx")]
    for wanted, got in zip(*(session.run(["logits", "saliency"], inputs) for session in sessions), strict=True):
        error = np.abs(got - wanted).max() / np.abs(wanted).max()
        print(f"{name}: {error:.3f} of the largest value")
        assert error <= 0.2


def test_tensorrt_parses_its_form_and_not_that_for_cpus(tmp_path: Path) -> None:
    trt = pytest.importorskip("tensorrt_rtx")
    logger = trt.Logger(trt.Logger.Severity.ERROR)
    for form, taken in (("tensorrt", True), ("vnni", False)):
        model, _ = written(tmp_path, form)
        network = trt.Builder(logger).create_network(0)
        assert trt.OnnxParser(network, logger).parse(model.SerializeToString()) == taken
        if taken:
            types = layer_types(network)
            assert types.complaint("int8") is None and types.counts["DEQUANTIZE", "FLOAT"] == 4


@NEEDS_VNNI
def test_a_triton_repository_takes_the_form_of_its_device(bundle: Bundle, tmp_path: Path) -> None:
    for choices, words in (
        (RepositoryChoices(tensorrt=True), "holds int8 for CPUs; export it with --int8-for tensorrt"),
        (RepositoryChoices(), "no products on a GPU; use --device cpu"),
    ):
        with pytest.raises(ConfigError, match=words):
            write_repository([bundle], tmp_path / "models", choices, print)
    assert not (tmp_path / "models").exists()
    lines: list[str] = []
    (name,) = write_repository([bundle], tmp_path, RepositoryChoices(("chestxdet10",), cpu=True), lines.append)
    assert "gives other numbers on an x86 processor without VNNI" in lines[0]
    prompts, pixels = bundle.prompt_set("chestxdet10"), probe_images(224)[:2]
    with open_engine(bundle, "onnxruntime-cpu", threads=1) as engine:
        wanted = engine.run(pixels, prompts.features)
    session = ort.InferenceSession(tmp_path / name / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["logits", "saliency"], {"pixels": pixels})
    np.testing.assert_allclose(found[0], wanted.logits, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found[1], wanted.saliency, rtol=0, atol=1e-5)


# Options


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (BundleOptions(precision="int8", metrics=METRICS), "give --calibration"),
        (BundleOptions(precision="fp16", int8=Int8Options(NOTHING)), "belong to --precision int8"),
    ],
)
def test_what_is_missing_is_said_before_anything_slow(kad_demo: Any, how: BundleOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        choose_images(how, kad_demo.adapter)


def test_options_of_int8_go_with_int8() -> None:
    for more in (["--calibration", "x"], ["--percentile", "99"], ["--keep-float", "auto"]):
        line = ["--model", "kad", "--weights", "stand-in", "--out", "out", *more]
        found = CliRunner().invoke(command, line)
        assert found.exit_code == 2 and f"{more[0]} goes with --precision int8" in found.output
