"""A graph on one device: its weights, uploaded once, and a plan for each shape of inputs that was met."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from .compiler import GraphCall, Traced, folded, readers, traced
from .fusion import fused
from .graph import Graph
from .kernels import Kernels, PlainKernels
from .plan import ExecutionPlan, Step

INPUTS: Final = ("pixels", "text")
OUTPUTS: Final = ("logits", "saliency")
_TYPES: Final = (torch.uint8, torch.float32)
_MOST_PLANS: Final = 16
"""Plans that are kept: a server meets as many shapes as it has numbers of queries and sizes of batches."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ResultShapes:
    """What a graph gives for inputs of some shape, by its shapes and types alone."""

    shapes: tuple[Shape, Shape]
    types: tuple[torch.dtype, torch.dtype]


def prepared(graph: Graph) -> Graph:
    """The graph with constants folded. Raises UnsupportedNodeError."""
    return folded(graph, PlainKernels())


def results_of(graph: Graph, pixels: Shape, text: Shape) -> ResultShapes:
    """What a prepared graph gives for inputs of these shapes; nothing is computed. Raises UnsupportedNodeError."""
    trace = _trace(graph, (pixels, text), PlainKernels())
    logits, saliency = (trace.known.get(name, trace.shapes.get(name)) for name in OUTPUTS)
    assert logits is not None and saliency is not None
    return ResultShapes((tuple(logits.shape), tuple(saliency.shape)), (logits.dtype, saliency.dtype))


class Program:
    """A prepared graph on the device `where`."""

    def __init__(self, graph: Graph, where: torch.device, kernels: Kernels) -> None:
        self._graph, self.where, self._kernels = graph, where, kernels
        self._weights: dict[str, Tensor] = {}
        self._plans: OrderedDict[tuple[Shape, Shape], ExecutionPlan] = OrderedDict()

    def plan(self, pixels: Shape, text: Shape) -> ExecutionPlan:
        """The plan for inputs of these shapes: it takes pixels and text, and gives logits and saliency."""
        key = (pixels, text)
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        trace = _trace(self._graph, key, self._kernels)
        while len(self._plans) >= _MOST_PLANS:
            self._plans.popitem(last=False)
        self._plans[key] = self._laid_out(trace, fused(trace))
        return self._plans[key]

    def forget(self) -> None:
        """Releases the plans; the weights stay."""
        self._plans.clear()

    def _laid_out(self, trace: Traced, calls: Sequence[GraphCall]) -> ExecutionPlan:
        left = readers(calls, trace.outputs)
        kernels = {call.inputs[1] for call in calls if call.node.operator == "Conv"}
        names = [name for name in trace.known if name in left]
        constants = tuple(self._constant(name, trace.known[name], name in kernels) for name in names)
        places = {name: place for place, name in enumerate((*names, *INPUTS))}
        steps = []
        for call in calls:
            left.subtract(call.inputs)
            for name in call.outputs:
                places.setdefault(name, len(places))
            done = {name for name in (*call.inputs, *call.outputs) if not left[name] and name not in trace.known}
            steps.append(
                Step(
                    call,
                    tuple(places[name] for name in call.inputs),
                    tuple(places[name] for name in call.outputs),
                    tuple(sorted(places[name] for name in done)),
                )
            )
        return ExecutionPlan(constants, tuple(steps), len(places), tuple(places[name] for name in OUTPUTS))

    def _constant(self, name: str, value: Tensor, kernel: bool) -> Tensor:
        stored = name in self._graph.constants
        if stored and name in self._weights:
            return self._weights[name]
        made = value.to(self.where)
        if kernel and made.ndim == 4 and self._kernels.channels_last:
            made = made.contiguous(memory_format=torch.channels_last)
        if stored:
            self._weights[name] = made
        return made


def _trace(graph: Graph, shapes: tuple[Shape, Shape], kernels: Kernels) -> Traced:
    pairs = zip(INPUTS, shapes, _TYPES, strict=True)
    return traced(graph, {n: torch.empty(s, dtype=t, device="meta") for n, s, t in pairs}, kernels)
