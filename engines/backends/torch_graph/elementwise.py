"""Operators of one tensor, element by element. Keywords are ONNX's attributes with its defaults."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .graph import TYPES
from .operators import Refusal

Number = int | float


def identity(x: Tensor) -> Tensor:
    return x


def dropout(x: Tensor, ratio: Sequence[Number] = (), training: Sequence[Number] = (), *, seed: int = 0) -> Tensor:
    """As in inference: the input."""
    if any(training):
        raise Refusal("is in training mode")
    return x


def clip(x: Tensor, low: Sequence[Number] | None = None, high: Sequence[Number] | None = None) -> Tensor:
    limits = [None if limit is None else limit[0] for limit in (low, high)]
    return x if limits == [None, None] else x.clamp(*limits)


def cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    if to not in TYPES:
        raise Refusal(f"casts to ONNX's type {to}, which is not supported")
    return x.to(TYPES[to])


def cast_like(x: Tensor, like: Tensor, *, saturate: int = 1) -> Tensor:
    return x.to(like.dtype)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return functional.gelu(x, approximate=approximate)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, x * slope, x)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return functional.leaky_relu(x, alpha)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return functional.elu(x, alpha)


def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return (x * alpha + beta).clamp(0, 1)


def hard_swish(x: Tensor) -> Tensor:
    return functional.hardswish(x)


def softplus(x: Tensor) -> Tensor:
    return functional.softplus(x)


def mish(x: Tensor) -> Tensor:
    return functional.mish(x)


def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    infinite = torch.isinf(x)
    if not detect_negative:
        infinite &= x > 0
    return infinite if detect_positive else infinite & (x < 0)
