"""A graph on one device: its weights, uploaded once, and a plan for each shape of inputs that was met."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from ..graph_cut import find_cut
from .compiler import Traced, folded, needed, readers, traced
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
        self._plans: OrderedDict[tuple[str, Shape, Shape], ExecutionPlan] = OrderedDict()
        self.cut = find_cut(graph.nodes)

    def plan(self, pixels: Shape, text: Shape) -> ExecutionPlan:
        """The plan for inputs of these shapes: it takes pixels and text, and gives logits and saliency."""

        def made() -> ExecutionPlan:
            return self._laid_out(_trace(self._graph, (pixels, text), self._kernels), INPUTS)

        return self._kept(("whole", pixels, text), made)

    def image_plan(self, pixels: Shape) -> ExecutionPlan:
        """The plan of what depends on pixels of this shape alone: it gives the features, in the order of `cut`, which
        is not None."""

        def made() -> ExecutionPlan:
            return self._laid_out(self._image(pixels), INPUTS[:1])

        return self._kept(("image", pixels, ()), made)

    def text_plan(self, pixels: Shape, text: Shape) -> ExecutionPlan:
        """The plan of the rest, for features of pixels of this shape: it takes the features and the text."""

        def made() -> ExecutionPlan:
            trace, cut = _trace(self._graph, (pixels, text), self._kernels), self.cut
            assert cut is not None
            trace.calls = needed([c for c in trace.calls if set(cut.features).isdisjoint(c.outputs)], OUTPUTS)
            # What follows from shapes is known here too, and some operators want it as numbers.
            return self._laid_out(trace, (*cut.features, INPUTS[1]))

        return self._kept(("text", pixels, text), made)

    def _image(self, pixels: Shape) -> Traced:
        assert self.cut is not None
        nodes = tuple(self._graph.nodes[place] for place in sorted(self.cut.image))
        graph = replace(self._graph, nodes=nodes, inputs=INPUTS[:1], outputs=self.cut.features)
        return _trace(graph, (pixels,), self._kernels)

    def _kept(self, key: tuple[str, Shape, Shape], made: Callable[[], ExecutionPlan]) -> ExecutionPlan:
        """The plan that is kept for `key`, or a new one."""
        if key in self._plans:
            self._plans.move_to_end(key)
            return self._plans[key]
        plan = made()
        while len(self._plans) >= _MOST_PLANS:
            self._plans.popitem(last=False)
        self._plans[key] = plan
        return plan

    def forget(self) -> None:
        """Releases the plans; the weights stay."""
        self._plans.clear()

    def _laid_out(self, trace: Traced, inputs: Sequence[str]) -> ExecutionPlan:
        calls = fused(trace)
        left = readers(calls, trace.outputs)
        kernels = {call.inputs[1] for call in calls if call.node.operator == "Conv"}
        names = [name for name in trace.known if name in left and name not in inputs]
        constants = tuple(self._constant(name, trace.known[name], name in kernels) for name in names)
        places = {name: place for place, name in enumerate((*names, *inputs))}
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
        return ExecutionPlan(constants, tuple(steps), len(places), tuple(places[name] for name in trace.outputs))

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


def _trace(graph: Graph, shapes: Sequence[Shape], kernels: Kernels) -> Traced:
    """Of a graph that takes pixels and text, or pixels alone, of these shapes."""
    pairs = zip(INPUTS, shapes, _TYPES, strict=False)
    return traced(graph, {n: torch.empty(s, dtype=t, device="meta") for n, s, t in pairs}, kernels)
