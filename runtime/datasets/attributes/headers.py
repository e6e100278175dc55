"""Attributes in the headers of DICOM images. Nothing of a header is ever printed: pydicom's own messages quote it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from .values import NAMES, Attributes, read_value

__all__ = ["TAGS", "read_header"]

TAGS: Final = ("ViewPosition", "PatientSex", "PatientAge", "Manufacturer")
_DEFLATED = "1.2.840.10008.1.2.1.99"


def read_header(image: Path) -> Attributes | None:
    """The attributes in the header of `image`; None if it is no DICOM image, or cannot be read.

    A value that does not have the form that its tag demands is not known, apart from an age without a unit, which is
    years.
    """
    from pydicom import dcmread
    from pydicom.filereader import read_file_meta_info

    try:
        with image.open("rb") as stream:
            if stream.read(132)[128:] != b"DICM":
                return None
        if str(read_file_meta_info(image).get("TransferSyntaxUID")) == _DEFLATED:
            return None  # its header could be inflated to any size
        header = dcmread(image, stop_before_pixels=True, specific_tags=list(TAGS))
        # Raw values: those that pydicom has converted were checked by it, with warnings that quote them.
        raw = {tag: header.get_item(tag) for tag in TAGS}
    except Exception:  # pydicom raises any exception on a damaged file
        return None
    found = {}
    for tag, item in raw.items():
        value = getattr(item, "value", None)
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
        name = NAMES[tag.lower()]
        try:
            known = read_value(name, text.replace("\0", ""))
        except ValueError:
            continue
        if known is not None:
            found[name] = known
    return found
