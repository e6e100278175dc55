"""Which channel of a stored mask is the mask: decided by what varies (docs/formats.md §9.8)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from .mask_files import StoredMask

_ASK = "state in the option values which values or colours are classes"


def mask_values(stored: StoredMask) -> tuple[NDArray[Any], str]:
    """The values [H, W] whose pixels above 0 are the mask; and a remark if they are the opacity, else empty.

    Of several colours the largest channel. Raises ImageError where colours and opacity say different things.
    """
    strength = _strength(stored)
    opacity = stored.opacity
    if opacity is None or _is_constant(opacity):
        return strength, ""
    coloured, opaque = strength > 0, opacity > 0
    if (coloured == opaque).all():
        # The edges of a painted region may be soft in either of the two.
        return (opacity if _is_constant(strength[opaque]) else strength), ""
    if _is_constant(coloured):
        return opacity, "the mask is in the opacity (alpha channel); its colours do not distinguish inside from outside"
    if opaque.all():
        return strength, "the opacity (alpha channel) varies and is nowhere 0; the colours are the mask"
    raise ImageError(
        f"its colours say that {int(coloured.sum())} pixels are region, its opacity (alpha channel) that "
        f"{int(opaque.sum())} are; {_ASK}"
    )


def colour_count(stored: StoredMask) -> tuple[int, int]:
    """How many visible colours other than black a file has, and how many pixels are not of the most frequent of them.

    Of a palette and of grey (0, 0), since their values are distinguished as numbers.
    """
    if stored.values.ndim == 2:
        return 0, 0
    coloured = _largest(stored.values) > 0
    visible = coloured if stored.opacity is None or not stored.opacity.any() else coloured & (stored.opacity > 0)
    _, counts = np.unique(_codes(stored.values)[visible], return_counts=True)
    return counts.size, int(counts.sum() - counts.max(initial=0))


def class_values(stored: StoredMask) -> tuple[NDArray[Any], str]:
    """The values [H, W] of classes, 0 where the file is transparent; and a remark about the opacity, or empty.

    Raises ImageError for a file with colours.
    """
    values = stored.values
    if values.ndim == 3:
        raise ImageError("it has colours, not values; state colours in the option values")
    opacity = stored.opacity
    if opacity is None or _is_constant(opacity):
        return values, ""
    if _is_constant(values):
        return opacity, "the values are in the opacity (alpha channel); its colours do not vary"
    hidden = int(((values > 0) & (opacity == 0)).sum())
    remark = f"transparent pixels with a value, which are of no class: {hidden}" if hidden else ""
    return np.where(opacity > 0, values, 0), remark


def class_colours(stored: StoredMask) -> NDArray[np.int64]:
    """The colours [H, W] as 256 * (256 * red + green) + blue, 0 where the file is transparent. Raises ImageError."""
    values = stored.values
    if stored.palette is not None:
        values = _palette_colours(stored)
    elif stored.white < 255:
        values = values * np.uint8(255 // stored.white)
    if values.dtype != np.uint8:
        raise ImageError("it has 16 bits, the colours in the option values have 8")
    colours = values if values.ndim == 3 else np.stack([values] * 3, axis=2)
    numbers = colours.astype(np.int64) @ np.array([65536, 256, 1])
    return numbers if stored.opacity is None else np.where(stored.opacity > 0, numbers, 0)


def _strength(stored: StoredMask) -> NDArray[Any]:
    """The values [H, W]: of a palette its indices, of colours the largest channel. Raises ImageError."""
    values = stored.values
    if values.ndim == 3:
        strength = _largest(values)
        if (strength > 0).all() and _varies_where_visible(values, stored.opacity):
            raise ImageError(f"none of its colours is black, so nothing says what lies outside; {_ASK}")
        return strength
    if stored.palette is not None:
        _check_palette(stored)
    return values


def _varies_where_visible(values: NDArray[Any], opacity: NDArray[Any] | None) -> bool:
    """Whether colours vary among the pixels that are not transparent, so that the opacity cannot be the mask."""
    if opacity is None or _is_constant(opacity):
        return True
    return not _is_constant(_codes(values)[opacity > 0])


def _check_palette(stored: StoredMask) -> None:
    """Raises ImageError for a palette whose first colour is bright and another one black.

    Programs that reduce colours put them in any order: the index 0 of black and white can be white.
    """
    colours = _palette_colours(stored)
    dark: NDArray[np.bool_] = (colours == 0).all(axis=2)
    background = stored.values == 0
    if background.any() and not background.all() and dark[~background].any() and not dark[background].any():
        raise ImageError(f"its palette has black at another index than 0, and a colour at 0; {_ASK}")


def _palette_colours(stored: StoredMask) -> NDArray[np.uint8]:
    assert stored.palette is not None
    table = np.zeros((256, 3), np.uint8)  # an index beyond the palette is black, as in Pillow
    table[: len(stored.palette)] = stored.palette
    return np.asarray(table[stored.values])


def _is_constant(values: NDArray[Any]) -> bool:
    return values.size == 0 or bool((values == values.flat[0]).all())


def _largest(colours: NDArray[Any]) -> NDArray[Any]:
    """The largest channel of each pixel; several times as fast as `max` over a short axis."""
    return np.asarray(np.maximum(np.maximum(colours[..., 0], colours[..., 1]), colours[..., 2]))


def _codes(values: NDArray[Any]) -> NDArray[np.int64]:
    """One number for each colour of up to 16 bits a channel."""
    red, green, blue = (values[..., channel].astype(np.int64) for channel in range(3))
    return (red << 32) | (green << 16) | blue
