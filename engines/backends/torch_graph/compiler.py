"""Makes the plan of a graph for inputs of given shapes.

The graph is run once with tensors that have a shape and no values (PyTorch's meta tensors). Shapes are then numbers,
and so is everything computed from them: it is computed ahead, on the CPU. What is left needs no copy to the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from .graph import Graph, GraphNode
from .kernels import Kernels
from .operator_table import OPERATORS
from .operators import Operator, Refusal
from .refusal import UnsupportedNodeError

SHAPES: Final = ("Shape", "Size")
"""Operators that ask for the shape of their input alone."""

_TENSOR: Final = object()
"""Stands for a tensor in the arguments of a call."""


@dataclass(frozen=True)
class GraphCall:
    """A node whose arguments are known but for its tensors. arguments: with `_TENSOR` at the places of the tensors,
    whose names are `inputs`, in order."""

    node: GraphNode
    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __call__(self, *tensors: Tensor) -> Any:
        """The result for the values of `inputs`."""
        rest = iter(tensors)
        return self.run(*[next(rest) if value is _TENSOR else value for value in self.arguments])

    def followed(self, last: GraphCall, addend: str | None = None, **more: Any) -> GraphCall:
        """This call with what comes behind it: a further tensor `addend` and keywords, and the outputs of `last`."""
        arguments = (*self.arguments, *[None] * (3 - len(self.arguments)), _TENSOR) if addend else self.arguments
        inputs = (*self.inputs, addend) if addend else self.inputs
        return replace(self, run=partial(self.run, **more), arguments=arguments, inputs=inputs, outputs=last.outputs)


@dataclass
class Traced:
    """calls: what must run on the device. known: name -> value, of all that is computed ahead. shapes: name -> tensor
    without values, of all else. outputs: names of the results, each of them in one of the two."""

    calls: list[GraphCall]
    known: dict[str, Tensor]
    shapes: dict[str, Tensor]
    outputs: tuple[str, ...]


def folded(graph: Graph, kernels: Kernels) -> Graph:
    """The graph without the nodes that depend on constants alone: their results are constants."""
    trace = _Trace(graph, kernels, dict(graph.constants))
    kept: list[GraphNode] = []
    for node in graph.nodes:
        used = [name for name in node.inputs if name]
        if node.operator in OPERATORS and all(name in trace.known for name in used) and not _grows(trace, node):
            trace.add(node)
        else:
            kept.append(node)
    needed = {name for node in kept for name in node.inputs} | set(graph.outputs)
    constants = {name: value for name, value in trace.known.items() if name in needed}
    return replace(graph, nodes=tuple(kept), constants=constants)


def traced(graph: Graph, inputs: Mapping[str, Tensor], kernels: Kernels) -> Traced:
    """The calls for inputs of the shapes and types of `inputs` (meta tensors). Raises UnsupportedNodeError."""
    trace = _Trace(graph, kernels, dict(graph.constants), dict(inputs))
    for node in graph.nodes:
        trace.add(node)
    for name in graph.outputs:
        if name not in trace.known and name not in trace.shapes:
            raise UnsupportedNodeError(f"its output {name} is not computed")
    return Traced(needed(trace.calls, graph.outputs), trace.known, trace.shapes, graph.outputs)


def needed(calls: Sequence[GraphCall], outputs: Sequence[str]) -> list[GraphCall]:
    """The calls without those whose results nothing reads."""
    wanted, kept = set(outputs), list[GraphCall]()
    for call in reversed(calls):
        if not wanted.isdisjoint(call.outputs):
            wanted.update(call.inputs)
            kept.append(call)
    return kept[::-1]


def readers(calls: Sequence[GraphCall], outputs: Sequence[str]) -> Counter[str]:
    """Name -> how often it is read, also as a result of the graph."""
    return Counter([name for call in calls for name in call.inputs] + list(outputs))


def _grows(trace: _Trace, node: GraphNode) -> bool:
    """Whether a node would turn a small constant into a large one."""
    return OPERATORS[node.operator].grows and trace.known[node.inputs[0]].is_floating_point()


@dataclass
class _Trace:
    graph: Graph
    kernels: Kernels
    known: dict[str, Tensor]
    shapes: dict[str, Tensor] = field(default_factory=dict)
    calls: list[GraphCall] = field(default_factory=list)

    def add(self, node: GraphNode) -> None:
        if node.operator in SHAPES:
            self.known[node.outputs[0]] = _shape_of(node, self._meta(node, node.inputs[0]))
            return
        call = self._call(node)
        ahead = all(name in self.known for name in call.inputs) and not (call.inputs and _grows(self, node))
        try:
            with torch.no_grad():
                made = call(*(self.known[n] if ahead else self._meta(node, n) for n in call.inputs))
        except Refusal as error:
            raise node.refusal(str(error)) from error
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            # PyTorch refuses shapes and types by any of these, and the call is of its operators alone.
            words = " ".join(str(error).split())[:200]
            raise node.refusal(f"does not run with these shapes and types ({words})") from error
        results = (made,) if isinstance(made, Tensor) else tuple(made)
        if len(call.outputs) > len(results):
            raise node.refusal(f"has {len(call.outputs)} outputs, supported are {len(results)}")
        named = dict(zip(call.outputs, results, strict=False))
        (self.known if ahead else self.shapes).update(named)
        if not ahead:
            self.calls.append(call)

    def _call(self, node: GraphNode) -> GraphCall:
        operator = OPERATORS.get(node.operator)
        if operator is None:
            raise node.refusal("is not supported")
        if self.graph.opset < operator.since:
            raise node.refusal(f"is of opset {self.graph.opset}, supported from {operator.since} on")
        attributes = dict(node.attributes)
        if node.operator == "Split" and len(node.inputs) < 2:
            attributes.setdefault("num_outputs", len(node.outputs))
        if unknown := sorted(set(attributes) - operator.attributes):
            raise node.refusal(f"has the attribute {unknown[0]}, which is not supported")
        if operator.kernels:
            attributes["kernels"] = self.kernels
        arguments = [self._argument(node, operator, index) for index in range(len(node.inputs))]
        tensors = tuple(n for n, value in zip(node.inputs, arguments, strict=True) if value is _TENSOR)
        outputs = tuple(node.outputs)
        while outputs and not outputs[-1]:
            outputs = outputs[:-1]
        return GraphCall(node, partial(operator.run, **attributes), tuple(arguments), tensors, outputs)

    def _argument(self, node: GraphNode, operator: Operator, index: int) -> Any:
        name = node.inputs[index]
        if not name:
            return None
        value = self.known.get(name)
        if index in operator.host:
            if value is None:
                raise node.refusal(f"takes its input {name} from the images or texts, which is not supported")
            return value.flatten().tolist()
        if index in operator.scalar and value is not None and value.ndim == 0:
            return value.item()
        return _TENSOR

    def _meta(self, node: GraphNode, name: str) -> Tensor:
        if name in self.known:
            return self.known[name].to("meta")
        if name not in self.shapes:
            raise node.refusal(f"reads {name}, which nothing computes")
        return self.shapes[name]


def _shape_of(node: GraphNode, x: Tensor) -> Tensor:
    if node.operator == "Size":
        return torch.tensor(x.numel())
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)
