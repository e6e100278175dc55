"""What any decoder returns -> stored values, step 1 of docs/datasets.md §0.2: the only place where this is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from .elements import DataSet


@dataclass(frozen=True)
class PixelLayout:
    """How a data set says that a pixel is stored (DICOM PS3.5 8.1.1)."""

    rows: int
    columns: int
    allocated: int
    bits: int
    high_bit: int
    signed: bool

    @classmethod
    def of(cls, dataset: DataSet) -> PixelLayout:
        """Raises ImageError for a layout that DICOM does not allow, and for one that is not of 8 or 16 bits."""
        allocated = dataset.integer("BitsAllocated")
        bits = dataset.integer("BitsStored", allocated)
        high_bit = dataset.integer("HighBit", bits - 1)
        signed = dataset.integer("PixelRepresentation", 0)
        if allocated not in (8, 16):
            raise ImageError(f"its BitsAllocated is {allocated}, pixels of 8 and of 16 bits are read")
        if not 1 <= bits <= allocated or not bits - 1 <= high_bit < allocated:
            raise ImageError(f"BitsAllocated {allocated}, BitsStored {bits} and HighBit {high_bit} do not fit together")
        if signed not in (0, 1):
            raise ImageError(f"its PixelRepresentation is {signed}, not 0 or 1")
        return cls(dataset.integer("Rows"), dataset.integer("Columns"), allocated, bits, high_bit, signed == 1)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value that can be stored."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)


@dataclass(frozen=True)
class Decoded:
    """The integers [rows, columns] of a frame as a decoder returns them, and the bits of each that its stream states.

    Bits above `precision` mean nothing unless `signed`: then the integers are negative where the stream says so.
    `lossy`: the integers are near those that were coded, and can lie a little outside of their range.
    """

    words: NDArray[np.integer]
    precision: int
    signed: bool = False
    lossy: bool = False


def stored_values(decoded: Decoded, layout: PixelLayout) -> NDArray[np.integer]:
    """The stored values [rows, columns] of a frame, of `layout.allocated` bits, signed or not as the layout says.

    The bits from `high_bit` down count, with any bits above and below them (PS3.5 8.1.1), in a compressed frame as in
    any other; the sign is as PixelRepresentation says. A stream of fewer bits than BitsStored holds the values
    themselves: nothing is shifted. Raises ImageError where the frame does not have the size of the layout, and where
    the stream leaves the place or the sign of the bits open.
    """
    words, precision = decoded.words, decoded.precision
    if words.shape != (layout.rows, layout.columns):
        raise ImageError(f"its pixels decode to {words.shape}, not to {layout.rows} x {layout.columns} grey values")
    if precision > layout.allocated:
        raise ImageError(f"its compressed pixels have {precision} bits, BitsAllocated is {layout.allocated}")
    if precision <= layout.high_bit and layout.high_bit != layout.bits - 1:
        raise ImageError(f"its HighBit is {layout.high_bit}, its compressed pixels have {precision} bits")
    if precision < layout.bits:
        if not decoded.signed:
            words = words & np.array((1 << precision) - 1, words.dtype)
        if decoded.signed != layout.signed and (words.min() < 0 or words.max() >> (precision - 1)):
            raise ImageError(
                f"its compressed pixels have {precision} bits and BitsStored is {layout.bits}, so their sign is unknown"
            )
    if decoded.lossy and precision > layout.bits == layout.high_bit + 1:
        words = _without_overshoot(words, decoded, layout)
    size = layout.allocated // 8
    if words.dtype.itemsize != size:
        words = words.astype(f"i{size}" if decoded.signed else f"u{size}")
    return _bits(words.view(f"u{size}"), layout)


def _without_overshoot(words: NDArray[np.integer], decoded: Decoded, layout: PixelLayout) -> NDArray[np.integer]:
    """Values a little beyond BitsStored, as lossy coding makes them of white and black, at the end of the range.

    A mask would turn this white pixel black. Values far beyond it are bits that mean something else, which lossy
    coding mixes with the pixels. Raises ImageError for those.
    """
    values = words.astype(np.int32)
    if not decoded.signed:
        values &= (1 << decoded.precision) - 1
        if layout.signed:
            values -= (values >> (decoded.precision - 1)) << decoded.precision
    least, greatest = layout.range
    if max(int(values.max()) - greatest, least - int(values.min())) > (greatest - least) // 4:
        raise ImageError(
            f"its compressed pixels were coded with loss and hold values far beyond its BitsStored {layout.bits}"
        )
    return np.asarray(np.clip(values, least, greatest))


def _bits(words: NDArray[np.unsignedinteger], layout: PixelLayout) -> NDArray[np.integer]:
    """The bits of unsigned words that the layout names, sign-extended where it is signed."""
    width, bits = layout.allocated, layout.bits
    if bits == width:
        return words.view(f"i{width // 8}") if layout.signed else words
    # Shift left to the top of the word, then right: an arithmetic shift if the values are signed.
    top = np.left_shift(words, width - 1 - layout.high_bit)
    if layout.signed:
        top = top.view(f"i{width // 8}")
    return np.asarray(np.right_shift(top, width - bits))
