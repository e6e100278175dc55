"""Coordinate frames: boxes as a file or a model writes them -> pixels of the original image (docs/boxes.md §3)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Corners = tuple[float, float, float, float]
Size = tuple[int, int]
"""(width, height) in pixels."""

Axes = tuple[float, float, float, float, float, float]
"""Factor, divisor and offset of x, then of y: pixel = value * factor / divisor + offset; whole pixels stay whole."""

AS_THEY_ARE: Final[Axes] = (1.0, 1.0, 0.0, 1.0, 1.0, 0.0)
FRAMES: Final = ("pixels", "unit", "percent", "permille", "999", "resized", "crop", "pad")
VIEWED: Final = ("resized", "crop", "pad")
"""Frames that are pixels of what the model saw, and so need its size."""

ORDERS: Final = ("xyxy", "yxyx", "xywh", "cxcywh")
_PARTS: Final = {"unit": 1.0, "percent": 100.0, "permille": 1000.0, "999": 999.0}
_MAX_SIDE: Final = 1 << 20
_MAX_ASPECT: Final = 200  # the ratio of sides above which the code of Qwen2-VL refuses an image (docs/boxes.md §3)


@dataclass(frozen=True)
class Budget:
    """The numbers of pixels between which Qwen's image processor resizes an image, sides in multiples of `factor`."""

    min_pixels: int
    max_pixels: int
    factor: int = 28


View = Size | Budget
"""What the model saw: its width and height, or the rule that gives them."""


def ordered(values: Corners, order: str) -> Corners:
    """Four numbers in one of `ORDERS` as x1, y1, x2, y2."""
    a, b, c, d = values
    if order == "xyxy":
        return values
    if order == "yxyx":
        return b, a, d, c
    if order == "xywh":
        return a, b, a + c, b + d
    return a - c / 2, b - d / 2, a + c / 2, b + d / 2


def in_pixels(box: Corners, axes: Axes) -> Corners:
    """x1, y1, x2, y2 in a frame -> pixels of the original image; not clipped."""
    fx, dx, ox, fy, dy, oy = axes
    return box[0] * fx / dx + ox, box[1] * fy / dy + oy, box[2] * fx / dx + ox, box[3] * fy / dy + oy


def placed_axes(frame: str, size: Size, view: Size | None) -> Axes:
    """The axes of a frame in an image of `size`; `view` is needed for `VIEWED`."""
    width, height = size
    if frame == "pixels":
        return AS_THEY_ARE
    part = _PARTS.get(frame)
    if part is not None:
        return width, part, 0.0, height, part, 0.0
    assert view is not None  # every line is checked for it before
    wide, high = view
    if frame == "resized":
        return width, wide, 0.0, height, high, 0.0
    if frame == "crop":
        side = min(width, height)
        return side, wide, (width - side) // 2, side, high, (height - side) // 2
    side = max(width, height)
    return side, wide, -((side - width) // 2), side, high, -((side - height) // 2)


def view_of(view: View, size: Size) -> Size:
    """The width and height of what the model saw of an image of `size`. Raises ValueError as `smart_resize`."""
    if not isinstance(view, Budget):
        return view
    height, width = smart_resize(size[1], size[0], view)
    return width, height


def smart_resize(height: int, width: int, budget: Budget) -> Size:
    """(height, width) to which Qwen2-VL and Qwen2.5-VL resize an image: multiples of the factor within the budget.

    Raises ValueError for an image that is more than 200 times as long as it is wide, which their code refuses too.
    """
    if max(height, width) > _MAX_ASPECT * min(height, width):
        raise ValueError(f"the model's code refuses images with a ratio of sides above {_MAX_ASPECT}")
    factor = budget.factor
    sides = [max(factor, factor * round(side / factor)) for side in (height, width)]  # round half to even, as theirs
    if math.prod(sides) > budget.max_pixels:
        shrink = math.sqrt(height * width / budget.max_pixels)
        sides = [max(factor, factor * math.floor(side / shrink / factor)) for side in (height, width)]
    elif math.prod(sides) < budget.min_pixels:
        grow = math.sqrt(budget.min_pixels / (height * width))
        sides = [factor * math.ceil(side * grow / factor) for side in (height, width)]
    return sides[0], sides[1]


def read_view(value: Any) -> View:
    """The value of the key `view`. Raises ValueError, saying what it must be."""
    if isinstance(value, Mapping):
        if not {"min_pixels", "max_pixels"} <= value.keys() <= {"min_pixels", "max_pixels", "factor"}:
            raise ValueError("an object for view has min_pixels and max_pixels, and may have factor")
        limits = [_integer(value.get(key, 28), 1 << 40) for key in ("min_pixels", "max_pixels", "factor")]
        if limits[0] > limits[1]:
            raise ValueError("min_pixels is above max_pixels")
        return Budget(*limits)
    return read_size(value)


def read_size(value: Any) -> Size:
    """The value of the key `size`, or a view as [width, height]. Raises ValueError."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("it must be [width, height]")
    return _integer(value[0], _MAX_SIDE), _integer(value[1], _MAX_SIDE)


def _integer(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"its numbers must be whole, from 1 to {most}")
    return value
