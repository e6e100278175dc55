"""Layers that normalise."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from .operators import Refusal


def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Mean and variance are of float32, as `stash_type` 1 states."""
    if stash_type != 1:
        raise Refusal(f"has the stash_type {stash_type}, supported is 1")
    shape = list(x.shape[axis % x.ndim :])
    fits = all(weight is None or list(weight.shape) == shape for weight in (scale, bias))
    if fits and scale.dtype == x.dtype:
        return functional.layer_norm(x, shape, scale, bias, epsilon)
    made = functional.layer_norm(x.float(), shape, eps=epsilon).to(x.dtype) * scale
    return made if bias is None else made + bias


def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor:
    if training_mode:
        raise Refusal("is in training mode")
    return functional.batch_norm(x, mean, variance, scale, bias, eps=epsilon)


def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return functional.instance_norm(x, weight=scale, bias=bias, eps=epsilon)


def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """With a scale for each channel, as from opset 21 on."""
    if stash_type != 1:
        raise Refusal(f"has the stash_type {stash_type}, supported is 1")
    return functional.group_norm(x, num_groups, scale, bias, epsilon)
