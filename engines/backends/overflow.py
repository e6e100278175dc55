"""Finds the layer of a half-precision graph whose numbers overflow, by running the graph again on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..bundle import Bundle
from ..errors import EngineError, MissingExtraError
from ..extras import install_advice
from ..precisions import LOW_TYPES
from .ort_session import CPU_PROVIDER, open_session
from .rounding import with_rounding

LARGEST: Final = {"fp16": 65504.0, "bf16": 3.3895313892515355e38}
"""The largest finite number of each type."""

_TOGETHER = 48  # outputs read in one run: all of a large model at once would not fit into host memory
_INSTEAD = {"fp16": "--precision bf16 or fp32", "bf16": "--precision fp32"}


@dataclass(frozen=True)
class Overflow:
    """The first overflow. node, operation: of the first layer with a number out of range, empty if there is none;
    value: its largest magnitude (NaN and infinity possible). before: the largest magnitude of the half-precision layers
    before it; where: the name of the layer with that magnitude."""

    node: str
    operation: str
    value: float
    before: float
    where: str


@dataclass(frozen=True)
class _Tensor:
    name: str
    node: str
    operation: str
    half: bool


def explain_overflow(bundle: Bundle, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> str:
    """The end of a message: which layer of a half-precision bundle overflows for an image uint8 [1, S, S] with `text`
    float32 [Q, D...], and what to do."""
    precision = bundle.manifest.precision
    limit, instead = LARGEST[precision], f"export the model with {_INSTEAD[precision]}"
    try:
        overflow = find_overflow(with_rounding(bundle.file("image")), precision, {"pixels": pixels[None], "text": text})
    except MissingExtraError:
        return f"{instead}; to see which layer it is, {install_advice('export')}"
    except EngineError as error:
        return f"{instead} (which layer it is could not be found out: {' '.join(str(error).split())[:300]})"
    front = f"at most {overflow.before:.3g}, met at {overflow.where}" if overflow.where else "nothing"
    if not overflow.node:
        inside = f"on the CPU the same graph stays below the {limit:.6g} of {precision} ({front})"
        return f"{inside}, so the engine sums in another order or is at fault; {instead}"
    size = f"reaches {overflow.value:.3g}" if np.isfinite(overflow.value) else "is not finite"
    layer = f"{overflow.node} ({overflow.operation})"
    return f"{layer} {size}, {precision} ends at {limit:.6g} (before it: {front}); {instead}"


def find_overflow(graph: bytes, precision: str, inputs: Mapping[str, NDArray[Any]]) -> Overflow:
    """Runs a graph that `with_rounding` made, with all its layers as outputs. Raises EngineError."""
    import onnx  # installed: with_rounding needs it too

    model = onnx.load_from_string(graph)
    tensors = _tensors(model)
    have = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=t.name) for t in tensors if t.name not in have)
    # Not optimised: fusion would remove the names of single layers.
    session = open_session(model.SerializeToString(), [CPU_PROVIDER], None, optimise=False)
    before, where = 0.0, ""
    for tensor, values in _values(session, tensors, inputs):
        value = _magnitude(values)
        if not value <= (LARGEST[precision] if tensor.half else np.finfo(np.float32).max):
            return Overflow(tensor.node, tensor.operation, value, before, where)
        if tensor.half and value > before:
            before, where = value, tensor.node
    return Overflow("", "", before, before, where)


def _tensors(model: Any) -> list[_Tensor]:
    """The outputs of the layers, in order, before they are rounded."""
    made = [(name, node) for node in model.graph.node for name in node.output if name]
    exact = {name for name, _ in made if name.endswith(":exact")}
    tensors = []
    for name, node in made:
        plain = name.removesuffix(":exact")
        if (name == plain and f"{plain}:exact" in exact) or name.endswith(":wide"):
            continue  # the rounding itself
        if node.op_type == "Cast" and any(a.name == "to" and a.i == LOW_TYPES["bf16"] for a in node.attribute):
            continue  # NumPy does not have this type, and no float32 number is out of its range
        tensors.append(_Tensor(name, node.name or plain, node.op_type, name in exact))
    return tensors


def _values(
    session: Any, tensors: Sequence[_Tensor], inputs: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[_Tensor, NDArray[Any]]]:
    rest = iter(tensors)
    while part := list(islice(rest, _TOGETHER)):
        try:
            values = session.run([tensor.name for tensor in part], dict(inputs))
        except Exception as error:  # the library raises its own classes, which share no base but Exception
            raise EngineError(f"the graph fails on the CPU: {error}") from error
        for tensor, value in zip(part, values, strict=True):
            if isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.floating):
                half = tensor.half or value.dtype == np.float16
                yield _Tensor(tensor.name, tensor.node, tensor.operation, half), value


def _magnitude(values: NDArray[Any]) -> float:
    """The largest magnitude; NaN if there is one. Minus infinity is ignored: attention masks consist of it."""
    seen = values[values != -np.inf].astype(np.float64)
    return float(np.abs(seen).max()) if seen.size else 0.0
