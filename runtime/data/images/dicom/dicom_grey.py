"""DICOM -> native 8-bit grey, MONOCHROME2 sense, in the order of docs/datasets.md §0.2."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from ..png_jpeg import check_pixels
from .elements import DataSet
from .grey_levels import grey_levels
from .open_dicom import open_data_set
from .pixel_frames import check_syntax, stored_frames
from .stored_values import PixelLayout

_OF_FRAMES: Final = ("FrameVOILUTSequence", "PixelValueTransformationSequence")
"""Windows and rescale values of enhanced objects; without them the picture would be another one."""
_GREY: Final = ("MONOCHROME1", "MONOCHROME2")
_COLOUR: Final = (
    "PALETTE COLOR", "RGB", "HSV", "ARGB", "CMYK", "YBR_FULL", "YBR_FULL_422", "YBR_PARTIAL_422", "YBR_PARTIAL_420",
    "YBR_ICT", "YBR_RCT", "XYB",
)  # fmt: skip


def decode_dicom(data: bytes, *, stretched: bool = False) -> NDArray[np.uint8]:
    """uint8 [Rows, Columns], bright = radio-dense, from the bytes of a DICOM file; stretched: see `grey_levels`.

    One frame, one sample per pixel, MONOCHROME1 or MONOCHROME2, 8 or 16 bits allocated. Raises ImageError, which quotes
    no value of the file, for any file that cannot be read.
    """
    dataset, layout, photometric = _film(data)
    (stored,) = stored_frames(dataset, layout, 1)
    return grey_levels(dataset, layout, stored, inverted=photometric == "MONOCHROME1", stretched=stretched)


def read_stored(data: bytes) -> NDArray[np.integer]:
    """The stored values [Rows, Columns] of a film, integers of 8 or 16 bits. Raises ImageError."""
    dataset, layout, _ = _film(data)
    return next(stored_frames(dataset, layout, 1))


def _film(data: bytes) -> tuple[DataSet, PixelLayout, str]:
    """The data set of a film, how its pixels are stored, and its photometric interpretation.

    Refuses by the header alone, before pixels are decoded or memory is allocated for them.
    """
    dataset = open_data_set(io.BytesIO(data))
    check_syntax(dataset.syntax)
    check_pixels((dataset.integer("Rows"), dataset.integer("Columns")))
    photometric = dataset.code("PhotometricInterpretation", (*_GREY, *_COLOUR))
    if not photometric:
        raise ImageError("it lacks the tag PhotometricInterpretation")
    if photometric not in _GREY:
        raise ImageError(f"its PhotometricInterpretation is {photometric}, only MONOCHROME1 and MONOCHROME2 are grey")
    if dataset.integer("SamplesPerPixel", 1) != 1:
        raise ImageError("it has more than one sample per pixel")
    frames = dataset.integer("NumberOfFrames", 1)
    if frames > 1:
        raise ImageError(f"it has {frames} frames, a radiograph has one")
    for groups in ("PerFrameFunctionalGroupsSequence", "SharedFunctionalGroupsSequence"):
        group = dataset.item(groups)
        if group is not None and any(keyword in group for keyword in _OF_FRAMES):
            raise ImageError("its window or rescale is one of a frame (functional groups), which is not read")
    return dataset, PixelLayout.of(dataset), photometric
