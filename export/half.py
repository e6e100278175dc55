"""fp16 graphs: the types stand in the graph, and softmax, norms and both outputs stay in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..engines.errors import ExportError

__all__ = ["KEPT", "to_half"]

KEPT = (
    "Softmax",
    "LayerNormalization",
    "BatchNormalization",
    "InstanceNormalization",
    "ReduceMean",
    "ReduceSum",
    "ReduceL2",
    "Pow",
    "Sqrt",
    "Reciprocal",
    "Exp",
    "Erf",
    "Clip",
    "Range",
)
"""Operators that keep float32: softmax, norms, and what a norm is made of where it is written out."""


def to_half(path: Path) -> None:
    """Rewrites the graph at `path` with float16 weights and activations; its inputs and outputs keep their types.

    Raises ExportError when the converter cannot.
    """
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    try:
        model = onnx.load(str(path))
        half = convert_float_to_float16(model, keep_io_types=True, op_block_list=list(KEPT), disable_shape_infer=False)
        del half.graph.value_info[:]  # the converter leaves the old types there
        half = _sorted(half)
        onnx.checker.check_model(half, full_check=True)
    except Exception as error:  # the converter and the checker raise classes of their own
        raise ExportError(f"{path.name} cannot be written in fp16: {' '.join(str(error).split())[:300]}") from error
    path.write_bytes(half.SerializeToString())


def _sorted(model: Any) -> Any:
    """The converter may write one cast twice, and leave casts behind their users; ONNX wants neither."""
    from onnxruntime.transformers.onnx_model import OnnxModel

    seen: set[str] = set()
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Cast" or node.output[0] not in seen:
            nodes.append(node)
        seen.update(node.output)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    OnnxModel(model).topological_sort()
    return model
