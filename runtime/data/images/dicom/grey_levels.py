"""The value transformations of a DICOM image, as one table over its stored values (docs/datasets.md §0.2)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from .elements import DataSet
from .lookup_tables import read_table
from .stored_values import PixelLayout

Values = NDArray[np.float64]
_ABSENT: Final = 1 << 40  # no value of 16 bits
_FUNCTIONS: Final = ("LINEAR", "LINEAR_EXACT", "SIGMOID")


def grey_levels(
    dataset: DataSet, layout: PixelLayout, stored: NDArray[np.integer], *, inverted: bool, stretched: bool = False
) -> NDArray[np.uint8]:
    """uint8 grey levels, in the shape of the stored values `stored`, which `layout` describes.

    Order: modality, VOI (only above 8 bits), one inversion, stretching to 0..255 (8-bit values that no step changed
    keep their level). A constant image becomes zeros. Padding pixels become 0 and decide nothing about the others.
    stretched: no modality and no VOI, and levels are truncated, not rounded (BioViL's rule, docs/datasets.md §0.2).
    Raises ImageError for a table, window or padding that DICOM does not allow.
    """
    low, high = int(stored.min()), int(stored.max())
    values = np.arange(low, high + 1, dtype=np.float64)
    occurs = np.ones(values.shape, np.bool_)
    padding = _padding(dataset, layout, values)
    if padding.any() or "ModalityLUTSequence" in dataset or "VOILUTSequence" in dataset:
        # A table need not be monotone: its extremes must be computed over the values that occur. Without tables and
        # padding the extremes are at the ends, and the pass over all pixels is not needed.
        occurs[:] = False
        occurs[stored.astype(np.intp) - low] = True
        occurs &= ~padding
    if not occurs.any():
        return np.zeros(stored.shape, np.uint8)
    levels = values if stretched else _transformed(dataset, layout, values)
    keep_levels = not stretched and layout.bits == 8 and low >= 0 and bool(np.array_equal(levels, values))
    least, greatest = float(levels[occurs].min()), float(levels[occurs].max())
    if not (math.isfinite(least) and math.isfinite(greatest)):
        raise ImageError("its rescale values are not numbers")
    # After the VOI, so that a window means the same with MONOCHROME1 (docs/datasets.md §0.2). Mirrored between the
    # extremes, so that they stay the extremes.
    if inverted:
        levels = greatest + least - levels
    elif keep_levels and least < greatest and not padding.any():
        return stored.astype(np.uint8, copy=False)
    if least == greatest:
        grey = np.zeros(values.shape)
    elif keep_levels:
        grey = levels
    else:
        grey = (levels - least) / (greatest - least) * 255.0
        grey = grey if stretched else np.rint(grey)
    table = np.clip(grey, 0.0, 255.0).astype(np.uint8)
    table[padding] = 0
    # A table over the values that occur: at most 65,536 entries in float64 instead of millions of pixels.
    if low >= 0:
        return np.asarray(np.take(np.concatenate([np.zeros(low, np.uint8), table]), stored))
    return np.asarray(np.take(table, stored.astype(np.int32) - low))


def _transformed(dataset: DataSet, layout: PixelLayout, values: Values) -> Values:
    """Stored values -> modality values (DICOM PS3.3 C.11.1), and above 8 bits -> VOI values (C.11.2)."""
    item = dataset.item("ModalityLUTSequence")
    if item is not None:
        table = read_table(item, "Modality LUT", layout.range)
        values, reach = table(values), (float(table.entries.min()), float(table.entries.max()))
    else:
        slope, intercept = dataset.number("RescaleSlope"), dataset.number("RescaleIntercept")
        slope = 1.0 if slope is None else slope
        intercept = 0.0 if intercept is None else intercept
        if slope == 0.0:
            raise ImageError("its RescaleSlope is 0")
        ends = sorted(end * slope + intercept for end in layout.range)
        values, reach = values * slope + intercept, (ends[0], ends[1])
    return _voi(dataset, values, reach) if layout.bits > 8 else values


def _voi(dataset: DataSet, values: Values, reach: tuple[float, float]) -> Values:
    """Modality values, which can be anything within `reach` -> the first window, or the first VOI LUT, or unchanged."""
    centre, width = dataset.number("WindowCenter"), dataset.number("WindowWidth")
    if centre is not None and width is not None:
        return _window(values, centre, width, dataset.code("VOILUTFunction", _FUNCTIONS, "LINEAR"))
    item = dataset.item("VOILUTSequence")
    return values if item is None else read_table(item, "VOI LUT", reach)(values)


def _window(values: Values, centre: float, width: float, function: str) -> Values:
    """`values` through a window, to 0..1 (DICOM PS3.3 C.11.2.1.2.1 and C.11.2.1.3)."""
    least = width >= 1 if function == "LINEAR" else width > 0
    if not (math.isfinite(centre) and math.isfinite(width) and least):
        raise ImageError(f"its window (centre {centre:g}, width {width:g}, {function}) is not one that DICOM allows")
    with np.errstate(over="ignore"):  # far outside the window: 0 or 1
        if function == "SIGMOID":
            return 1.0 / (1.0 + np.exp(-4.0 * (values - centre) / width))
        if function == "LINEAR":
            centre, width = centre - 0.5, width - 1.0
        if width == 0.0:
            return (values > centre).astype(np.float64)
        return np.clip((values - centre) / width + 0.5, 0.0, 1.0)


def _padding(dataset: DataSet, layout: PixelLayout, values: Values) -> NDArray[np.bool_]:
    """Which stored values mean padding: the Pixel Padding Value, up to the Pixel Padding Range Limit if there is one
    (DICOM PS3.3 C.7.5.1.1.2)."""
    ends = []
    for keyword in ("PixelPaddingValue", "PixelPaddingRangeLimit"):
        if keyword not in dataset:
            break  # a limit alone means nothing
        value = dataset.integer(keyword, _ABSENT)
        if value == _ABSENT:
            break
        ends.append(_as_pixel(value, layout))
    if not ends:
        return np.zeros(values.shape, np.bool_)
    return np.asarray((values >= min(ends)) & (values <= max(ends)))


def _as_pixel(value: int, layout: PixelLayout) -> int:
    """A padding value of 16 bits with the sign of the pixels, in any VR.

    Of signed pixels of fewer bits it may be the bits alone, without what they extend to.
    """
    word, sign = value & 0xFFFF, 1 << (layout.bits - 1)
    if not layout.signed:
        return word
    return word - 2 * sign if sign <= word < 2 * sign else word - 65536 if word > 32767 else word
