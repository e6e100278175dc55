"""Operators that arrange elements anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from .operators import Refusal


def reshape(x: Tensor, shape: Sequence[int], *, allowzero: int = 0) -> Tensor:
    """A zero takes the size of the input at its place, unless `allowzero`."""
    kept = shape if allowzero else [x.shape[at] if size == 0 else size for at, size in enumerate(shape)]
    return x.reshape(tuple(kept))


def transpose(x: Tensor, *, perm: Sequence[int] = ()) -> Tensor:
    return x.permute(*(perm or reversed(range(x.ndim))))


def squeeze(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(axes))


def unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    rank = x.ndim + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    before = x.shape[: axis if axis >= 0 else axis + x.ndim]
    return x.reshape(before.numel(), -1)


def concatenate(*tensors: Tensor, axis: int) -> Tensor:
    return torch.cat(tensors, axis)


def split(x: Tensor, sizes: Sequence[int] | None = None, *, axis: int = 0, num_outputs: int = 0) -> tuple[Tensor, ...]:
    """Without sizes: equal parts, of which the last is smaller where they do not divide the axis."""
    parts = list(sizes or ())
    if sizes is None:
        length = x.shape[axis]
        step = -(-length // num_outputs)
        parts = [max(0, min(step, length - number * step)) for number in range(num_outputs)]
    return torch.split(x, parts, axis)


def expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Both are broadcast: a size of 1 in `shape` keeps that of the input."""
    sizes = [1] * (x.ndim - len(shape)) + list(shape)
    kept = [1] * (len(sizes) - x.ndim) + list(x.shape)
    return x.expand([have if size == 1 else size for have, size in zip(kept, sizes, strict=True)])


def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.repeat(tuple(repeats))


def constant_of_shape(shape: Sequence[int], *, value: Tensor | None = None) -> Tensor:
    filled = torch.zeros(1) if value is None else value
    return torch.full(tuple(shape), filled.item(), dtype=filled.dtype)


def number_range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


def slice_axes(
    x: Tensor,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:
    """A negative step goes backwards, for which PyTorch needs the axis reversed."""
    places = range(len(starts)) if axes is None else axes
    for axis, start, end, step in zip(places, starts, ends, steps or [1] * len(starts), strict=True):
        axis, length = axis % x.ndim, x.shape[axis]
        first, last = (place + length if place < 0 else place for place in (start, end))
        if step > 0:
            bounds = slice(min(max(first, 0), length), min(max(last, 0), length), step)
        else:
            x = x.flip(axis)
            first, last = min(max(first, 0), length - 1), min(max(last, -1), length - 1)
            bounds = slice(length - 1 - first, length - 1 - last, -step)
        x = x[(slice(None),) * axis + (bounds,)]
    return x


def _edge(index: Tensor, length: int) -> Tensor:
    return index.clamp(0, length - 1)


def _reflect(index: Tensor, length: int) -> Tensor:
    if length == 1:
        return torch.zeros_like(index)
    turn = index.abs() % (2 * length - 2)
    return torch.minimum(turn, 2 * length - 2 - turn)


def _wrap(index: Tensor, length: int) -> Tensor:
    return index % length


_SOURCES: Final[dict[str, Callable[[Tensor, int], Tensor]]] = {"edge": _edge, "reflect": _reflect, "wrap": _wrap}


def pad(
    x: Tensor,
    pads: Sequence[int],
    value: Sequence[int | float] | None = None,
    axes: Sequence[int] | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """pads: those before each of `axes` (all), then those after."""
    places = range(x.ndim) if axes is None else axes
    both = [[0, 0] for _ in range(x.ndim)]
    for axis, before, after in zip(places, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True):
        both[axis] = [before, after]
    if mode == "constant":
        flat = [count for pair in reversed(both) for count in pair]
        return torch.nn.functional.pad(x, flat, value=value[0] if value else 0)
    if mode not in _SOURCES:
        raise Refusal(f"has the mode {mode}, which is not supported")
    for axis, (before, after) in enumerate(both):
        if before or after:
            index = torch.arange(-before, x.shape[axis] + after, device=x.device)
            x = x.index_select(axis, _SOURCES[mode](index, x.shape[axis]))
    return x
