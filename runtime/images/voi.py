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
    dataset: Any, stored: NDArray[np.integer], low: int, high: int, *, inverted: bool
) -> NDArray[np.uint8] | None:
    """uint8 table of grey levels for the stored values of an image; None: the stored values are grey levels already.

    dataset: the pydicom Dataset. stored: the image; low, high: its least and greatest value. Entry k of the table
    belongs to the value k, or to `low` + k when `low` is negative. Order: modality, VOI (only above 8 bits), one
    inversion, stretching to 0..255 (8-bit values that no step changed keep their level). A constant image becomes
    zeros. Raises ImageError for a table or window that DICOM does not allow.
    """
    bits = int(dataset.get("BitsStored") or dataset.BitsAllocated)
    values = np.arange(low, high + 1, dtype=np.float64)
    occurs = np.ones(values.shape, np.bool_)
    if "ModalityLUTSequence" in dataset or "VOILUTSequence" in dataset:
        # A table need not be monotone: its extremes must be computed over the values that occur.
        occurs[:] = False
        occurs[np.unique(stored).astype(np.int64) - low] = True
    levels = _modality(dataset, values)
    keep_levels = bits == 8 and low >= 0 and bool(np.array_equal(levels, values))
    if bits > 8:
        levels = _voi(dataset, levels)
    least, greatest = float(levels[occurs].min()), float(levels[occurs].max())
    if not (math.isfinite(least) and math.isfinite(greatest)):
        raise ImageError("its rescale values are not numbers")
    if inverted:
        levels = greatest + least - levels
    elif keep_levels and least < greatest:
        return None
    if least == greatest:
        grey = np.zeros(values.shape)
    elif keep_levels:
        grey = levels
    else:
        grey = np.rint((levels - least) / (greatest - least) * 255.0)
    table = np.clip(grey, 0.0, 255.0).astype(np.uint8)
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
    """Modality values -> the first window, LINEAR (DICOM PS3.3 C.11.2.1.2.1), or the first VOI LUT, or unchanged."""
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is not None and width is not None:
        if not (math.isfinite(centre) and math.isfinite(width)) or width < 1:
            raise ImageError(f"its window (centre {centre:g}, width {width:g}) is not one that DICOM allows")
        if width == 1:
            return (values > centre - 0.5).astype(np.float64)
        return np.clip((values - (centre - 0.5)) / (width - 1.0) + 0.5, 0.0, 1.0)
    sequence = dataset.get("VOILUTSequence")
    return _lookup(sequence[0], values, "VOI LUT") if sequence else values


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
