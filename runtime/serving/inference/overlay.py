"""Pictures in answers, as PNG: the image, alone or with the map in colour and the outline of the mask."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...reporting.gallery.overlay import blend, outline, png

_OUTLINE: Final = np.array((64, 224, 255), np.uint8)
_STRENGTH: Final = 0.55
_FAST: Final = 1  # compression of PNG: an answer waits for it


def draw_overlay(display: NDArray[np.uint8], normalised: NDArray[np.float32], mask: NDArray[np.uint8]) -> bytes:
    """PNG (RGB, as large as `display` uint8 [H, W]) with a map float32 [h, w] in 0..1 and a mask uint8 [h, w] of it.

    The map is enlarged bilinearly and the mask by repetition, so the outline encloses exactly the pixels of the mask.
    """
    from PIL import Image

    height, width = display.shape
    values = np.asarray(Image.fromarray(normalised).resize((width, height), Image.Resampling.BILINEAR), np.float64)
    inside = np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)) > 0
    values = np.clip(values, 0.0, 1.0)
    blended = blend(display, values, _STRENGTH * values)
    # The picture's edge is no outline: a region that reaches it goes on.
    blended[outline(inside, max(1, round(max(height, width) / 512)), at_border=False)] = _OUTLINE
    return png(blended, _FAST)


def draw_preview(display: NDArray[np.uint8]) -> bytes:
    """PNG (grey, as large as `display` uint8 [H, W])."""
    return png(display, _FAST)
