"""The kind of a file by its first bytes: the only place that compares them."""

from __future__ import annotations

import struct
from typing import Final, Literal

Kind = Literal["png", "jpeg", "dicom", ""]

KIND_BYTES: Final = 132
"""How many bytes of a file show its type."""

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_JPEG: Final = b"\xff\xd8\xff"
_PREFIX: Final = b"DICM"
_FIRST_GROUPS: Final = (0x0002, 0x0008)  # file meta information; identification, which every image begins with
_LONGEST: Final = 1024  # bytes of a first element: a group length, a character set, an image type
_EXPLICIT: Final = frozenset(
    {"UL", "OB", "UI", "CS", "DA", "TM", "DT", "LO", "SH", "SQ", "UN"}
)  # the sizes and types of these elements


def image_kind(start: bytes) -> Kind:
    """The kind of a file whose first `KIND_BYTES` bytes, or more, are `start`; "": another file.

    DICOM is also recognised without its preamble, see `dicom_start`.
    """
    if start.startswith(_PNG):
        return "png"
    if start.startswith(_JPEG):
        return "jpeg"
    return "" if dicom_start(start) is None else "dicom"


def dicom_start(start: bytes) -> int | None:
    """Where the first element of a DICOM file begins; None: another file.

    Behind 128 bytes and the prefix (DICOM PS3.10 7.1); at 0 or behind the prefix where a program wrote no preamble,
    if an element of the groups 0002 or 0008 is there: these begin the file meta information, and the data set of an
    image that has none.
    """
    if start[128:132] == _PREFIX:
        return 132
    begin = 4 if start.startswith(_PREFIX) else 0
    return begin if _is_element(start[begin : begin + 8]) else None


def _is_element(head: bytes) -> bool:
    """Whether eight bytes can be the beginning of the first element of a file."""
    if len(head) < 8:
        return False
    explicit = head[4:6].decode("latin-1") in _EXPLICIT
    for order in "<>":
        group, element, length = struct.unpack(f"{order}HHI", head)
        if group in _FIRST_GROUPS and element < 0x0200:
            # Big endian always has explicit VRs (DICOM PS3.5 A.3).
            return explicit or (order == "<" and length % 2 == 0 and length <= _LONGEST)
    return False
