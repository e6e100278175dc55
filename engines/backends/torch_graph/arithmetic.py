"""Operators of several tensors, element by element."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor


def divide(x: Tensor, y: Tensor) -> Tensor:
    """Integers are divided towards zero."""
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def power(x: Tensor, y: Tensor) -> Tensor:
    """The result has the type of the base."""
    return torch.pow(x, y).to(x.dtype)


def modulo(x: Tensor, y: Tensor, *, fmod: int = 0) -> Tensor:
    return torch.fmod(x, y) if fmod else torch.remainder(x, y)


def largest(*tensors: Tensor) -> Tensor:
    return reduce(torch.maximum, tensors)


def smallest(*tensors: Tensor) -> Tensor:
    return reduce(torch.minimum, tensors)


def total(*tensors: Tensor) -> Tensor:
    return reduce(torch.add, tensors)


def average(*tensors: Tensor) -> Tensor:
    return total(*tensors) / len(tensors)


def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(condition, x, y)
