"""Operators that reduce axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .operators import Refusal


def reducing(
    compute: Callable[[Tensor, tuple[int, ...], bool], Tensor], identity: bool = True
) -> Callable[..., Tensor]:
    """A reducing operator. Its axes are an attribute before opset 18, an input from then on; without any: all.

    identity: whether a reduction of no axes gives the input.
    """

    def run(
        x: Tensor,
        axes_input: Sequence[int] | None = None,
        *,
        axes: Sequence[int] = (),
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Tensor:
        chosen = tuple(axis % x.ndim for axis in (axes_input or axes))
        if not chosen and noop_with_empty_axes:
            if identity:
                return x
            raise Refusal("reduces no axes, which is not supported")
        return compute(x, chosen or tuple(range(x.ndim)), bool(keepdims))

    return run


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.mean(axes, keepdim=keep)


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.sum(axes, keepdim=keep, dtype=x.dtype)  # PyTorch would widen integers


def _product(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis, keepdim=keep, dtype=x.dtype)
    return x


def _l1(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _sum(x.abs(), axes, keep)


def _l2(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=axes, keepdim=keep)
    return norm


def _sum_of_squares(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


def _log_of_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return x.logsumexp(axes, keepdim=keep)


mean, total, product = reducing(_mean), reducing(_sum), reducing(_product)
greatest = reducing(lambda x, axes, keep: x.amax(axes, keepdim=keep))
least = reducing(lambda x, axes, keep: x.amin(axes, keepdim=keep))
l1, l2 = reducing(_l1, False), reducing(_l2, False)
sum_of_squares, log_of_sum = reducing(_sum_of_squares, False), reducing(_log_of_sum, False)


def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.softmax(axis)


def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return x.log_softmax(axis)
