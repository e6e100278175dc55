"""The elements of a DICOM file as they are stored.

Values are converted here from their bytes: pydicom's conversion guesses the sign of some, loses the byte order of
others, and its warnings and exceptions quote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError

IMPLICIT: Final = "1.2.840.10008.1.2"
EXPLICIT: Final = "1.2.840.10008.1.2.1"
BIG_ENDIAN: Final = "1.2.840.10008.1.2.2"
DEFLATED: Final = "1.2.840.10008.1.2.1.99"
RUN_LENGTHS: Final = "1.2.840.10008.1.2.5"

Order = Literal["<", ">"]

_UNDEFINED: Final = 0xFFFF_FFFF
_BINARY: Final = {"US": "u2", "SS": "i2", "UL": "u4", "SL": "i4", "OW": "u2", "FL": "f4", "FD": "f8"}
_WORDS: Final = ("US", "SS", "OW", "OB", "UN", "US or SS", "US or OW", "US or SS or OW")
_UID: Final = re.compile(r"\d+(\.\d+)+", re.ASCII)  # also with leading zeros, which some makers write
_WHOLE: Final = re.compile(r"[+-]?\d{1,12}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class DataElement:
    """A value as it is stored: its VR (from the dictionary where none is written), bytes and byte order.

    `in_items`: its length is undefined, so `value` is a series of items.
    """

    vr: str
    value: bytes
    order: Order
    in_items: bool


@dataclass(frozen=True)
class DataSet:
    """A data set, or an item of a sequence, and the transfer syntax of its file ("" where none is stated).

    `parsed` is pydicom's data set. All methods raise ImageError, which quotes no value.
    """

    parsed: Any
    syntax: str

    def __contains__(self, keyword: str) -> bool:
        return tag_of(keyword) in self.parsed

    def element(self, keyword: str) -> DataElement | None:
        """An element that is no sequence; None if it is not there."""
        try:
            element = self.parsed.get_item(tag_of(keyword)) if keyword in self else None
        except Exception:
            raise ImageError(f"its {keyword} is damaged") from None
        if element is None:
            return None
        if not hasattr(element, "is_little_endian"):
            return self._converted(keyword, element)
        order: Order = "<" if element.is_little_endian else ">"
        vr = str(element.VR or "UN")
        if vr == "UN":
            # A value of unknown VR is little endian, whatever the transfer syntax (DICOM PS3.5 6.2.2).
            order = order if element.VR is None else "<"
            vr = _dictionary_vr(keyword)
        value = element.value or b""
        if element.length != _UNDEFINED and len(value) < element.length:
            raise ImageError(f"its {keyword} is truncated")
        return DataElement(vr, value, order, element.length == _UNDEFINED)

    def integer(self, keyword: str, default: int | None = None) -> int:
        """A whole number, however it is written; `default`, if it is not None, where it is absent or empty."""
        numbers = self._numbers(keyword)
        if not numbers:
            if default is None:
                raise ImageError(f"it lacks the tag {keyword}")
            return default
        if len(numbers) > 1 or not isinstance(numbers[0], int):
            raise ImageError(f"its {keyword} is not one whole number")
        return numbers[0]

    def number(self, keyword: str) -> float | None:
        """The first of one or several numbers; None where it is absent or empty."""
        numbers = self._numbers(keyword)
        return float(numbers[0]) if numbers else None

    def code(self, keyword: str, terms: Iterable[str], default: str = "") -> str:
        """A code string among `terms`; `default` where it is absent or empty."""
        element = self.element(keyword)
        text = _text(element.value).upper() if element is not None else ""
        if text and text not in terms:
            raise ImageError(f"its {keyword} is not one that DICOM defines")
        return text or default

    def text(self, keyword: str) -> str:
        """A text as it is stored, without padding; bytes that are no UTF-8 are replaced. Not for messages."""
        element = self.element(keyword)
        return element.value.decode("utf-8", "replace").replace("\0", "").strip() if element is not None else ""

    def words(self, keyword: str) -> NDArray[np.uint16] | None:
        """The 16-bit words of a binary value, uint16, without a sign, for any VR; None where it is absent."""
        element = self.element(keyword)
        if element is None or not element.value:
            return None
        if element.vr not in _WORDS:
            raise ImageError(f"its {keyword} has another value representation than DICOM allows")
        if element.vr == "OB" and element.order == ">":  # bytes are not swapped (DICOM PS3.5 7.3)
            raise ImageError(f"its {keyword} is a series of bytes, so the byte order of its numbers is unknown")
        return np.frombuffer(element.value + bytes(len(element.value) % 2), f"{element.order}u2").astype(np.uint16)

    def get(self, keyword: str, default: Any = None) -> Any:
        """A value as pydicom converts it, for texts and sequences of objects; it can raise any exception."""
        return self.parsed.get(keyword, default)

    def item(self, keyword: str) -> DataSet | None:
        """The first item of a sequence; None where it is absent or empty."""
        if keyword not in self:
            return None
        try:
            element = self.parsed[tag_of(keyword)]
            items = element.value if element.VR == "SQ" else None
        except Exception:
            items = None
        if items is None:
            raise ImageError(f"its {keyword} is damaged")
        return DataSet(items[0], self.syntax) if items else None

    def _converted(self, keyword: str, element: Any) -> DataElement:
        """An element that pydicom has converted, because another reader asked it for the value."""
        value = element.value
        if isinstance(value, bytes):
            order: Order = ">" if self.syntax == BIG_ENDIAN else "<"
            return DataElement(str(element.VR), value, order, bool(getattr(element, "is_undefined_length", False)))
        if element.VR == "SQ":
            raise ImageError(f"its {keyword} is not a plain value")
        values = value if isinstance(value, MutableSequence) else [value]
        text = "\\".join("" if part is None else str(part) for part in values)
        return DataElement("LO", text.encode(), "<", False)

    def _numbers(self, keyword: str) -> list[int | float]:
        element = self.element(keyword)
        if element is None:
            return []
        number_type = _BINARY.get(element.vr.partition(" ")[0])
        if number_type is not None:
            if len(element.value) % int(number_type[1]):
                raise ImageError(f"its {keyword} is not a number")
            numbers: list[int | float] = np.frombuffer(element.value, element.order + number_type).tolist()
            return numbers
        parts = [part.strip() for part in _text(element.value).split("\\")]
        if parts == [""]:
            return []
        if all(_WHOLE.fullmatch(part) for part in parts):
            return [int(part) for part in parts]
        if not _DECIMAL.fullmatch(parts[0]):
            raise ImageError(f"its {keyword} is not a number")
        first = float(parts[0])
        return [int(first) if len(parts) == 1 and first.is_integer() else first]


def valid_uid(text: str) -> str:
    """`text` without its padding if it is a UID (DICOM PS3.5 9.1), else ""; only a UID may stand in a message."""
    text = text.strip("\0 ")
    return text if len(text) <= 64 and _UID.fullmatch(text) else ""


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip("\0 ")


@cache
def tag_of(keyword: str) -> int:
    """The tag of a keyword, such as 0x0028_0010 of Rows."""
    from pydicom.datadict import tag_for_keyword

    tag = tag_for_keyword(keyword)
    assert tag is not None, keyword
    return int(tag)


def _dictionary_vr(keyword: str) -> str:
    from pydicom.datadict import dictionary_VR

    return str(dictionary_VR(tag_of(keyword)))
