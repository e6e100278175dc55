"""Lookup tables and padding values, whatever VR and byte order they are written with, against a loop over pixels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from dicom_streams import BIG_ENDIAN, EXPLICIT, IMPLICIT, Entry, film, written
from numpy.typing import NDArray
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey

SYNTAXES = (IMPLICIT, EXPLICIT, BIG_ENDIAN)
MODALITY, VOI = "x00283000", "x00283010"
ENTRIES = [0, 100, 65535, 40000, 33000, 32768, 32767, 9, 60000, 50000]  # not monotone, half of them above 32767


def packed(numbers: Sequence[int], syntax: str, vr: str) -> bytes:
    """16-bit words in the file's byte order; of unknown VR always little endian (PS3.5 6.2.2)."""
    order = ">" if syntax == BIG_ENDIAN and vr != "UN" else "<"
    return struct.pack(f"{order}{len(numbers)}H", *(number & 0xFFFF for number in numbers))


def table(
    entries: Sequence[int], first: int, syntax: str, *, bits: int = 16, vr: str = "US", count: int | None = None,
    data: bytes | None = None, kind: str | None = None,
) -> list[list[Entry]]:  # fmt: skip
    """A sequence of one table. vr: of descriptor and data; kind: of the data alone."""
    descriptor = [(len(entries) if count is None else count) & 0xFFFF, first, bits]
    content = packed(entries, syntax, kind or vr) if data is None else data
    return [[(0x00283002, vr, packed(descriptor, syntax, vr)), (0x00283006, kind or vr, content)]]


def read(stored: NDArray[Any], syntax: str, bits: int = 12, **tags: Any) -> NDArray[np.uint8]:
    """A film with these elements, through the reader."""
    order = ">" if syntax == BIG_ENDIAN else "<"
    pixels = stored.astype(stored.dtype.newbyteorder(order)).tobytes()
    signed = ("US", [int(stored.dtype.kind == "i")])
    return decode_grey(written(film(stored.shape, pixels, 16, bits, x00280103=signed, **tags), syntax), "a.dcm")


def mapped(values: NDArray[Any], first: int, entries: Sequence[int]) -> NDArray[np.uint8]:
    """Each value through a table, and stretched."""
    out = [entries[min(max(int(np.floor(value)) - first, 0), len(entries) - 1)] for value in values.ravel().tolist()]
    found = np.reshape(out, values.shape).astype(float)
    return np.rint((found - found.min()) / (found.max() - found.min()) * 255).astype(np.uint8)


def around(first: int, count: int, dtype: Any = np.int16) -> NDArray[Any]:
    """Values from below a table to above it."""
    return np.resize(np.arange(first - 2, first + count + 2), (4, 6)).astype(dtype)


@pytest.mark.parametrize("keyword", [MODALITY, VOI])
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("vr", ["US", "SS", "OW", "OB", "UN"])
def test_entries_are_unsigned_whatever_their_representation(vr: str, syntax: str, keyword: str) -> None:
    stored = around(100, len(ENTRIES), np.uint16)
    sequence = table(ENTRIES, 100, syntax, vr="US", kind=vr)
    if vr == "OB" and syntax == BIG_ENDIAN:
        with pytest.raises(ImageError, match="its LUTData is a series of bytes, so the byte order"):
            read(stored, syntax, **{keyword: ("SQ", sequence)})
        return
    expected = mapped(stored, 100, ENTRIES)
    np.testing.assert_array_equal(read(stored, syntax, **{keyword: ("SQ", sequence)}), expected)
    whole = table(ENTRIES, 100, syntax, vr=vr)  # the descriptor too
    np.testing.assert_array_equal(read(stored, syntax, **{keyword: ("SQ*", whole)}), expected)


@pytest.mark.parametrize("count", [5, 6])
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("vr", ["OW", "US", "OB", "UN"])
def test_entries_of_eight_bits_one_or_two_a_word(vr: str, syntax: str, count: int) -> None:
    entries = [7, 255, 3, 128, 200, 90][:count]
    stored = around(100, count, np.uint16)
    expected = mapped(stored, 100, entries)
    data = bytes(entries) + bytes(count % 2)
    if syntax == BIG_ENDIAN and vr in ("OW", "US"):  # words are swapped, and the first entry is in the lower half
        data = bytes(data[at ^ 1] for at in range(len(data)))
    two = table(entries, 100, syntax, bits=8, vr="US", kind=vr, data=data)
    np.testing.assert_array_equal(read(stored, syntax, **{VOI: ("SQ", two)}), expected)
    if vr != "OB":
        one = table(entries, 100, syntax, bits=8, vr="US", kind=vr)
        np.testing.assert_array_equal(read(stored, syntax, **{VOI: ("SQ", one)}), expected)


