"""The learnt layers of an ONNX graph, found by its structure (docs/trust.md §2.1).

Names do not tell them: exporters transpose and rename the weights of matrix products, and fold norms into biases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....engines.errors import BundleError, MissingExtraError

if TYPE_CHECKING:
    import onnx

_OPENING: Final = frozenset({"Conv", "MatMul", "Gemm", "Split", "Transpose"})
_SIZES: Final = frozenset({"Shape", "Size"})  # their outputs do not depend on the values of their inputs


@dataclass(frozen=True)
class GraphLayer:
    """The tensors of a layer, in the order of their use, and which outputs of the graph they reach."""

    tensors: tuple[str, ...]
    feeds_saliency: bool
    feeds_logits: bool


def load_onnx() -> Any:
    """The module onnx. Raises MissingExtraError when it is not installed."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            "onnx is not installed, and weights are changed with it; install xbench-fast[export], or onnx alone."
        ) from error
    return onnx


def graph_layers(model: onnx.ModelProto, not_learnt: Collection[str] = ()) -> list[GraphLayer]:
    """The layers of a graph, in the order of its nodes.

    Parameters are float initializers of at least 2 elements, all finite. One of rank 2 or more that is first used by a
    convolution, a matrix product, a Split or a Transpose opens a layer; the layer takes every parameter that is first
    used after it, until the next one opens. What is used before the first layer, such as the mean of the pixels, is not
    learnt, nor is what `not_learnt` names. Raises BundleError for such a name that the graph does not have.
    """
    parameters = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer if _is_parameter(tensor)}
    have = {tensor.name for tensor in model.graph.initializer}
    for name in not_learnt:
        if name not in have:
            raise BundleError(f"The graph has no tensor '{name}', which bundle.json names as not learnt; export again.")
        parameters.pop(name, None)
    groups: list[list[str]] = []
    for node in model.graph.node:
        for name in _used(node):
            rank = parameters.pop(name, None)  # it counts where it is used first
            if rank is None:
                continue
            if rank >= 2 and node.op_type in _OPENING:
                groups.append([])
            if groups:
                groups[-1].append(name)
    saliency, logits = (_ancestors(model, output) for output in ("saliency", "logits"))
    return [GraphLayer(tuple(group), not saliency.isdisjoint(group), not logits.isdisjoint(group)) for group in groups]


def _is_parameter(tensor: onnx.TensorProto) -> bool:
    onnx = load_onnx()
    kinds = onnx.TensorProto
    if tensor.data_type not in (kinds.FLOAT, kinds.FLOAT16, kinds.BFLOAT16, kinds.DOUBLE):
        return False
    values = onnx.numpy_helper.to_array(tensor)
    return values.size >= 2 and bool(np.isfinite(values.astype(np.float32)).all())


def _ancestors(model: onnx.ModelProto, output: str) -> set[str]:
    """The names of all values that an output of the graph depends on."""
    maker = {name: node for node in model.graph.node for name in node.output}
    found, waiting = {output}, [output]
    while waiting:
        node = maker.get(waiting.pop())
        new = set(_used(node)) - found if node is not None and node.op_type not in _SIZES else set()
        found |= new
        waiting += new
    return found


def _used(node: onnx.NodeProto) -> Iterator[str]:
    """What a node uses, also inside its branches and loops."""
    yield from node.input
    for attribute in node.attribute:
        for graph in _graphs(attribute):
            for inner in graph.node:
                yield from _used(inner)


def _graphs(attribute: onnx.AttributeProto) -> Iterable[onnx.GraphProto]:
    yield from attribute.graphs
    if attribute.HasField("g"):
        yield attribute.g
