"""An image's scores on onnxruntime-cpu have the same bits whatever stands beside it in the batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from xbench_fast.engines.base import Engine, EngineOptions, Scores
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec
from xbench_fast.engines.select import open_engine

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SIDE, WIDTH = 8, 512


def products(folder: Path) -> Bundle:
    """The head of CLIP: features of the image and of four cells of its grid, times those of the texts."""
    h, t = onnx.helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    constants = {
        "weights": rng.standard_normal((SIDE * SIDE // 4, WIDTH)).astype(np.float32),
        "cells": np.array([0, 4, -1]),
        "axes": np.array([1]),
        "grid": np.array([0, 0, 2, 2]),
    }
    nodes = [
        h.make_node("Cast", ["pixels"], ["grey"], to=t.FLOAT),
        h.make_node("Reshape", ["grey", "cells"], ["parts"]),
        h.make_node("MatMul", ["parts", "weights"], ["features"]),
        h.make_node("ReduceMean", ["features", "axes"], ["whole"], keepdims=0),
        h.make_node("Transpose", ["text"], ["texts"], perm=[1, 0]),
        h.make_node("MatMul", ["whole", "texts"], ["logits"]),
        h.make_node("MatMul", ["features", "texts"], ["maps"]),
        h.make_node("Transpose", ["maps"], ["turned"], perm=[0, 2, 1]),
        h.make_node("Reshape", ["turned", "grid"], ["saliency"]),
    ]
    spec = GraphSpec(
        "image.onnx",
        (TensorSpec("pixels", "uint8", ("batch", 1, SIDE, SIDE)), TensorSpec("text", "float32", ("findings", WIDTH))),
        (
            TensorSpec("logits", "float32", ("batch", "findings")),
            TensorSpec("saliency", "float32", ("batch", "findings", 2, 2)),
        ),
    )
    types = {"uint8": t.UINT8, "float32": t.FLOAT}
    inputs, outputs = (
        [h.make_tensor_value_info(each.name, types[each.dtype], each.shape) for each in tensors]
        for tensors in (spec.inputs, spec.outputs)
    )
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = h.make_graph(nodes, "image", inputs, outputs, stored)

    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=9)
    (folder / "image.onnx").write_bytes(model.SerializeToString())
    manifest = Manifest(
        model="products",
        variant="8",
        weights="stand-in",
        checkpoint=None,
        geometry=Geometry("squash", SIDE, SIDE, "bicubic"),
        grid=(2, 2),
        saliency={"kind": "similarity", "description": "products"},
        logit_scale=1.0,
        text={"context": 8},
        graphs={"image": spec},
        prompt_sets={},
        opset=18,
        exporter={},
        parity={},
    )
    return write_bundle(folder / "products-8", manifest, {"image.onnx": folder / "image.onnx"})


def expect_equal_bits(engine: Engine, pixels: NDArray[np.uint8], text: NDArray[np.float32], sizes: range) -> None:
    """Image 0 gets the bits that it gets alone, in every slot of batches of these sizes."""

    def bits(scores: Scores, slot: int) -> bytes:
        return scores.logits[slot].tobytes() + scores.saliency[slot].tobytes()

    alone = bits(engine.run(pixels[:1], text), 0)
    for size in sizes:
        for slot in {0, size // 2, size - 1}:
            order = np.arange(size)
            order[[0, slot]] = order[[slot, 0]]
            found = bits(engine.run(pixels[order], text), slot)
            assert found == alone, f"{len(text)} queries, {size} images, slot {slot}"


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_product_with_the_texts_has_the_same_bits_in_every_batch(tmp_path: Path, threads: int) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (9, 1, SIDE, SIDE), np.uint8)
    texts = rng.standard_normal((64, WIDTH)).astype(np.float32)
    with open_engine(products(tmp_path), "onnxruntime-cpu", threads=threads) as engine:
        for queries in range(1, 65):
            expect_equal_bits(engine, pixels, texts[:queries], range(1, 10))


def test_with_a_thread_for_each_pair_the_bits_are_the_same_with_any_number_of_threads(tmp_path: Path) -> None:
    """A single thread divides no product, and neither does one of five."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (9, 1, SIDE, SIDE), np.uint8)
    texts = rng.standard_normal((64, WIDTH)).astype(np.float32)
    bundle, apart = products(tmp_path), EngineOptions(throughput=True)
    with (
        open_engine(bundle, "onnxruntime-cpu", threads=1) as one,
        open_engine(bundle, "onnxruntime-cpu", threads=5, options=apart) as five,
    ):
        for queries in range(1, 65, 3):
            expect_equal_bits(five, pixels, texts[:queries], range(1, 10))
            expected, found = (engine.run(pixels, texts[:queries]) for engine in (one, five))
            assert found.logits.tobytes() == expected.logits.tobytes()
            assert found.saliency.tobytes() == expected.saliency.tobytes()


def test_every_image_of_a_batch_keeps_its_place(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    pixels = rng.integers(0, 256, (9, 1, SIDE, SIDE), np.uint8)
    text = rng.standard_normal((3, WIDTH)).astype(np.float32)
    with open_engine(products(tmp_path), "onnxruntime-cpu", threads=2) as engine:
        scores = engine.run(pixels, text)
        for image in range(9):
            alone = engine.run(pixels[image : image + 1], text)
            np.testing.assert_array_equal(scores.logits[image], alone.logits[0])
            np.testing.assert_array_equal(scores.saliency[image], alone.saliency[0])
    assert len(np.unique(scores.logits[:, 0])) == 9


def test_all_models_have_the_same_bits_in_every_batch(small_bundles: dict[str, Bundle]) -> None:
    """With one query, and with 40, where CLIP's logits depended on the size of the batch."""
    rng = np.random.default_rng(3)
    for bundle in small_bundles.values():
        side = bundle.manifest.geometry.size
        pixels = rng.integers(0, 256, (8, 1, side, side), np.uint8)
        inner = [axis for axis in bundle.graph("image").inputs[1].shape[1:] if isinstance(axis, int)]
        texts = rng.standard_normal((40, *inner)).astype(np.float32)
        if fixed := len(bundle.manifest.findings):
            # Rows of the identity matrix are all that such a graph is ever given. It selects by product and sum, and
            # the library's sum along the last axis rounds by where in memory the row begins: of other texts, the last
            # bit would depend on the place in the batch.
            texts = np.eye(fixed, dtype=np.float32)[rng.integers(0, fixed, 40)]
        with open_engine(bundle, "onnxruntime-cpu", threads=2) as engine:
            for queries in (1, 40):
                expect_equal_bits(engine, pixels, texts[:queries], range(2, 9, 3))
