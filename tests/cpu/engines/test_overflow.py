"""A half-precision graph whose numbers leave their range: the layer is named, and what to do."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from xbench_fast.engines.backends.overflow import explain_overflow, find_overflow
from xbench_fast.engines.backends.rounding import with_rounding
from xbench_fast.engines.base import Engine, EngineInfo, Scores
from xbench_fast.engines.errors import EngineError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

BRIGHT = np.full((1, 32, 32), 255, np.uint8)


def save_graph(path: Path, kind: str, scale: float, *, long: int = 0) -> Path:
    """pixels -> sums of 8 x 8 blocks (`sum_blocks`) -> times `scale` (`widen`) -> times text (`ask`) -> the outputs.

    All in `kind`, with `long` layers between that change nothing.
    """
    h, t = onnx.helper, onnx.TensorProto
    half = {"fp16": t.FLOAT16, "bf16": t.BFLOAT16}[kind]

    def constant(name: str, values: Any) -> Any:
        return h.make_tensor(name, half, np.shape(values), np.ravel(np.asarray(values, np.float32)).tolist())

    same = [h.make_node("Relu", [f"b{n}"], [f"b{n + 1}"], name=f"layer_{n}") for n in range(long)]
    nodes = [
        h.make_node("Cast", ["pixels"], ["grey"], to=half),
        h.make_node("Cast", ["text"], ["words"], to=half),
        h.make_node("Conv", ["grey", "kernel"], ["b0"], name="sum_blocks", strides=[8, 8]),
        *same,
        h.make_node("Mul", [f"b{long}", "scale"], ["wide"], name="widen"),
        h.make_node("Gather", ["words", "first"], ["gain"], axis=1),
        h.make_node("Reshape", ["gain", "shape"], ["gain4"]),
        h.make_node("Mul", ["wide", "gain4"], ["asked"], name="ask"),
        h.make_node("Cast", ["asked"], ["saliency"], to=t.FLOAT),
        h.make_node("ReduceMean", ["asked", "axes"], ["mean"], keepdims=0, name="pool"),
        h.make_node("Cast", ["mean"], ["logits"], to=t.FLOAT),
    ]
    grid = synthetic.GRID
    graph = h.make_graph(
        nodes,
        "image",
        [
            h.make_tensor_value_info("pixels", t.UINT8, ["batch", 1, 32, 32]),
            h.make_tensor_value_info("text", t.FLOAT, ["findings", 2]),
        ],
        [
            h.make_tensor_value_info("logits", t.FLOAT, ["batch", "findings"]),
            h.make_tensor_value_info("saliency", t.FLOAT, ["batch", "findings", grid, grid]),
        ],
        [
            constant("kernel", np.ones((1, 1, 8, 8))),
            constant("scale", [scale]),
            *(
                onnx.numpy_helper.from_array(np.array(values), name)
                for name, values in {"first": [0], "shape": [1, -1, 1, 1], "axes": [2, 3]}.items()
            ),
        ],
    )
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(made)
    path.write_bytes(made.SerializeToString())
    return path


def bundle(folder: Path, kind: str, scale: float, **options: Any) -> Any:
    graph = save_graph(folder / "graph.onnx", kind, scale, **options)
    made = synthetic.make_bundle(folder / "half", graph=graph)
    made.manifest = dataclasses.replace(made.manifest, precision=kind)
    return made


TEXT = np.array([[1, 0], [0.5, 0]], np.float32)


def test_the_first_layer_out_of_range_is_named(tmp_path: Path) -> None:
    words = explain_overflow(bundle(tmp_path, "fp16", 5), BRIGHT, TEXT)
    assert words == (
        "widen (Mul) reaches 8.16e+04, fp16 ends at 65504 (before it: at most 1.63e+04, met at sum_blocks); export the "
        "model with --precision bf16 or fp32"
    )


def test_only_this_image_and_these_texts_count(tmp_path: Path) -> None:
    made = bundle(tmp_path, "fp16", 3)
    dark = explain_overflow(made, BRIGHT // 4, TEXT)
    assert "stays below the 65504 of fp16 (at most 1.21e+04, met at widen)" in dark and "sums in another order" in dark
    assert explain_overflow(made, BRIGHT, TEXT * 4).startswith("ask (Mul) reaches 1.96e+05")


def test_a_deep_graph_is_looked_at_in_parts(tmp_path: Path) -> None:
    graph = save_graph(tmp_path / "deep.onnx", "fp16", 40, long=120)
    found = find_overflow(with_rounding(graph), "fp16", {"pixels": BRIGHT[None], "text": TEXT})
    assert (found.node, found.operation) == ("widen", "Mul") and found.value == 255 * 64 * 40
    assert (found.before, found.where) == (255 * 64, "sum_blocks")


def test_bfloat16_has_the_range_of_float32(tmp_path: Path) -> None:
    assert "stays below the 3.38953e+38 of bf16" in explain_overflow(bundle(tmp_path, "bf16", 5), BRIGHT, TEXT)
    (tmp_path / "huge").mkdir()
    words = explain_overflow(bundle(tmp_path / "huge", "bf16", 5), BRIGHT, TEXT * np.float32(1e38))
    assert words.startswith("ask (Mul) is not finite") and words.endswith("--precision fp32")


class Overflows(Engine):
    """Returns what a plan with too small a type would."""

    def _open(self) -> EngineInfo:
        return EngineInfo("tensorrt", "cuda:0", self.bundle.manifest.precision, "test")

    def _run(self, pixels: Any, text: Any) -> Scores:
        logits = np.zeros((len(pixels), len(text)), np.float32)
        logits[1, 1] = np.nan
        return Scores(logits, np.zeros((*logits.shape, 4, 4), np.float32))

    def _close(self) -> None:
        return None


def test_an_engine_says_it_in_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.stack([BRIGHT // 9, BRIGHT])
    with Overflows(bundle(tmp_path, "fp16", 5)) as engine:
        with pytest.raises(EngineError, match=r"half on tensorrt .* not finite \(image 1 .*query 1\); widen \(Mul\)"):
            engine.run(pixels, TEXT)
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(EngineError, match=r"bf16 or fp32; to see which layer it is, install xbench-fast"):
            engine.run(pixels, TEXT)
        engine.bundle.manifest = dataclasses.replace(engine.bundle.manifest, precision="fp32")
        with pytest.raises(EngineError, match=r"check the checkpoint, or use --engine onnxruntime-cpu\.$"):
            engine.run(pixels, TEXT)


def test_a_graph_that_does_not_run_on_the_cpu_is_no_second_error(tmp_path: Path) -> None:
    made = bundle(tmp_path, "fp16", 5)
    words = explain_overflow(made, BRIGHT[:, :16], TEXT)
    assert words.startswith("export the model with --precision bf16 or fp32 (which layer it is could not be found out")