def test_entries_have_the_bits_that_the_descriptor_states() -> None:
    stored = around(0, 4)
    negative = [1, 0xFFFF, 0xF801, 900]  # 4095 and 2049, with their highest bit repeated
    found = read(stored, EXPLICIT, **{VOI: ("SQ", table(negative, 0, EXPLICIT, bits=12, vr="SS"))})
    np.testing.assert_array_equal(found, mapped(stored, 0, [1, 4095, 2049, 900]))
    for bits, entry in ((12, 0x1000), (12, 0xF001), (8, 256), (15, 0xBFFF)):
        with pytest.raises(ImageError, match=f"its VOI LUT has entries of more than {bits} bits"):
            read(stored, EXPLICIT, **{VOI: ("SQ", table([0, 1, entry, 2], 0, EXPLICIT, bits=bits))})
    for bits in (0, 17, 40000):
        with pytest.raises(ImageError, match=f"its VOI LUT has entries of {bits} bits"):
            read(stored, EXPLICIT, **{VOI: ("SQ", table([0, 1], 0, EXPLICIT, bits=bits))})


def test_the_number_of_entries() -> None:
    rng = np.random.default_rng(2)
    stored = rng.integers(0, 65536, (4, 6)).astype(np.uint16)
    for count in (65536, 40000):  # written as 0, and as a number whose signed form is negative
        entries = rng.integers(0, 65536, count).tolist()
        for vr in ("US", "SS"):
            sequence = table(entries, 0, EXPLICIT, vr=vr, kind="OW", count=count)
            found = read(stored, EXPLICIT, 16, **{VOI: ("SQ", sequence)})
            np.testing.assert_array_equal(found, mapped(stored, 0, entries))
    for entries, count in ((ENTRIES, 9), (ENTRIES, 11), (ENTRIES, 0), ([], 4)):
        with pytest.raises(ImageError, match=r"its VOI LUT has \d+ bytes instead of \d+ entries of 16 bits"):
            read(around(0, 9), EXPLICIT, **{VOI: ("SQ", table(entries, 0, EXPLICIT, count=count))})


SIGNED, UNSIGNED = np.dtype(np.int16), np.dtype(np.uint16)


@pytest.mark.parametrize("vr", ["US", "SS"])
@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(
    ("dtype", "bits", "slope", "intercept", "first"),
    [
        (UNSIGNED, 12, 1, -8, -8),
        (UNSIGNED, 16, 1, -1024, -300),
        (UNSIGNED, 12, -1, 0, -2000),
        (UNSIGNED, 16, 1, -20000, -20005),  # values would meet the table by either sign
        (UNSIGNED, 12, 0.5, -100, -20),
        (UNSIGNED, 16, 1, 0, 40000),
        (UNSIGNED, 12, 9, 0, 35000),
        (SIGNED, 12, 1, 0, -8),
        (SIGNED, 16, 1, 32768, 40000),
        (SIGNED, 12, 1, 0, 1000),
        # The rule gives a table that no value meets, so the other sign is meant.
        (UNSIGNED, 12, 1, 0, -3),
        (SIGNED, 16, 2, 40000, 36000),
    ],
)
def test_the_sign_of_the_first_value_of_a_voi_table(
    vr: str, syntax: str, dtype: np.dtype[Any], bits: int, slope: float, intercept: float, first: int
) -> None:
    low, high = (0, (1 << bits) - 1) if dtype == UNSIGNED else (-(1 << bits - 1), (1 << bits - 1) - 1)
    near = round((first - intercept) / slope)
    stored = np.clip(np.resize(np.arange(near - 12, near + 12), (4, 6)), low, high).astype(dtype)
    tags = {"x00281052": ("DS", str(intercept)), "x00281053": ("DS", str(slope))}
    sequence = table(ENTRIES, first, syntax, vr=vr)
    found = read(stored, syntax, bits, **tags, **{VOI: ("SQ", sequence)})
    np.testing.assert_array_equal(found, mapped(stored * float(slope) + intercept, first, ENTRIES))


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_the_sign_of_the_first_value_of_a_modality_table_and_after_one(syntax: str) -> None:
    signed, unsigned = around(-8, 10), around(40000, 10, np.uint16)
    for stored, first, bits in ((signed, -8, 12), (unsigned, 40000, 16)):
        found = read(stored, syntax, bits, **{MODALITY: ("SQ", table(ENTRIES, first, syntax))})
        np.testing.assert_array_equal(found, mapped(stored, first, ENTRIES))
    # What a modality table gives is not negative, also of signed pixels.
    between = list(range(39990, 40010))
    tags = {MODALITY: ("SQ", table(between, -8, syntax)), VOI: ("SQ", table(ENTRIES, 40000, syntax))}
    wide = around(-8, 20)
    modality = np.array([between[min(max(int(value) + 8, 0), 19)] for value in wide.ravel()]).reshape(wide.shape)
    np.testing.assert_array_equal(read(wide, syntax, 12, **tags), mapped(modality, 40000, ENTRIES))


