"""Attributes in the headers of DICOM images. Nothing of a header is ever printed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .....engines.errors import ImageError
from ...images.dicom.open_dicom import open_data_set
from ...images.kinds import KIND_BYTES, image_kind
from .values import NAMES, Attributes, read_value

TAGS: Final = ("ViewPosition", "PatientSex", "PatientAge", "Manufacturer")


def read_header(image: Path) -> Attributes | None:
    """The attributes in the header of `image`; None if it is no DICOM image, or cannot be read.

    A value that does not have the form that its tag demands is not known, apart from an age without a unit, which is
    years.
    """
    try:
        with image.open("rb") as stream:
            if image_kind(stream.read(KIND_BYTES)) != "dicom":
                return None
            stream.seek(0)
            header = open_data_set(stream, TAGS, pixels=False)
    except (OSError, ImageError):
        return None
    found = {}
    for tag in TAGS:
        name = NAMES[tag.lower()]
        try:
            known = read_value(name, header.text(tag))
        except (ValueError, ImageError):
            continue
        if known is not None:
            found[name] = known
    return found
