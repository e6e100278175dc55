"""The drawing of maps over radiographs, for studies and for answers of the server: colours, outlines, and PNG."""

from __future__ import annotations

import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Black, violet, red, orange, pale yellow: lightness rises with the value, readable in grey and for the colour-blind.
_HEAT: Final = np.array([(0, 0, 0), (86, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], np.float64)


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
    from scipy.ndimage import binary_erosion

    edge: NDArray[np.bool_] = mask & ~binary_erosion(mask, iterations=thickness, border_value=not at_border)
    return edge


def png(pixels: NDArray[np.uint8], level: int = 6) -> bytes:
    """Pixels [H, W] or [H, W, 3] as PNG; level: of the compression, 1 is the fastest."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", compress_level=level)
    return stream.getvalue()
