"""Lookup tables: unsigned entries of the bits that the descriptor states, in any VR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from .elements import DataElement, DataSet

Values = NDArray[np.float64]


@dataclass(frozen=True)
class LookupTable:
    """`entries`: float64; the first one belongs to the value `first` and all below, the last one to all above."""

    first: int
    entries: Values

    def __call__(self, values: Values) -> Values:
        index = np.clip(np.floor(values) - self.first, 0, self.entries.size - 1).astype(np.int64)
        return np.asarray(self.entries[index], np.float64)


def read_table(item: DataSet, name: str, reach: tuple[float, float]) -> LookupTable:
    """The table of an item of a Modality or VOI LUT Sequence (DICOM PS3.3 C.11.1.1 and C.11.2.1.1).

    name: for messages. reach: the least and the greatest value that what comes before the table can give, which decides
    the sign of the first value. Raises ImageError, which quotes no value.
    """
    descriptor, element = item.words("LUTDescriptor"), item.element("LUTData")
    if descriptor is None or element is None or len(descriptor) != 3:
        raise ImageError(f"its {name} is incomplete")
    count, first, bits = int(descriptor[0]) or 65536, int(descriptor[1]), int(descriptor[2])
    if not 1 <= bits <= 16:
        raise ImageError(f"its {name} has entries of {bits} bits")
    size = len(element.value)
    if bits <= 8 and count <= size <= count + count % 2 and size != 2 * count:
        words: NDArray[np.uint16] | None = _halves(item, element)[:count]
    else:
        words = item.words("LUTData")
    if words is None or len(words) != count:
        raise ImageError(f"its {name} has {size} bytes instead of {count} entries of {bits} bits")
    entries = words & ((1 << bits) - 1)
    # A writer that takes the entries for signed numbers repeats their highest bit.
    repeated = (words | ((1 << bits) - 1)) == 0xFFFF
    if ((words != entries) & ~(repeated & (entries >> (bits - 1) == 1))).any():
        raise ImageError(f"its {name} has entries of more than {bits} bits")
    return LookupTable(_signed(first, count, reach), entries.astype(np.float64))


def _halves(item: DataSet, element: DataElement) -> NDArray[np.uint16]:
    """Entries of one byte: as bytes, or two in a word, the first in its lower half."""
    if element.vr == "OB":
        return np.frombuffer(element.value, np.uint8).astype(np.uint16)
    words = item.words("LUTData")
    assert words is not None
    return words.astype("<u2").view(np.uint8).astype(np.uint16)


def _signed(first: int, count: int, reach: tuple[float, float]) -> int:
    """The first value of a table, of which 16 bits are known: signed if what comes before the table can be negative.

    Not by the VR, which implicit files do not have and writers confuse. If no value would meet the table then, and some
    would by the other sign, the other sign is meant.
    """
    other = first - 65536 if first > 32767 else first
    if reach[0] < 0:
        first, other = other, first
    met = [start <= reach[1] and start + count > reach[0] for start in (first, other)]
    return other if met == [False, True] else first
