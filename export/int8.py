"""Writes a float32 graph in INT8: static quantisation between QuantizeLinear and DequantizeLinear (QDQ).

Convolutions and matrix products with a constant weight multiply bytes, with weights quantised per output channel. What
stays in float32: products of two activations, softmax, norms, everything elementwise, the last product before each
output, and products with a constant that was not learnt.

For CPUs activations are unsigned and have a zero point. A matrix product gives its sum in float32; a convolution's
result is bytes again, as its kernels need, after the ReLU where one follows. For TensorRT activations are signed and
symmetric, biases stay float32, and only inputs and weights of products are bytes, as its guide advises
(engines.quantised.FORMS).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.backends.ort_session import CPU_PROVIDER, open_session
from ..engines.errors import ConfigError, ExportError
from ..engines.registry import did_you_mean
from .half_precision import last_products
from .libraries import quiet, short_reason
from .machine import threads_to_use

Batches = Sequence[Mapping[str, NDArray[Any]]]
_PRODUCTS = ("Conv", "MatMul", "Gemm")
_FLOAT = 1


@dataclass(frozen=True)
class Recipe:
    """`form`: one of engines.quantised.FORMS; `percentile`: None for the whole range; `keep`: layers in float32;
    `not_learnt`: constants whose products stay in float32."""

    form: str
    percentile: float | None = None
    keep: frozenset[str] = frozenset()
    not_learnt: frozenset[str] = frozenset()

    @property
    def method(self) -> str:
        return "min-max" if self.percentile is None else f"percentile {self.percentile:g}"


@dataclass(frozen=True)
class LayerError:
    """`error`: the noise that rounding to bytes adds to a layer's input and weight, relative to their size."""

    name: str
    operation: str
    error: float

    def __str__(self) -> str:
        return f"{self.name} ({self.operation}) {100 * self.error:.1f} %"


def quantise(source: Path, target: Path, recipe: Recipe, batches: Batches) -> list[str]:
    """Writes the float32 graph `source` as `target` in INT8 and returns the names of the products in bytes.

    `batches` are the inputs that ranges are taken from; ranges of an earlier call with the same source and method are
    kept next to `target`. Raises ExportError, and ConfigError for a name of `recipe.keep` that is no product in bytes.
    """
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    symmetric = recipe.form == "tensorrt"
    options = {
        "OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm", *(["Conv"] if symmetric else [])],
        "ActivationSymmetric": symmetric,
        "QuantizeBias": not symmetric,
        "CalibStridedMinMax": 1,  # batch by batch: all layers of all batches would not fit into memory
    }
    if recipe.percentile is not None:
        options["CalibPercentile"] = recipe.percentile
    try:
        with quiet():
            full = folded_graph(source, target)
            model = onnx.load(str(full))
            layers = products_to_quantise(model, recipe.not_learnt)
            for name in sorted(recipe.keep.difference(layers)):
                raise ConfigError(
                    f"--keep-float {name}: the graph has no product of this name: {did_you_mean(name, layers)}."
                )
            chosen = [name for name in layers if name not in recipe.keep]
            if not chosen:
                raise ExportError(f"{source.name} has no product with a constant weight left for int8; use fp16.")
            if _separate(model.graph, chosen):
                full = target.with_suffix(".separate.onnx")
                onnx.save(model, str(full))
            nodes = chosen if symmetric else [*chosen, *_followers(model.graph, chosen)]
            del model  # the library holds several copies of its own
            quantize_static(
                str(full),
                str(target),
                _Reader(batches),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=[*_PRODUCTS, "Relu"],
                nodes_to_quantize=nodes,
                per_channel=True,
                reduce_range=recipe.form == "any-cpu",
                activation_type=QuantType.QInt8 if symmetric else QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=CalibrationMethod.MinMax
                if recipe.percentile is None
                else CalibrationMethod.Percentile,
                extra_options=options,
                calibration_cache_path=target.with_suffix(".ranges.json"),
            )
            _clean(target)
    except (OSError, ExportError, ConfigError):
        raise
    except Exception as error:  # the library, protobuf and the checker raise their own classes
        raise ExportError(f"{source.name} cannot be written in int8: {short_reason(error, 300)}.") from error
    return chosen


def folded_graph(source: Path, target: Path) -> Path:
    """The graph with its constants computed, next to `target`: a weight that is cut and turned in the graph would count
    as an activation."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    folded = target.with_suffix(".folded.onnx")
    if not folded.exists():
        quant_pre_process(str(source), str(folded), skip_symbolic_shape=True)
    return folded


def products_to_quantise(model: Any, not_learnt: frozenset[str] = frozenset()) -> list[str]:
    """The products with a learnt weight, but for the last ones before each output, in the order of the graph."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model).graph
    weights = {tensor.name for tensor in model.graph.initializer if tensor.data_type == _FLOAT}
    values = (*inferred.value_info, *inferred.input, *inferred.output)
    floats = {value.name for value in values if value.type.tensor_type.elem_type == _FLOAT} | weights
    last = last_products(model.graph, floats, not_learnt)
    return [
        node.name
        for number, node in enumerate(model.graph.node)
        if node.op_type in _PRODUCTS and node.input[1] in weights - not_learnt and number not in last
    ]


