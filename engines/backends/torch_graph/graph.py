"""An ONNX graph as it is read from its file: nodes in order, constants, names of inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from .refusal import UnsupportedNodeError

OPSETS: Final = range(13, 26)
"""The opsets whose operators the table has: before 13, axes of several operators were attributes and Softmax had
another meaning."""

TYPES: Final = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
"""TensorProto.DataType -> the type in PyTorch."""

_STANDARD: Final = ("", "ai.onnx")


@dataclass(frozen=True)
class GraphNode:
    """One call of an operator. An input that is left out has an empty name. Attributes are numbers, texts, lists of
    numbers, or tensors."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def refusal(self, reason: str) -> UnsupportedNodeError:
        """The error that names this node."""
        return UnsupportedNodeError(f"its operator {self.operator} (node {self.name or self.outputs[0]}) {reason}")


@dataclass(frozen=True)
class Graph:
    """constants: name -> tensor on the CPU; opset: of the standard operators; inputs, outputs: their names."""

    nodes: tuple[GraphNode, ...]
    constants: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int


def read_graph(path: Path) -> Graph:
    """The graph of an ONNX file, with its external data.

    Raises UnsupportedNodeError for operators outside ONNX's own, subgraphs, types or an opset that are not supported,
    and what the package onnx raises for a file that is no graph.
    """
    import onnx

    model = onnx.load(str(path))
    opset = next((entry.version for entry in model.opset_import if entry.domain in _STANDARD), 0)
    if opset not in OPSETS:
        raise UnsupportedNodeError(f"its opset is {opset}, supported are {OPSETS[0]} to {OPSETS[-1]}")
    if model.functions or model.graph.sparse_initializer:
        part = f"function {model.functions[0].name}" if model.functions else "sparse weights"
        raise UnsupportedNodeError(f"it has the {part}, which only ONNX Runtime reads")
    constants = {tensor.name: _tensor(tensor, tensor.name) for tensor in model.graph.initializer}
    nodes: list[GraphNode] = []
    for entry in model.graph.node:
        node = GraphNode(entry.op_type, entry.name, tuple(entry.input), tuple(entry.output))
        if entry.domain not in _STANDARD:
            raise node.refusal(f"is of the domain {entry.domain}, only ONNX's own are supported")
        node.attributes.update({a.name: _attribute(a, node) for a in entry.attribute})  # type: ignore[attr-defined]
        if node.operator == "Constant":
            constants[node.outputs[0]] = _constant(node)
        else:
            nodes.append(node)
    inputs = tuple(value.name for value in model.graph.input if value.name not in constants)
    outputs = tuple(value.name for value in model.graph.output)
    return Graph(tuple(nodes), constants, inputs, outputs, opset)


def _attribute(attribute: Any, node: GraphNode) -> Any:
    import onnx

    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        raise node.refusal("holds a subgraph, which is not supported")
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _tensor(value, attribute.name)
    return value.decode() if isinstance(value, bytes) else value


def _constant(node: GraphNode) -> Tensor:
    """The tensor of a Constant."""
    ((name, value),) = node.attributes.items()
    if isinstance(value, Tensor):
        return value
    types = {"value_int": torch.int64, "value_ints": torch.int64, "value_float": torch.float32}
    if name not in (*types, "value_floats"):
        raise node.refusal(f"has the attribute {name}, which is not supported")
    return torch.tensor(value, dtype=types.get(name, torch.float32))


def _tensor(stored: Any, name: str) -> Tensor:
    from onnx import numpy_helper

    if stored.data_type not in TYPES:
        raise UnsupportedNodeError(f"its constant {name} has ONNX's type {stored.data_type}, which is not supported")
    values = np.array(numpy_helper.to_array(stored))  # a copy: what the library gives is read-only
    if TYPES[stored.data_type] == torch.bfloat16:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)  # NumPy has no such type
    return torch.from_numpy(values)
