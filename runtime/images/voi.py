"""The value transformations of a DICOM image, as one table over its stored values (docs/datasets.md §0.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageError

__all__ = ["grey_table"]

Values = NDArray[np.float64]


def grey_table(
    dataset: Any, stored: NDArray[np.integer], low: int, high: int, *, inverted: bool, stretched: bool = False
) -> NDArray[np.uint8] | None:
    """uint8 table of grey levels for the stored values of an image; None: the stored values are grey levels already.

    dataset: the pydicom Dataset. stored: the image; low, high: its least and greatest value. Entry k of the table
    belongs to the value k, or to `low` + k when `low` is negative. Order: modality, VOI (only above 8 bits), one
    inversion, stretching to 0..255 (8-bit values that no step changed keep their level). A constant image becomes
    zeros. Padding pixels become 0 and decide nothing about the others. stretched: no modality and no VOI, and levels
    are truncated, not rounded (BioViL's rule, docs/datasets.md §0.2). Raises ImageError for a table, window or padding
    that DICOM does not allow.
    """
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    values = np.arange(low, high + 1, dtype=np.float64)
    occurs = np.ones(values.shape, np.bool_)
    padding = _padding(dataset, values, stored.dtype)
    if padding.any() or "ModalityLUTSequence" in dataset or "VOILUTSequence" in dataset:
        # A table need not be monotone: its extremes must be computed over the values that occur.
        occurs[:] = False
        occurs[stored.astype(np.intp) - low] = True
        occurs &= ~padding
    if not occurs.any():
        return np.zeros(high + 1 if low > 0 else values.size, np.uint8)
    levels = values if stretched else _modality(dataset, values)
    keep_levels = not stretched and bits == 8 and low >= 0 and bool(np.array_equal(levels, values))
    if bits > 8 and not stretched:
        levels = _voi(dataset, levels)
    least, greatest = float(levels[occurs].min()), float(levels[occurs].max())
    if not (math.isfinite(least) and math.isfinite(greatest)):
        raise ImageError("its rescale values are not numbers")
    if inverted:
        levels = greatest + least - levels
    elif keep_levels and least < greatest and not padding.any():
        return None
    if least == greatest:
        grey = np.zeros(values.shape)
    elif keep_levels:
        grey = levels
    else:
        grey = (levels - least) / (greatest - least) * 255.0
        grey = grey if stretched else np.rint(grey)
    table = np.clip(grey, 0.0, 255.0).astype(np.uint8)
    table[padding] = 0
    return np.concatenate([np.zeros(low, np.uint8), table]) if low > 0 else table


def _modality(dataset: Any, values: Values) -> Values:
    """Stored values -> modality values (DICOM PS3.3 C.11.1)."""
    sequence = dataset.get("ModalityLUTSequence")
    if sequence:
        return _lookup(sequence[0], values, "Modality LUT")
    slope, intercept = dataset.get("RescaleSlope"), dataset.get("RescaleIntercept")
    slope = 1.0 if slope in (None, "") else float(slope)
    intercept = 0.0 if intercept in (None, "") else float(intercept)
    if slope == 0.0:
        raise ImageError("its RescaleSlope is 0")
    return values * slope + intercept


def _voi(dataset: Any, values: Values) -> Values:
    """Modality values -> the first window, or the first VOI LUT, or unchanged."""
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is not None and width is not None:
        return _window(values, centre, width, str(dataset.get("VOILUTFunction") or "LINEAR").upper())
    sequence = dataset.get("VOILUTSequence")
    return _lookup(sequence[0], values, "VOI LUT") if sequence else values


def _window(values: Values, centre: float, width: float, function: str) -> Values:
    """`values` through a window, to 0..1 (DICOM PS3.3 C.11.2.1.2.1 and C.11.2.1.3)."""
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise ImageError(f"its VOI LUT Function is {function[:64]!r}, not LINEAR, LINEAR_EXACT or SIGMOID")
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


def _padding(dataset: Any, values: Values, kind: np.dtype[Any]) -> NDArray[np.bool_]:
    """Which stored values mean padding: the Pixel Padding Value, up to the Pixel Padding Range Limit if there is one
    (DICOM PS3.3 C.7.5.1.1.2)."""
    ends = []
    for keyword in ("PixelPaddingValue", "PixelPaddingRangeLimit"):
        value = dataset.get(keyword)
        if value is None or value == "":
            break  # a limit alone means nothing
        if not isinstance(value, int):
            raise ImageError(f"its {keyword} is not one whole number")
        # Written with the other sign than the pixels have.
        if kind.kind == "i" and value > 32767:
            value -= 65536
        elif kind.kind == "u" and value < 0:
            value += 65536
        ends.append(value)
    if not ends:
        return np.zeros(values.shape, np.bool_)
    return np.asarray((values >= min(ends)) & (values <= max(ends)))


def _lookup(item: Any, values: Values, name: str) -> Values:
    """`values` through a LUT (descriptor: number of entries, first value mapped, bits); clamped at both ends."""
    descriptor, data = item.get("LUTDescriptor"), item.get("LUTData")
    if descriptor is None or data is None or len(descriptor) != 3:
        raise ImageError(f"its {name} is incomplete")
    entries, first = int(descriptor[0]) or 65536, int(descriptor[1])
    if isinstance(data, bytes):
        data = np.frombuffer(data, "u1" if len(data) == entries else "<u2")
    table = np.atleast_1d(np.asarray(data, np.float64))
    if table.size < entries:
        raise ImageError(f"its {name} has {table.size} entries instead of {entries}")
    index = np.clip(np.floor(values) - first, 0, entries - 1).astype(np.int64)
    return np.asarray(table[index], np.float64)


def _first(value: Any) -> float | None:
    """The first of one or several values; None when there is none."""
    if value is None or value == "":
        return None
    if isinstance(value, str | int | float):
        return float(value)
    return float(value[0]) if len(value) else None
