"""Pictures in answers, as PNG: the image, alone or with the map in colour and the outline of the mask."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Black, violet, red, orange, pale yellow: lightness rises with the value, readable in grey and for the colour-blind.
_ANCHORS: Final = np.array([(0, 0, 0), (86, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], np.float64)
_OUTLINE: Final = np.array((64, 224, 255), np.uint8)
_STRENGTH: Final = 0.55


def draw_overlay(display: NDArray[np.uint8], normalised: NDArray[np.float32], mask: NDArray[np.uint8]) -> bytes:
    """PNG (RGB, as large as `display` uint8 [H, W]) with a map float32 [h, w] in 0..1 and a mask uint8 [h, w] of it.

    The map is enlarged bilinearly and the mask by repetition, so the outline encloses exactly the pixels of the mask.
    """
    from PIL import Image

    height, width = display.shape
    values = np.asarray(Image.fromarray(normalised).resize((width, height), Image.Resampling.BILINEAR), np.float64)
    inside = np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)) > 0
    values = np.clip(values, 0.0, 1.0)
    steps = np.linspace(0.0, 1.0, len(_ANCHORS))
    colour = np.stack([np.interp(values, steps, _ANCHORS[:, channel]) for channel in range(3)], axis=-1)
    share = (_STRENGTH * values)[..., None]
    blended = np.rint(display[..., None] * (1.0 - share) + colour * share).astype(np.uint8)
    blended[_outline(inside, max(1, round(max(height, width) / 512)))] = _OUTLINE
    return _png(blended)


def draw_preview(display: NDArray[np.uint8]) -> bytes:
    """PNG (grey, as large as `display` uint8 [H, W])."""
    return _png(display)


def _png(picture: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def _outline(inside: NDArray[np.bool_], thickness: int) -> NDArray[np.bool_]:
    """Pixels of the mask within `thickness` of a pixel outside it; the picture's edge is no outline."""
    core = inside
    for _ in range(thickness):
        padded = np.pad(core, 1, mode="edge")
        core = core & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return inside & ~core
