"""Rewrites a graph of lower precision for a CPU without this arithmetic: float32 operations with rounded results.

ONNX Runtime's CPU provider has almost no bfloat16 operations, and computes chains of float16 operations in float32
without rounding in between. The rewritten graph keeps its types between operations: the inputs of each operation are
widened to float32 and its result is rounded to the type the graph states. Hardware with float32 accumulators computes
the same, except for the order of sums.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import EngineError, MissingExtraError
from ..extras import missing_package
from ..precisions import LOW_TYPES

_FLOAT = 1  # TensorProto.FLOAT


def with_rounding(graph: Path) -> bytes:
    """The graph in the file `graph`, for a processor without fp16 or bf16 arithmetic (see the module).

    Raises MissingExtraError (the package onnx is needed) and EngineError (no valid graph).
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            missing_package("onnx", "export", user="A bf16 graph on the CPU", instead="use a bundle in fp32 or fp16")
        ) from error
    try:
        model = onnx.load(str(graph))
        types = _low_tensors(model)
        _widen_weights(model)
        _rewrite(model, types)
        data: bytes = model.SerializeToString()
    except Exception as error:  # protobuf's and ONNX's own classes
        raise EngineError(f"{graph} cannot be prepared for the CPU: {' '.join(str(error).split())[:300]}") from error
    return data


def _low_tensors(model: Any) -> dict[str, int]:
    """Name -> type of every computed tensor of lower precision."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return {name: number for name, number in types.items() if number in LOW_TYPES.values()}


def _widen_weights(model: Any) -> None:
    import numpy as np
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        if tensor.data_type in LOW_TYPES.values():
            values = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _rewrite(model: Any, types: dict[str, int]) -> None:
    from onnx import helper

    nodes: list[Any] = []
    wide: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "Cast":
            nodes.append(node)
            continue
        for index, name in enumerate(node.input):
            if name not in types:
                continue
            if name not in wide:
                wide[name] = f"{name}:wide"
                nodes.append(helper.make_node("Cast", [name], [wide[name]], to=_FLOAT))
            node.input[index] = wide[name]
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in types:
                node.output[index] = f"{name}:exact"
                nodes.append(helper.make_node("Cast", [f"{name}:exact"], [name], to=types[name]))
    del model.graph.node[:]
    del model.graph.value_info[:]
    model.graph.node.extend(nodes)
