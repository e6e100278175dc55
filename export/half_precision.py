"""Lowers a graph to fp16 or bf16. The graph states its types, as strongly typed builders (TensorRT 11) require.

Weights and matrix products are of the lower precision. These stay in float32: softmax, norms, reductions and their
parts where they are written out; the normalisation of the pixels; the last product before each output, so that
neither a score nor a map is rounded to a few digits; products with a constant that was not learnt, which resize the
image or smooth the map; and operations that ONNX does not define for the lower type.
Operations without arithmetic follow their inputs, and where both types meet the result is float32. Inputs and outputs
keep their types.

In bf16 an operation for which ONNX Runtime has no CUDA kernel in bf16 (pooling, PRelu) is in float32 between casts: a
single operation without a kernel would prevent the session from opening the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from pathlib import Path
from typing import Any

import numpy as np

from ..engines.errors import ExportError
from ..engines.precisions import LOW_TYPES
from .libraries import short_reason

PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})
_NORMS = {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"}
_REDUCTIONS = {"CumSum", "GlobalAveragePool", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMean", "ReduceProd"}
_REDUCTIONS |= {"ReduceSum", "ReduceSumSquare"}
_WRITTEN_OUT = {"Erf", "Exp", "Log", "Pow", "Reciprocal", "Sqrt"}
KEPT = frozenset({"Softmax", "LogSoftmax", *_NORMS, *_REDUCTIONS, *_WRITTEN_OUT})
"""Operators that keep float32 everywhere."""

_MOVES = {"Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Shape"}
_MOVES |= {"Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"}
_SIMPLE = {"Abs", "Add", "Div", "Gelu", "Max", "Min", "Mul", "Neg", "Relu", "Sigmoid", "Sub", "Sum", "Tanh"}
_BF16_ON_CUDA = frozenset({"Conv", "Gemm", "MatMul", *_MOVES, *_SIMPLE})
"""Operators with a bfloat16 kernel in ONNX Runtime's table of CUDA kernels (its docs/OperatorKernels.md), as far as
models need them. Pooling is not included: average pooling has one in new versions only, maximum pooling in none."""

_FLOAT = 1
_NAMES = {"fp16": "float16", "bf16": "bfloat16"}


def lower(source: Path, target: Path, precision: str, not_learnt: Collection[str] = ()) -> None:
    """Writes the float32 graph `source` as `target`, in `precision` ("fp16" or "bf16"); they may be one file.

    `not_learnt` names constants that keep their type. Raises ExportError when the graph cannot be written so.
    """
    import onnx

    try:
        model = onnx.load(str(source))
        _Lowering(model, precision, frozenset(not_learnt)).run()
        onnx.checker.check_model(model, full_check=True)
        target.write_bytes(model.SerializeToString())
    except (OSError, ExportError):
        raise
    except Exception as error:  # the checker and protobuf raise their own classes
        raise ExportError(f"{source.name} cannot be written in {precision}: {short_reason(error, 300)}.") from error


class _Lowering:
    """One rewrite of one model, in the order of its nodes."""

    def __init__(self, model: Any, precision: str, not_learnt: frozenset[str]) -> None:
        import onnx

        self._model, self._graph, self._precision = model, model.graph, precision
        self._not_learnt = not_learnt
        self._low = LOW_TYPES[precision]
        self._versions = {entry.domain: entry.version for entry in model.opset_import}
        self._hoist_constants()
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
        values = (*inferred.value_info, *inferred.input, *inferred.output)
        self._floats = {value.name for value in values if value.type.tensor_type.elem_type == _FLOAT}
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer if tensor.data_type == _FLOAT}
        self._floats |= self._weights.keys()
        self._now = dict.fromkeys(self._floats, _FLOAT)  # the type a tensor has in the new graph
        self._casts: dict[tuple[str, int], str] = {}
        self._lowered: dict[str, Any] = {}
        self._nodes: list[Any] = []

    def run(self) -> None:
        """Rewrites the model."""
        heads = last_products(self._graph, self._floats, self._not_learnt)
        for number, node in enumerate(self._graph.node):
            dtype = _FLOAT if number in heads else self._type_of(node)
            alone = dtype == LOW_TYPES["bf16"] and node.op_type not in _BF16_ON_CUDA
            add = self._add_between_casts if alone else self._add
            add(node, dtype)
        del self._graph.node[:]
        del self._graph.value_info[:]
        self._graph.node.extend(self._nodes)
        used = {name for node in self._nodes for name in node.input} | {value.name for value in self._graph.output}
        kept = [tensor for tensor in self._graph.initializer if tensor.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend([*kept, *self._lowered.values()])

    def _hoist_constants(self) -> None:
        """Constant nodes become weights, which can be stored in either type."""
        nodes = []
        for node in self._graph.node:
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
                raise ExportError(
                    f"A graph with branches or loops ({node.op_type}) cannot be written in {self._precision}; use "
                    "--precision fp32."
                )
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if node.op_type == "Constant" and value is not None:
                tensor = self._graph.initializer.add()
                tensor.CopyFrom(value)
                tensor.name = node.output[0]
            else:
                nodes.append(node)
        del self._graph.node[:]
        self._graph.node.extend(nodes)

    def _type_of(self, node: Any) -> int:
        floats = [name for name in node.input if name in self._floats]
        if node.op_type in KEPT or not floats or not self._defined(node) or not self._not_learnt.isdisjoint(floats):
            return _FLOAT
        if self._precision == "fp16" and any(_beyond_half(self._weights[n]) for n in floats if n in self._weights):
            return _FLOAT
        if node.op_type in PRODUCTS:
            return self._low
        flowing = {self._now[name] for name in floats if name not in self._weights}
        return _FLOAT if _FLOAT in flowing else self._low

    def _defined(self, node: Any) -> bool:
        """Whether ONNX defines the operator for the lower type, for all inputs and outputs that are float32 now."""
        import onnx

        version = self._versions.get(node.domain)
        if version is None or not onnx.defs.has(node.op_type, node.domain):
            return False
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        allowed = {entry.type_param_str: entry.allowed_type_strs for entry in schema.type_constraints}
        wanted = f"tensor({_NAMES[self._precision]})"
        for names, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
            for position, name in enumerate(names):
                type_name = formal[min(position, len(formal) - 1)].type_str
                if name in self._floats and wanted not in allowed.get(type_name, [type_name]):
                    return False
        return True

    def _add(self, node: Any, dtype: int) -> None:
        if node.op_type == "Cast":  # takes any type, and its attribute sets the result's type
            self._nodes.append(node)
            return
        for position, name in enumerate(node.input):
            if name in self._floats:
                node.input[position] = self._as(name, dtype)
        for name in node.output:
            if name in self._floats:
                self._now[name] = dtype
        self._nodes.append(node)

    def _add_between_casts(self, node: Any, dtype: int) -> None:
        """Adds the node in float32; its results are rounded to `dtype`, so that the following nodes stay in it."""
        from onnx import helper

        self._add(node, _FLOAT)
        for position, name in enumerate(node.output):
            if name in self._floats:
                node.output[position] = f"{name}_exact"
                self._nodes.append(helper.make_node("Cast", [node.output[position]], [name], to=dtype))
                self._now[name] = dtype

    def _as(self, name: str, dtype: int) -> str:
        """The name of the tensor `name` in type `dtype`; adds a cast or a converted weight if needed."""
        from onnx import helper

        if self._now[name] == dtype:
            return name
        if (name, dtype) not in self._casts:
            new = self._casts[name, dtype] = f"{name}_{'fp32' if dtype == _FLOAT else self._precision}"
            if name in self._weights:
                self._lowered[name] = self._stored(name, new)
            else:
                self._nodes.append(helper.make_node("Cast", [name], [new], to=dtype))
        return self._casts[name, dtype]

    def _stored(self, name: str, new: str) -> Any:
        from onnx import helper, numpy_helper

        values = numpy_helper.to_array(self._weights[name])
        dtype = helper.tensor_dtype_to_np_dtype(self._low)
        return numpy_helper.from_array(np.ascontiguousarray(values.astype(dtype)), new)


def last_products(graph: Any, floats: Container[str], not_learnt: frozenset[str] = frozenset()) -> set[int]:
    """Indices of the nodes between each output and the last product or norm before it, that one included; `floats` are
    the tensors of floating point numbers. A product with a constant of `not_learnt` is not the last one."""
    made_by = {name: number for number, node in enumerate(graph.node) for name in node.output}
    last: set[int] = set()
    waiting = [value.name for value in graph.output]
    while waiting:
        number = made_by.get(waiting.pop())
        if number is None or number in last:
            continue
        last.add(number)
        node = graph.node[number]
        ends = node.op_type in PRODUCTS and not_learnt.isdisjoint(node.input)
        if not ends and node.op_type not in _NORMS:
            waiting += [name for name in node.input if name in floats]
    return last


def _beyond_half(tensor: Any) -> bool:
    """Whether a value would become infinite in fp16, as masks of the lowest float32 number would."""
    from onnx import numpy_helper

    values = numpy_helper.to_array(tensor)
    return bool(values.size) and bool((np.abs(values[np.isfinite(values)]) > np.finfo(np.float16).max).any())
