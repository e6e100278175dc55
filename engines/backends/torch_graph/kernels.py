"""Convolution with what follows it, behind one interface: in PyTorch's general functions here, fused in `cuda`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from .windows import Window


@dataclass(frozen=True)
class Convolution:
    """relu(convolution of `image` with `weight` + `bias` + `addend`), the last three steps where asked for."""

    image: Tensor
    weight: Tensor
    bias: Tensor | None
    addend: Tensor | None
    relu: bool
    window: Window
    groups: int


class Kernels(Protocol):
    """How a device computes convolutions."""

    @property
    def channels_last(self) -> bool:
        """The layout of images and weights in memory."""
        ...

    def convolve(self, asked: Convolution) -> Tensor:
        """The result, a new tensor. `window` is padded the same on both sides."""
        ...


@dataclass(frozen=True)
class PlainKernels:
    """One call of PyTorch for each step; the sum and ReLU are computed in the memory of the convolution's result."""

    channels_last: bool = True

    def convolve(self, asked: Convolution) -> Tensor:
        window = asked.window
        run = (functional.conv1d, functional.conv2d, functional.conv3d)[len(window.size) - 1]
        made: Tensor = run(
            asked.image, asked.weight, asked.bias, window.strides, window.before, window.dilations, asked.groups
        )
        if asked.addend is not None:
            made = made.add_(asked.addend)
        return torch.relu_(made) if asked.relu else made
