"""Pools, and images of another size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .operators import Refusal
from .windows import Window


def max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] = (),
    kernel_shape: Sequence[int],
    pads: Sequence[int] = (),
    storage_order: int = 0,
    strides: Sequence[int] = (),
) -> Tensor:
    """The largest value of each window; `storage_order` matters for the places of the values alone, a second output
    which is not supported."""
    window = Window.of(x, kernel_shape, auto_pad, pads, strides, dilations)
    # PyTorch pads by at most half a window, ONNX by any size: what it cannot pad itself is padded before.
    fits = window.symmetric and all(2 * pad <= size for pad, size in zip(window.before, window.size, strict=True))
    lowest = float("-inf") if x.is_floating_point() else torch.iinfo(x.dtype).min
    image, padding = (x, window.before) if fits else (window.padded(x, lowest), 0)
    run = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(window.size) - 1]
    made: Tensor = run(image, window.size, window.strides, padding, window.dilations, bool(ceil_mode))
    return made


def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] = (),
    kernel_shape: Sequence[int],
    pads: Sequence[int] = (),
    strides: Sequence[int] = (),
) -> Tensor:
    window = Window.of(x, kernel_shape, auto_pad, pads, strides, dilations)
    if any(gap != 1 for gap in window.dilations):
        raise Refusal("averages windows with gaps, which is not supported")
    run = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(window.size) - 1]
    fits = window.symmetric and all(2 * pad <= size for pad, size in zip(window.before, window.size, strict=True))
    if fits:
        made: Tensor = run(
            x, window.size, window.strides, window.before, bool(ceil_mode), count_include_pad=bool(count_include_pad)
        )
        return made
    if ceil_mode:
        raise Refusal("rounds its size up while its two sides are padded differently, which is not supported")
    averages: Tensor = run(window.padded(x), window.size, window.strides)
    if count_include_pad:
        return averages
    shares: Tensor = run(window.padded(torch.ones_like(x[:1, :1])), window.size, window.strides)
    return averages / shares


def global_average(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def global_max(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


_MODES = {"linear": {2: "linear", 3: "bilinear"}, "cubic": {3: "bicubic"}}


def resize(
    x: Tensor,
    roi: Sequence[float] | None = None,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Images [N, C, ...] of another size, in the forms that PyTorch has too: nearest by the floor of asymmetric places,
    linear and cubic by half pixels or aligned corners, without antialiasing."""
    sides = list(sizes or [int(n * s) for n, s in zip(x.shape, scales or (), strict=True)])
    if sides[:2] != list(x.shape[:2]) or x.ndim not in (3, 4):
        raise Refusal("resizes other axes than those of an image, which is not supported")
    asked = (coordinate_transformation_mode, nearest_mode)
    if mode == "nearest":
        if asked != ("asymmetric", "floor"):
            raise Refusal(f"takes the nearest pixel by {' and '.join(asked)}, which is not supported")
        if scales and any(n * s != int(n * s) for n, s in zip(x.shape, scales, strict=True)):
            raise Refusal("resizes by a factor that gives no whole number of pixels, which is not supported")
        return functional.interpolate(x, tuple(sides[2:]), mode="nearest")
    name = _MODES.get(mode, {}).get(x.ndim - 1)
    corners = {"half_pixel": False, "pytorch_half_pixel": False, "align_corners": True}.get(asked[0])
    uneven = bool(scales) and any(n * s != int(n * s) for n, s in zip(x.shape, scales or (), strict=True))
    single = asked[0] != "half_pixel" and 1 in sides[2:]  # the other modes place a single pixel in their own ways
    other = cubic_coeff_a != -0.75 or exclude_outside or uneven or single
    if name is None or corners is None or (mode == "cubic" and other) or uneven or single:
        raise Refusal(f"resizes by {mode} and {asked[0]} in a form that is not supported")
    return functional.interpolate(x, tuple(sides[2:]), mode=name, align_corners=corners)
