"""The ONNX Runtime engine on small graphs whose results are known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from xbench_fast.engines.backends.ort import cpu_reason
from xbench_fast.engines.backends.ort_cuda_session import cuda_reason
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.errors import BundleError, ConfigError, EngineError
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec
from xbench_fast.engines.prompts.prompt_encoding import TextEncoder
from xbench_fast.engines.select import backend_status, choose, open_engine

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

IMAGE = GraphSpec(
    "image.onnx",
    (TensorSpec("pixels", "uint8", ("batch", 1, 8, 8)), TensorSpec("text", "float32", ("findings", 1))),
    (
        TensorSpec("logits", "float32", ("batch", "findings")),
        TensorSpec("saliency", "float32", ("batch", "findings", 2, 2)),
    ),
)
TEXT = GraphSpec(
    "text.onnx",
    (TensorSpec("input_ids", "int64", ("texts", "tokens")),),
    (TensorSpec("features", "float32", ("texts", 1)),),
)


def save_image_graph(path: Path, *, output: str = "saliency", external: str | None = None, bad: bool = False) -> None:
    """saliency = 4x4 block means times text; logits = their mean. `bad` divides by zero instead."""
    h, t = onnx.helper, onnx.TensorProto
    kernel = onnx.numpy_helper.from_array(np.full((1, 1, 4, 4), 1 / 16, np.float32), "kernel")
    if external is not None:
        kernel = t(name="kernel", data_type=t.FLOAT, dims=(1, 1, 4, 4), data_location=t.EXTERNAL)
        kernel.external_data.add(key="location", value=external)
    nodes = [
        h.make_node("Cast", ["pixels"], ["grey"], to=t.FLOAT),
        h.make_node("Conv", ["grey", "kernel"], ["means"], strides=[4, 4]),
        h.make_node("Reshape", ["text", "shape"], ["weights"]),
        h.make_node("Mul", ["means", "weights"], [output]),
        h.make_node("ReduceMean", [output, "axes"], ["plain"], keepdims=0),
        h.make_node("Div" if bad else "Mul", ["plain", "zero" if bad else "one"], ["logits"]),
    ]
    constants = [
        kernel,
        onnx.numpy_helper.from_array(np.array([1, -1, 1, 1]), "shape"),
        onnx.numpy_helper.from_array(np.array([2, 3]), "axes"),
        onnx.numpy_helper.from_array(np.float32(0), "zero"),
        onnx.numpy_helper.from_array(np.float32(1), "one"),
    ]
    inputs = [
        h.make_tensor_value_info("pixels", t.UINT8, ["batch", 1, 8, 8]),
        h.make_tensor_value_info("text", t.FLOAT, ["findings", 1]),
    ]
    outputs = [
        h.make_tensor_value_info("logits", t.FLOAT, ["batch", "findings"]),
        h.make_tensor_value_info(output, t.FLOAT, ["batch", "findings", 2, 2]),
    ]
    graph = h.make_graph(nodes, "image", inputs, outputs, constants)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def save_text_graph(path: Path) -> None:
    h, t = onnx.helper, onnx.TensorProto
    nodes = [
        h.make_node("Cast", ["input_ids"], ["numbers"], to=t.FLOAT),
        h.make_node("ReduceSum", ["numbers", "axes"], ["features"], keepdims=1),
    ]
    graph = h.make_graph(
        nodes,
        "text",
        [h.make_tensor_value_info("input_ids", t.INT64, ["texts", "tokens"])],
        [h.make_tensor_value_info("features", t.FLOAT, ["texts", 1])],
        [onnx.numpy_helper.from_array(np.array([1]), "axes")],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    path.write_bytes(model.SerializeToString())


def make(folder: Path, **options: object) -> Bundle:
    save_image_graph(folder / "image.onnx", **options)  # type: ignore[arg-type]
    save_text_graph(folder / "text.onnx")
    manifest = Manifest(
        model="tiny",
        variant="8",
        weights="stand-in",
        checkpoint=None,
        geometry=Geometry("squash", 8, 8, "bicubic"),
        grid=(2, 2),
        saliency={"kind": "similarity", "description": "block means"},
        logit_scale=1.0,
        text={"context": 8},
        graphs={"image": IMAGE, "text": TEXT},
        prompt_sets={},
        opset=18,
        exporter={},
        parity={},
    )
    return write_bundle(folder / "tiny-8", manifest, {n: folder / n for n in ("image.onnx", "text.onnx")})


def test_scores_are_those_of_the_graph(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8), np.uint8)
    text = np.array([[1.0], [-2.0]], np.float32)
    with open_engine(make(tmp_path), "onnxruntime-cpu", threads=1) as engine:
        scores = engine.run(pixels, text)
        assert engine.info.backend == "onnxruntime-cpu" and engine.info.device == "cpu"
    means = pixels[:, 0].reshape(3, 2, 4, 2, 4).mean((2, 4))
    expected = means[:, None] * text[None, :, :, None]
    np.testing.assert_allclose(scores.saliency, expected, rtol=1e-5)
    np.testing.assert_allclose(scores.logits, expected.mean((2, 3)), rtol=1e-5)


def test_threads_without_work_sleep_soon(tmp_path: Path) -> None:
    """By default they keep a core busy for milliseconds, while images are decoded and maps are swept on it."""
    with open_engine(make(tmp_path), "onnxruntime-cpu", threads=2) as engine:
        options = engine._session.get_session_options()  # type: ignore[attr-defined]
    assert 0 < int(options.get_session_config_entry("session.intra_op.spin_duration_us")) <= 100


def test_inputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    text = np.ones((1, 1), np.float32)
    with open_engine(make(tmp_path), "onnxruntime-cpu", threads=1) as engine:
        for pixels in (
            np.zeros((1, 1, 8, 8), np.float32),
            np.zeros((1, 3, 8, 8), np.uint8),
            np.zeros((8, 8), np.uint8),
            np.zeros((0, 1, 8, 8), np.uint8),
        ):
            with pytest.raises(EngineError, match="takes pixels"):
                engine.run(pixels, text)  # type: ignore[arg-type]
        with pytest.raises(EngineError, match="takes text"):
            engine.run(np.zeros((1, 1, 8, 8), np.uint8), np.ones((1, 2), np.float32))


def test_an_engine_that_is_not_open_says_so(tmp_path: Path) -> None:
    engine = open_engine(make(tmp_path), "onnxruntime-cpu", threads=1)
    with pytest.raises(EngineError, match="not open"):
        engine.run(np.zeros((1, 1, 8, 8), np.uint8), np.ones((1, 1), np.float32))
    with engine:
        pass
    with pytest.raises(EngineError, match="not open"):
        _ = engine.info


def test_logits_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    with (
        open_engine(make(tmp_path, bad=True), "onnxruntime-cpu", threads=1) as engine,
        pytest.raises(EngineError, match="not finite"),
    ):
        engine.run(np.ones((2, 1, 8, 8), np.uint8), np.ones((1, 1), np.float32))


def test_a_graph_with_other_tensors_than_promised_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="promises"), open_engine(make(tmp_path, output="heat"), "onnxruntime-cpu"):
        pass


@pytest.mark.parametrize("location", ["../secret.bin", "secret.bin", "absolute"])
def test_a_graph_cannot_pull_in_files_that_are_not_in_the_bundle(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(np.ones(16, np.float32).tobytes())
    if location == "absolute":
        location = str(tmp_path / "secret.bin")
    with pytest.raises(BundleError, match=r"reads weights from .*secret.bin', which bundle.json does not list"):
        make(tmp_path, external=location)


def test_a_file_that_is_no_graph_is_an_engine_error(tmp_path: Path) -> None:
    bundle = make(tmp_path)
    (tmp_path / "image.onnx").write_bytes(b"\x08\x07garbage")
    files = {"image.onnx": tmp_path / "image.onnx", "text.onnx": tmp_path / "text.onnx"}
    broken = write_bundle(tmp_path / "broken", dataclasses.replace(bundle.manifest, files={}), files)
    with pytest.raises(EngineError, match="cannot load"), open_engine(broken, "onnxruntime-cpu"):
        pass


def test_the_text_encoder_runs_and_checks(tmp_path: Path) -> None:
    bundle = make(tmp_path)
    encoder = TextEncoder.of(bundle, threads=1)
    ids = np.array([[1, 2], [3, 4]], np.int64)
    np.testing.assert_array_equal(encoder.run(ids), [[3], [7]])
    with pytest.raises(EngineError, match="input_ids"):
        encoder.run(ids, np.ones_like(ids))
    without = Bundle(bundle.path, dataclasses.replace(bundle.manifest, graphs={"image": IMAGE}), bundle.digest)
    with pytest.raises(BundleError, match="no text graph"):
        TextEncoder.of(without)


def test_auto_takes_what_really_starts() -> None:
    status = {s.name: s for s in backend_status()}
    assert status["onnxruntime-cpu"].usable and cpu_reason() is None
    name, line = choose("auto")
    if cuda_reason() is None:
        assert name == "onnxruntime-cuda"
    else:
        assert name == "onnxruntime-cpu" and line.startswith("engine onnxruntime-cpu")
        assert status["onnxruntime-cuda"].reason


def test_an_unknown_engine_lists_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="onnxruntime-cpu"):
        open_engine(make(tmp_path), "onnxruntime-cup")
