"""Operators that take elements by their place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .operators import Refusal


def _from_the_start(index: Tensor, length: int) -> Tensor:
    """Negative places count from the end."""
    index = index.long()
    return torch.where(index < 0, index + length, index)


def gather(x: Tensor, index: Tensor | int, *, axis: int = 0) -> Tensor:
    if isinstance(index, int):
        return x.select(axis, index)
    axis %= x.ndim
    places = _from_the_start(index, x.shape[axis]).reshape(-1)
    return x.index_select(axis, places).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def gather_elements(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    return torch.gather(x, axis, _from_the_start(index, x.shape[axis]))


def arg_max(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    if select_last_index:
        raise Refusal("has the attribute select_last_index, which is not supported")
    return x.argmax(axis, bool(keepdims))


def triangle(x: Tensor, k: Sequence[int] | None = None, *, upper: int = 1) -> Tensor:
    diagonal = k[0] if k else 0
    return x.triu(diagonal) if upper else x.tril(diagonal)


def cumulative_sum(x: Tensor, axis: Sequence[int], *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    if exclusive:
        raise Refusal("has the attribute exclusive, which is not supported")
    place = axis[0]
    return x.flip(place).cumsum(place).flip(place).to(x.dtype) if reverse else x.cumsum(place).to(x.dtype)