def _separate(graph: Any, chosen: Sequence[str]) -> bool:
    """Gives nodes that stay in float32 copies of the weights of products in `chosen`, which the library would otherwise
    round for every reader; whether there were any."""
    names, stored = set(chosen), {tensor.name: tensor for tensor in graph.initializer}
    rounded = {node.input[1] for node in graph.node if node.name in names}
    readers = [
        (node, position)
        for node in graph.node
        for position, name in enumerate(node.input)
        if name in rounded and node.name not in names
    ]
    for node, position in readers:
        copy = f"{node.input[position]}_float32"
        if copy not in stored:
            stored[copy] = graph.initializer.add()
            stored[copy].CopyFrom(stored[node.input[position]])
            stored[copy].name = copy
        node.input[position] = copy
    return bool(readers)


def _followers(graph: Any, chosen: Sequence[str]) -> list[str]:
    """The ReLUs of the results of convolutions in `chosen`. Where nothing else takes that result, the library lets
    its bytes begin at 0 in place of the ReLU."""
    names = set(chosen)
    results = {node.output[0] for node in graph.node if node.op_type == "Conv" and node.name in names}
    return [node.name for node in graph.node if node.op_type == "Relu" and node.input[0] in results]


def layer_errors(target: Path, batches: Batches) -> list[LayerError]:
    """The error of every product in bytes of the graph that `quantise` wrote as `target`, largest first.

    The inputs are values of the graph in bytes, for `batches`. A ReLU before a product that the bytes replace, since
    they begin at 0, is no error.
    """
    import onnx

    model, folded = onnx.load(str(target)), onnx.load(str(target.with_suffix(".folded.onnx"))).graph
    layers = list(_layers(model.graph, folded))
    names = sorted({name for layer in layers for name in layer.inputs} - set(batches[0]))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = open_session(model.SerializeToString(), [CPU_PROVIDER], threads_to_use(), optimise=False)
    noise = np.zeros((len(layers), 2))
    for batch in batches:
        values = {**batch, **dict(zip(names, session.run(names, dict(batch)), strict=True))}
        for number, layer in enumerate(layers):
            full, rounded = (values[name] for name in layer.inputs)
            noise[number] += _squares(np.maximum(full, 0) if layer.cut else full, rounded)
    errors = [
        LayerError(layer.name, layer.operation, (_share(lost, size) + layer.lost) ** 0.5)
        for layer, (lost, size) in zip(layers, noise.tolist(), strict=True)
    ]
    return sorted(errors, key=lambda layer_error: -layer_error.error)


@dataclass(frozen=True)
class _Layer:
    """A product in bytes: its input before and after rounding, whether it is the result of a ReLU, which rounding may
    have replaced, and the squares that its weight lost, as a share."""

    name: str
    operation: str
    inputs: tuple[str, str]
    cut: bool
    lost: float


def _layers(graph: Any, folded: Any) -> Iterator[_Layer]:
    """The products in bytes of a quantised `graph`; `folded` is the same in float32."""
    from onnx.numpy_helper import to_array

    made, full = ({name: node for node in model.node for name in node.output} for model in (graph, folded))
    bytes_of, weights = ({tensor.name: tensor for tensor in model.initializer} for model in (graph, folded))
    before = {node.name: node for node in folded.node if node.op_type in _PRODUCTS}
    for node in graph.node:
        if node.name not in before:
            continue
        value, weight = (made.get(name) for name in node.input[:2])
        if value is None or weight is None or {value.op_type, weight.op_type} != {"DequantizeLinear"}:
            continue
        source = full.get(before[node.name].input[0])
        exact = to_array(weights[before[node.name].input[1]])
        numbers, scale = (to_array(bytes_of[name]).astype(np.float32) for name in weight.input[:2])
        scale = scale.reshape([-1 if axis == weight.attribute[0].i else 1 for axis in range(exact.ndim)])
        lost = _share(*_squares(exact, numbers * scale))
        cut = source is not None and source.op_type == "Relu"
        yield _Layer(node.name, node.op_type, (made[value.input[0]].input[0], value.output[0]), cut, lost)


def _squares(exact: NDArray[Any], rounded: NDArray[Any]) -> tuple[float, float]:
    """The sums of squares of what rounding changes, and of the values."""
    lost = np.subtract(exact, rounded, dtype=np.float32)
    return float(np.vdot(lost, lost)), float(np.vdot(exact, exact))


def _share(lost: float, size: float) -> float:
    """Nothing is lost of values that are all zero."""
    return lost / size if size else 0.0


class _Reader:
    """What the library asks calibration inputs of: one after another, from a range of them."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._rest = iter(batches)

    def __len__(self) -> int:
        return len(self._batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        self._rest = iter(self._batches[start_index:end_index])

    def get_next(self) -> Mapping[str, NDArray[Any]] | None:
        return next(self._rest, None)


def _clean(target: Path) -> None:
    """Removes what the library adds for its own use, and checks the graph."""
    import onnx

    model = onnx.load(str(target))
    used = {node.domain for node in model.graph.node}
    kept = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    del model.metadata_props[:]
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    target.write_bytes(model.SerializeToString())
