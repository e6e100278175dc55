"""The drawing of maps over radiographs, for studies and for answers of the server: colours, outlines, and PNG."""

from __future__ import annotations

import io
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Black, violet, red, orange, pale yellow: lightness rises with the value, readable in grey and for the colour-blind.
_HEAT: Final = np.array([(0, 0, 0), (86, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], np.float64)

OUTLINE: Final = np.array((64, 224, 255), np.uint8)
STRENGTH: Final = 0.55
"""Opacity of the overlay where the map is 1, so that the radiograph stays visible."""


def blend(grey: NDArray[np.uint8], values: NDArray[Any], opacity: NDArray[np.float64]) -> NDArray[np.uint8]:
    """uint8 [H, W, 3]: the colours of a map of 0 to 1 [H, W] over a radiograph [H, W], with this opacity [H, W]."""
    steps = np.linspace(0.0, 1.0, len(_HEAT))
    colour = np.stack([np.interp(values, steps, channel) for channel in _HEAT.T], axis=-1)
    share = opacity[..., None]
    blended: NDArray[np.uint8] = np.rint(grey[..., None] * (1.0 - share) + colour * share).astype(np.uint8)
    return blended


def outline(mask: NDArray[np.bool_], thickness: int = 1, *, at_border: bool) -> NDArray[np.bool_]:
    """Pixels of the mask within `thickness` steps to a side of a pixel outside it; at_border: what lies beyond the
    picture is outside."""
    inner = mask
    for _ in range(thickness):  # an erosion; SciPy's takes ten times as long
        padded = np.pad(inner, 1, constant_values=not at_border)
        inner = inner & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    edge: NDArray[np.bool_] = mask & ~inner
    return edge


def drawn_map(grey: NDArray[np.uint8], normalised: NDArray[np.float32], inside: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """uint8 [H, W, 3]: a map float32 [h, w] in 0..1 over a radiograph [H, W], with the outline of `inside` [H, W].

    The map is enlarged bilinearly, in 256 steps.
    """
    from PIL import Image

    height, width = grey.shape
    steps = np.rint(np.clip(normalised, 0.0, 1.0) * 255.0).astype(np.uint8)
    levels = np.asarray(Image.fromarray(steps).resize((width, height), Image.Resampling.BILINEAR))
    places = levels.astype(np.uint16) << 8 | grey
    packed = np.take(_blended_levels(), places)  # whole pixels: three times as fast as a look-up of their colours
    drawn = np.ascontiguousarray(packed.view(np.uint8).reshape(height, width, 4)[..., :3])
    # The picture's edge is no outline: a region that reaches it goes on.
    drawn[outline(inside, max(1, round(max(height, width) / 512)), at_border=False)] = OUTLINE
    return drawn


@cache
def _blended_levels() -> NDArray[np.uint32]:
    """uint32 [65536]: the bytes of `blend` of each step of a map with each grey, with a fourth one."""
    grey, values = np.broadcast_to(np.arange(256, dtype=np.uint8), (256, 256)), np.linspace(0.0, 1.0, 256)[:, None]
    colours = blend(grey, np.broadcast_to(values, (256, 256)), STRENGTH * np.broadcast_to(values, (256, 256)))
    return np.ascontiguousarray(np.pad(colours, ((0, 0), (0, 0), (0, 1)))).view(np.uint32).reshape(-1)


def png(pixels: NDArray[np.uint8], level: int = 6) -> bytes:
    """Pixels [H, W] or [H, W, 3] as PNG; level: of the compression, 1 is the fastest."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=level)
    return stream.getvalue()
