"""Sizes of what slides over an image: windows of convolutions and pools, in ONNX's terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from .operators import Refusal

_AUTOMATIC = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """Per axis of the image: size, stride, dilation, and the padding before and after."""

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(
        cls,
        image: Tensor,
        size: Sequence[int],
        auto_pad: str,
        pads: Sequence[int],
        strides: Sequence[int],
        dilations: Sequence[int],
    ) -> Window:
        """The window over the axes of `image` [N, C, ...]; empty attributes have ONNX's defaults."""
        count = len(size)
        if image.ndim != count + 2:
            raise Refusal(f"slides a window of {count} axes over an image of {image.ndim - 2}")
        steps, spread = tuple(strides or [1] * count), tuple(dilations or [1] * count)
        before, after = tuple(pads[:count] or [0] * count), tuple(pads[count:] or [0] * count)
        if auto_pad in _AUTOMATIC:
            # The result has the size of the image divided by the stride, rounded up.
            missing = [
                max(0, (-(-length // step) - 1) * step + (window - 1) * gap + 1 - length)
                for length, window, step, gap in zip(image.shape[2:], size, steps, spread, strict=True)
            ]
            smaller, larger = tuple(n // 2 for n in missing), tuple(n - n // 2 for n in missing)
            before, after = (smaller, larger) if auto_pad == "SAME_UPPER" else (larger, smaller)
        elif auto_pad == "VALID":
            before = after = (0,) * count
        elif auto_pad != "NOTSET":
            raise Refusal(f"has auto_pad {auto_pad}, which is not supported")
        return cls(tuple(size), steps, spread, before, after)

    def padded(self, image: Tensor, value: float = 0.0) -> Tensor:
        """The image with its padding."""
        flat = [n for pair in zip(reversed(self.before), reversed(self.after), strict=True) for n in pair]
        return functional.pad(image, flat, value=value) if any(flat) else image

    @property
    def symmetric(self) -> bool:
        """Whether the padding is the same on both sides, as PyTorch pads itself."""
        return self.before == self.after
