"""The precisions of a bundle, and the precision that a graph has."""

from __future__ import annotations

import math
from typing import Any

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
LOW_TYPES = {"fp16": 10, "bf16": 16}  # TensorProto.FLOAT16, TensorProto.BFLOAT16
_FLOAT = 1  # TensorProto.FLOAT
_BYTES = (2, 3)  # TensorProto.UINT8, TensorProto.INT8


def stated_precision(model: Any) -> str:
    """The precision of most values of the weights of a loaded ONNX model; fp32 without any."""
    count = dict.fromkeys(PRECISIONS, 0)
    names = {number: name for name, number in LOW_TYPES.items()} | {_FLOAT: "fp32"} | dict.fromkeys(_BYTES, "int8")
    for tensor in model.graph.initializer:
        if tensor.data_type in names:
            count[names[tensor.data_type]] += math.prod(tensor.dims)
    return max(count, key=lambda name: count[name])
