"""Joins a convolution with the sum and the ReLU behind it, which a GPU computes in the same pass over memory."""

from __future__ import annotations

from collections.abc import Sequence

from .compiler import GraphCall, Traced, readers


def fused(trace: Traced) -> list[GraphCall]:
    """The calls, with Conv + Add + ReLU, Conv + ReLU and Conv + Add as one, at the place of the last.

    A sum is joined only with a tensor of the same shape and type: then nothing is broadcast. A result that is read
    elsewhere too is kept.
    """
    count = readers(trace.calls, trace.outputs)
    waiting: dict[str, GraphCall] = {}  # result -> the convolution that can be joined with what reads it
    calls: dict[int, GraphCall] = {}
    places: dict[str, int] = {}
    for place, call in enumerate(trace.calls):
        joined = call
        if call.node.operator == "Add":
            joined = _with_sum(call, trace, waiting) or call
        elif call.node.operator == "Relu" and call.inputs[0] in waiting:
            joined = waiting.pop(call.inputs[0]).followed(call, relu=True)
        if joined is not call:
            del calls[places[_result(joined, call)]]
        calls[place] = joined
        places[call.outputs[0]] = place
        open_end = joined.node.operator == "Conv" and call.node.operator != "Relu"
        if open_end and count[call.outputs[0]] == 1:
            waiting[call.outputs[0]] = joined
    return list(calls.values())


def _with_sum(call: GraphCall, trace: Traced, waiting: dict[str, GraphCall]) -> GraphCall | None:
    for name, other in _either(call.inputs):
        convolution = waiting.get(name)
        if convolution is None or len(convolution.arguments) > 3:  # joined with a sum already
            continue
        value, addend = trace.shapes[name], trace.shapes.get(other)
        if addend is not None and (addend.shape, addend.dtype) == (value.shape, value.dtype):
            del waiting[name]
            return convolution.followed(call, addend=other)
    return None


def _either(names: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Both orders of two names; none for a tensor that is added to itself."""
    first, second = names
    return ((first, second), (second, first)) if first != second else ()


def _result(joined: GraphCall, call: GraphCall) -> str:
    """The input of `call` that `joined` computes itself now."""
    return next(name for name in call.inputs if name not in joined.inputs)
