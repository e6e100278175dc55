"""Builds a TensorRT plan from an ONNX graph, with one code path for TensorRT 10, TensorRT 11 and TensorRT for RTX.

The plan has the types of the graph: every network is strongly typed, and there is no precision flag. TF32 is the only
choice, since it is a way to multiply float32 numbers and not a type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import EngineError
from .family import Family
from .key import Profile

_PRODUCTS = ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "ATTENTION")
_EXACT = ("SOFTMAX", "NORMALIZATION")
_HALVES = {"fp16": "HALF", "bf16": "BF16"}


@dataclass(frozen=True)
class LayerTypes:
    """How many layers of a kind compute in a type: {("MATRIX_MULTIPLY", "HALF"): 36, ...}."""

    counts: Mapping[tuple[str, str], int]

    def complaint(self, precision: str) -> str | None:
        """Why these are not the layers of a graph of that precision, None if they are.

        Softmax and norms must be in float32. So must all products of a float32 graph; of another, nearly all must be
        in its own type: the last product before each output stays in float32.
        """
        wanted = _HALVES.get(precision, "FLOAT")
        products: Counter[str] = Counter()
        for (layer, dtype), count in self.counts.items():
            if layer in _PRODUCTS:
                products[dtype] += count
            if layer in _EXACT and dtype != "FLOAT":
                return f"{count} layers of kind {layer} compute in {dtype} and would lose too much; they need FLOAT"
        if not products:
            return "it has no product at all"
        others = {dtype: count for dtype, count in products.items() if dtype != wanted}
        if wanted != "FLOAT" and others.keys() <= {"FLOAT"} and others.get("FLOAT", 0) < products[wanted]:
            return None
        if not others:
            return None
        listed = ", ".join(f"{count} in {dtype}" for dtype, count in sorted(products.items()))
        return f"its products compute {listed}"


@dataclass(frozen=True)
class BuiltPlan:
    """A serialized plan, the timing cache of its build (None without one) and the types of its layers."""

    plan: bytes
    timing: bytes | None
    types: LayerTypes


def build_plan(
    family: Family,
    graph: Path,
    profile: Profile,
    precision: str,
    *,
    timing: bytes | None = None,
    capability: str | None = None,
) -> BuiltPlan:
    """Builds the plan of an ONNX file.

    precision: of the graph, "fp32", "fp16" or "bf16", which is checked layer by layer; or "tf32" for a float32 graph.
    timing: a timing cache from an earlier build. capability: build for this compute capability ("8.0") without a GPU;
    only TensorRT for RTX can do this. Raises EngineError with the library's message.
    """
    trt = family.module
    builder = trt.Builder(family.logger)
    network = builder.create_network(family.strongly_typed_flag)
    parser = trt.OnnxParser(network, family.logger)
    if not parser.parse_from_file(str(graph)):
        reasons = "; ".join(_parser_error(parser.get_error(i)) for i in range(parser.num_errors))
        raise EngineError(f"{family.name} {family.version} cannot read {graph}: {reasons or family.explain()}.")
    types = layer_types(network)
    complaint = types.complaint("fp32" if precision == "tf32" else precision)
    if complaint is not None:
        raise EngineError(
            f"{graph} is no {precision} graph: {complaint}; export it again with --precision {precision}."
        )
    config = builder.create_builder_config()
    config.add_optimization_profile(_profile(builder, network, profile))
    if precision == "tf32":
        config.set_flag(trt.BuilderFlag.TF32)
    else:
        config.clear_flag(trt.BuilderFlag.TF32)
    if family.name == "tensorrt-rtx":  # else shapes may be allocated for while it runs, which no CUDA graph can hold
        config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)
    if capability is not None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability.replace('.', '')}"), 0)
    cache = config.create_timing_cache(timing or b"") if family.keeps_timings else None
    if cache is not None:
        config.set_timing_cache(cache, ignore_mismatch=True)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineError(f"{family.name} {family.version} cannot build a plan of {graph}: {family.explain()}.")
    left = config.get_timing_cache() if cache is not None else None
    return BuiltPlan(bytes(plan), bytes(left.serialize()) if left is not None else None, types)


def layer_types(network: Any) -> LayerTypes:
    """The types a parsed network computes in, read from the output of each layer."""
    counts: Counter[tuple[str, str]] = Counter()
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.num_outputs:
            counts[_name(layer.type), _name(layer.get_output(0).dtype)] += 1
    return LayerTypes(dict(counts))


def _name(value: Any) -> str:
    """The last part of an enumeration value: "DataType.HALF" -> "HALF"."""
    return str(value).rpartition(".")[2]


def _parser_error(error: Any) -> str:
    return f"node {error.node_name() or error.node()} ({error.node_operator()}): {' '.join(error.desc().split())}"


def _profile(builder: Any, network: Any, profile: Profile) -> Any:
    """Batches on the first axis of `pixels`, queries on the first of `text`; all other axes are fixed."""
    made = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        ranges = {"pixels": profile.batch, "text": profile.queries}[tensor.name]
        made.set_shape(tensor.name, *((size, *tuple(tensor.shape)[1:]) for size in ranges))
    return made
