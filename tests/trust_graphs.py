"""Small ONNX graphs and bundles for tests of randomised weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic import GRID, SIZE, make_bundle
from xbench_fast.engines.bundle import Bundle, write_bundle
from xbench_fast.engines.geometry import Geometry
from xbench_fast.engines.manifest import GraphSpec, Manifest, TensorSpec

__all__ = [
    "deaf_bundle",
    "edge_bundle",
    "fixed_map_bundle",
    "golden_bundle",
    "interface",
    "save_nodes",
    "stacked_bundle",
]


def interface(size: int, grid: int, width: int) -> GraphSpec:
    """Pixels of this size, `width` features of a text, and square maps."""
    return GraphSpec(
        "image.onnx",
        (TensorSpec("pixels", "uint8", ("batch", 1, size, size)), TensorSpec("text", "float32", ("findings", width))),
        (
            TensorSpec("logits", "float32", ("batch", "findings")),
            TensorSpec("saliency", "float32", ("batch", "findings", grid, grid)),
        ),
    )


def golden_bundle(folder: Path, graph: Path) -> Bundle:
    """The bundle of the golden graph, without prompts."""
    manifest = Manifest(
        model="tiny",
        variant="224",
        weights="own",
        checkpoint=None,
        geometry=Geometry("squash", 224, 224, "bilinear"),
        grid=(14, 14),
        saliency={"kind": "similarity", "description": "patches and prompt"},
        logit_scale=1.0,
        text={"context": 8},
        graphs={"image": interface(224, 14, 8)},
        prompt_sets={},
        opset=18,
        exporter={"test": "1"},
        parity={},
    )
    return write_bundle(folder / "tiny", manifest, {"image.onnx": graph})


def save_nodes(path: Path, nodes: Sequence[Any], arrays: dict[str, Any]) -> Path:
    """A graph of nodes with the interface of the synthetic bundles."""
    import onnx

    h, kinds = onnx.helper, {"uint8": onnx.TensorProto.UINT8, "float32": onnx.TensorProto.FLOAT}
    spec = interface(SIZE, GRID, 2)
    inputs, outputs = (
        [h.make_tensor_value_info(each.name, kinds[each.dtype], list(each.shape)) for each in side]
        for side in (spec.inputs, spec.outputs)
    )
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    made = h.make_model(
        h.make_graph(list(nodes), "image", inputs, outputs, held), opset_imports=[h.make_opsetid("", 18)], ir_version=9
    )
    path.write_bytes(made.SerializeToString())
    return path


def fixed_map_bundle(path: Path) -> Bundle:
    """A model with two learnt layers that decide its logits; its map is the same for every image and finding."""
    import onnx

    node = onnx.helper.make_node
    rng = np.random.default_rng(0)
    arrays = {
        "mean": np.array([[[[120.0]]]], np.float32),
        "kernel": rng.normal(0, 0.01, (3, 1, 8, 8)).astype(np.float32),
        "bias": rng.normal(0, 1, 3).astype(np.float32),
        "head": rng.normal(0, 1, (3, 2)).astype(np.float32),
        "axes": np.array([2, 3]),
        "places": np.arange(GRID * GRID).reshape(1, 1, GRID, GRID),
        "one": np.array([1]),
    }
    nodes = [
        node("Cast", ["pixels"], ["grey"], to=onnx.TensorProto.FLOAT),
        node("Sub", ["grey", "mean"], ["centred"]),
        node("Conv", ["centred", "kernel", "bias"], ["blocks"], strides=[8, 8]),
        node("Relu", ["blocks"], ["active"]),
        node("ReduceMean", ["active", "axes"], ["pooled"], keepdims=0),
        node("MatMul", ["pooled", "head"], ["features"]),
        node("Transpose", ["text"], ["words"]),
        node("MatMul", ["features", "words"], ["logits"]),
        node("Cast", ["places"], ["position"], to=onnx.TensorProto.FLOAT),
        node("Shape", ["logits"], ["asked"]),
        node("Concat", ["asked", "one", "one"], ["whole"], axis=0),
        node("Expand", ["position", "whole"], ["saliency"]),
    ]
    graph = save_nodes(path.parent / f"{path.name}.onnx", nodes, arrays)
    return make_bundle(path, graph=graph)


def stacked_bundle(path: Path) -> Bundle:
    """A model whose map is made by three convolutions and a product, and its logits by a further product."""
    import onnx

    node = onnx.helper.make_node
    rng = np.random.default_rng(1)
    arrays = {
        "scale": np.float32(0.01),
        "first": rng.normal(0, 1, (3, 1, 8, 8)).astype(np.float32),
        "second": rng.normal(0, 1, (3, 3, 1, 1)).astype(np.float32),
        "third": rng.normal(0, 1, (4, 3, 1, 1)).astype(np.float32),
        "third.bias": rng.normal(0, 1, 4).astype(np.float32),
        "project": rng.normal(0, 1, (4, 2)).astype(np.float32),
        "head": rng.normal(0, 1, (2, 2)).astype(np.float32),
        "cells": np.array([0, 4, GRID * GRID]),
        "grid": np.array([0, 0, GRID, GRID]),
        "axis": np.array([1]),
    }
    nodes = [
        node("Cast", ["pixels"], ["grey"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["grey", "scale"], ["small"]),
        node("Conv", ["small", "first"], ["one"], strides=[8, 8]),
        node("Conv", ["one", "second"], ["two"]),
        node("Conv", ["two", "third", "third.bias"], ["three"]),
        node("Reshape", ["three", "cells"], ["flat"]),
        node("Transpose", ["flat"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["turned", "project"], ["patches"]),
        node("Transpose", ["text"], ["words"]),
        node("MatMul", ["patches", "words"], ["answers"]),
        node("Transpose", ["answers"], ["by finding"], perm=[0, 2, 1]),
        node("Reshape", ["by finding", "grid"], ["saliency"]),
        node("ReduceMean", ["patches", "axis"], ["pooled"], keepdims=0),
        node("MatMul", ["pooled", "head"], ["scored"]),
        node("MatMul", ["scored", "words"], ["logits"]),
    ]
    return make_bundle(path, graph=save_nodes(path.parent / f"{path.name}.onnx", nodes, arrays))


def deaf_bundle(path: Path) -> Bundle:
    """A model whose map is how bright each block of pixels is, whatever it is asked."""
    import onnx

    nodes = [onnx.helper.make_node("Cast", ["pixels"], ["grey"], to=onnx.TensorProto.FLOAT)]
    return _whatever_is_asked(path, nodes, [0, 0, 0, 0])


def edge_bundle(path: Path) -> Bundle:
    """A model whose map is how much the pixels of each block differ from their neighbours: edges, which are not learnt,
    and a learnt layer of positive weights that adds them up."""
    import onnx

    node = onnx.helper.make_node
    nodes = [node("Cast", ["pixels"], ["whole"], to=onnx.TensorProto.FLOAT)]
    nodes.append(node("Constant", [], ["sides"], value_ints=[2, 3]))
    for name, start in (("here", (0, 0)), ("right", (0, 1)), ("below", (1, 0))):
        nodes += [
            node("Constant", [], [f"{name} from"], value_ints=start),
            node("Constant", [], [f"{name} to"], value_ints=[place + SIZE - 1 for place in start]),
            node("Slice", ["whole", f"{name} from", f"{name} to", "sides"], [name]),
        ]
    for name in ("right", "below"):
        nodes += [node("Sub", [name, "here"], [f"{name} more"]), node("Abs", [f"{name} more"], [f"{name} edge"])]
    nodes.append(node("Add", ["right edge", "below edge"], ["grey"]))
    return _whatever_is_asked(path, nodes, [0, 0, 1, 1])


def _whatever_is_asked(path: Path, nodes: Sequence[Any], pads: Sequence[int]) -> Bundle:
    """A model of `grey`, which the nodes make of the pixels: a learnt layer sums it over blocks, its sums are the map
    of every finding, and their mean is its logit."""
    import onnx

    node = onnx.helper.make_node
    arrays = {
        "kernel": np.random.default_rng(0).uniform(0.01, 0.02, (1, 1, 8, 8)).astype(np.float32),
        "first": np.array([0]),
        "one": np.array([1]),
        "axes": np.array([2, 3]),
    }
    rest = [
        node("Conv", ["grey", "kernel"], ["blocks"], strides=[8, 8], pads=list(pads)),
        node("Shape", ["text"], ["asked"]),
        node("Gather", ["asked", "first"], ["findings"]),
        node("Concat", ["one", "findings", "one", "one"], ["shape"], axis=0),
        node("Expand", ["blocks", "shape"], ["saliency"]),
        node("ReduceMean", ["saliency", "axes"], ["logits"], keepdims=0),
    ]
    return make_bundle(path, graph=save_nodes(path.parent / f"{path.name}.onnx", [*nodes, *rest], arrays))