def test_tables_that_are_none() -> None:
    stored = around(0, 4)
    for sequence, cause in (
        ([[(0x00283002, "US", [1, 2])]], "its VOI LUT is incomplete"),
        ([[(0x00283002, "US", [1, 2]), (0x00283006, "US", [1])]], "its VOI LUT is incomplete"),
        ([[(0x00283006, "US", [1])]], "its VOI LUT is incomplete"),
        ([[(0x00283002, "LO", "CANARY"), (0x00283006, "US", [1])]], "its LUTDescriptor has another value rep"),
        ([[(0x00283002, "US", [1, 2, 16]), (0x00283006, "LO", "CANARY")]], "its LUTData has another value rep"),
    ):
        with pytest.raises(ImageError, match=cause):
            read(stored, EXPLICIT, **{VOI: ("SQ", sequence)})
    plain = read(stored, EXPLICIT)
    np.testing.assert_array_equal(read(stored, EXPLICIT, **{VOI: ("SQ", [])}), plain)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_sequence_of_unknown_representation(syntax: str) -> None:
    """It is little endian and implicit inside, whatever the file is (PS3.5 6.2.2); pydicom reads it as the file."""
    stored = around(100, len(ENTRIES), np.uint16)
    inner = written([(0, "SQ", table(ENTRIES, 100, IMPLICIT))], IMPLICIT, meta=b"", start=b"")[8:]
    if syntax == BIG_ENDIAN:
        with pytest.raises(ImageError, match=r"its VOILUTSequence is damaged|its VOI LUT is incomplete"):
            read(stored, syntax, **{VOI: ("UN", inner)})
        return
    found = read(stored, syntax, **{VOI: ("UN", inner)})
    np.testing.assert_array_equal(found, mapped(stored, 100, ENTRIES))


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("vr", ["US", "SS", "UN", "OW"])
@pytest.mark.parametrize(
    ("dtype", "bits", "value", "word"),
    [
        (UNSIGNED, 16, 65535, 0xFFFF),
        (UNSIGNED, 16, 40000, 40000),
        (UNSIGNED, 12, 4095, 4095),
        (SIGNED, 16, -2000, 63536),
        (SIGNED, 12, -2048, 0xF800),
        (SIGNED, 12, -2048, 0x0800),  # the stored bits alone
        (SIGNED, 12, -1, 0x0FFF),
        (SIGNED, 12, 1000, 1000),
    ],
)
def test_padding_has_the_sign_of_the_pixels(
    syntax: str, vr: str, dtype: np.dtype[Any], bits: int, value: int, word: int
) -> None:
    stored = np.resize(np.arange(100, 122), (4, 6)).astype(dtype)
    stored[0] = value
    found = read(stored, syntax, bits, x00280120=(vr, packed([word], syntax, vr)))
    inside = stored[1:].astype(float)
    assert not found[0].any()
    expected = np.rint((inside - inside.min()) / (inside.max() - inside.min()) * 255)
    np.testing.assert_array_equal(found[1:], expected)
