"""Products of matrices, and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .kernels import Convolution, Kernels
from .operators import Refusal
from .windows import Window


def general_product(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    """alpha * a b + beta * c."""
    left, right = a.t() if transA else a, b.t() if transB else b
    if c is None or beta == 0:
        return left.mm(right) if alpha == 1 else left.mm(right) * alpha
    if a.is_floating_point():
        return torch.addmm(c, left, right, beta=beta, alpha=alpha)
    return left.mm(right) * int(alpha) + c * int(beta)


def einsum(*tensors: Tensor, equation: str) -> Tensor:
    return torch.einsum(equation, *tensors)


def convolution(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
    *,
    kernels: Kernels,
    relu: bool = False,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] = (),
    group: int = 1,
    kernel_shape: Sequence[int] = (),
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Tensor:
    """The convolution; `addend` and `relu` are no part of ONNX's operator, they come from the nodes behind it."""
    window = Window.of(image, weight.shape[2:], auto_pad, pads, strides, dilations)
    if not window.symmetric:
        image = window.padded(image)
        window = Window(window.size, window.strides, window.dilations, *((0,) * len(window.size),) * 2)
    if kernels.channels_last and image.ndim == 4:
        image = image.contiguous(memory_format=torch.channels_last)
    return kernels.convolve(Convolution(image, weight, bias, addend, relu, window, group))


def transposed_convolution(
    image: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] = (),
    group: int = 1,
    kernel_shape: Sequence[int] = (),
    output_padding: Sequence[int] = (),
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Tensor:
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        raise Refusal(f"has auto_pad {auto_pad}, which is not supported")
    window = Window.of(image, weight.shape[2:], auto_pad, pads, strides, dilations)
    if not window.symmetric:
        raise Refusal("pads its two sides differently, which is not supported")
    count = len(window.size)
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[count - 1]
    more = tuple(output_padding or [0] * count)
    made: Tensor = run(image, weight, bias, window.strides, window.before, more, group, window.dilations)
    return made
