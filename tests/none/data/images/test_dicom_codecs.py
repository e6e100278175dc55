"""Every transfer syntax gives the stored values that its data set names (docs/datasets.md §0.2, step 1).

The oracle takes the bits of each word by whole-number arithmetic. A decoder that is registered without an encoder in
`dicom_streams` fails here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from dicom_streams import BIG_ENDIAN, ENCODERS, EXPLICIT, JPEG, RUN_LENGTHS, Words, blocks, film, items, written
from numpy.typing import NDArray
from xbench_fast.engines.errors import ImageAccessError, ImageError
from xbench_fast.runtime.data.images.decode import decode_grey, reader_version
from xbench_fast.runtime.data.images.dicom.codecs import DECODERS, NATIVE
from xbench_fast.runtime.data.images.dicom.dicom_grey import read_stored
from xbench_fast.runtime.data.images.dicom.stored_values import Decoded


def of(words: Words, bits: int, high_bit: int, signed: bool) -> NDArray[np.int64]:
    """The stored values of words, one by one."""
    values = [(int(word) >> (high_bit - bits + 1)) % (1 << bits) for word in words.ravel()]
    half = 1 << (bits - 1)
    return np.reshape([value - 2 * half if signed and value >= half else value for value in values], words.shape)


def file_of(
    syntax: str,
    frame: bytes,
    *,
    allocated: int,
    bits: int,
    high_bit: int | None = None,
    signed: bool = False,
    **tags: Any,
) -> bytes:
    """A film of the size of `blocks`."""
    compressed = syntax not in NATIVE
    return written(
        film(
            (24, 32),
            items(frame) if compressed else frame,
            allocated,
            bits,
            x00280102=("US", [bits - 1 if high_bit is None else high_bit]),
            x00280103=("US", [int(signed)]),
            x7FE00010=(
                "OB*" if compressed else "OW" if allocated == 16 else "OB",
                items(frame) if compressed else frame,
            ),
            **tags,
        ),
        syntax,
    )


def test_every_decoder_has_an_encoder_here() -> None:
    assert set(DECODERS) == set(ENCODERS)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("syntax", sorted(DECODERS))
def test_the_bits_that_are_stored_are_read_and_no_others(syntax: str, signed: bool) -> None:
    """Streams of BitsStored bits, and of more, whose other bits are rubbish; 8 bits in 8 and in 16."""
    encoder, tried = ENCODERS[syntax], 0
    for precision in encoder.precisions:
        words, frame = blocks(precision), encoder.encode(precision)
        for allocated in (8, 16):
            if allocated < precision or (encoder.whole and allocated != precision):
                continue
            for bits in {2, 7, 8, 9, 10, 12, 16, precision}:
                for high_bit in {bits - 1, 11, 15}:
                    if bits <= precision and bits - 1 <= high_bit < precision:
                        data = file_of(syntax, frame, allocated=allocated, bits=bits, high_bit=high_bit, signed=signed)
                        if syntax in (f"{JPEG}.50", f"{JPEG}.51") and bits < precision and high_bit == bits - 1:
                            with pytest.raises(ImageError, match="coded with loss and hold values far beyond"):
                                read_stored(data)  # lossy coding mixes the other bits with the pixels
                            tried += 1
                            continue
                        found = read_stored(data)
                        assert found.dtype == np.dtype(f"{'i' if signed else 'u'}{allocated // 8}")
                        np.testing.assert_array_equal(found, of(words, bits, high_bit, signed))
                        tried += 1
    assert tried >= 3


@pytest.mark.parametrize("syntax", sorted(set(DECODERS) - set(NATIVE) - {RUN_LENGTHS}))
def test_a_stream_of_fewer_bits_holds_the_values(syntax: str) -> None:
    """Baseline JPEG in a file of 12 bits belongs here: nothing is shifted."""
    for precision in ENCODERS[syntax].precisions:
        frame = ENCODERS[syntax].encode(precision)
        if precision < 16:
            found = read_stored(file_of(syntax, frame, allocated=16, bits=precision + 1))
            np.testing.assert_array_equal(found, blocks(precision))
            with pytest.raises(
                ImageError, match=f"have {precision} bits and BitsStored is 16, so their sign is unknown"
            ):
                read_stored(file_of(syntax, frame, allocated=16, bits=16, signed=True))
            with pytest.raises(ImageError, match=f"its HighBit is 15, its compressed pixels have {precision} bits"):
                read_stored(file_of(syntax, frame, allocated=16, bits=2, high_bit=15))
        if precision > 8:
            with pytest.raises(ImageError, match=f"its compressed pixels have {precision} bits, BitsAllocated is 8"):
                read_stored(file_of(syntax, frame, allocated=8, bits=8))


def test_a_stream_of_fewer_bits_without_a_sign_bit_has_no_open_sign() -> None:
    from imagecodecs import jpegls_encode

    words = blocks(8) // 2
    data = file_of(f"{JPEG}.80", bytes(jpegls_encode(words)), allocated=16, bits=12, signed=True)
    np.testing.assert_array_equal(read_stored(data), words)


@pytest.mark.parametrize("bits", [8, 12, 16])
@pytest.mark.parametrize("of_more", [0, 3])
@pytest.mark.parametrize("signed", [False, True])
def test_the_sign_of_jpeg_2000_is_that_of_the_header(bits: int, of_more: int, signed: bool) -> None:
    """The sign that a stream states is how it was coded; the bits are the same (pydicom does so too)."""
    from imagecodecs import jpeg2k_encode

    values = of(blocks(bits), bits, bits - 1, True).astype(np.int16)
    frame = bytes(jpeg2k_encode(values, level=0, codecformat="j2k", reversible=True, bitspersample=bits))
    stored = min(16, bits + of_more) if signed else bits - of_more
    found = read_stored(file_of(f"{JPEG}.90", frame, allocated=16, bits=stored, signed=signed))
    expected = values if signed else of(blocks(bits), stored, stored - 1, False)
    np.testing.assert_array_equal(found, expected)


def test_a_negative_stream_of_fewer_bits_in_an_unsigned_file_is_refused() -> None:
    from imagecodecs import jpeg2k_encode

    values = of(blocks(10), 10, 9, True).astype(np.int16)
    frame = bytes(jpeg2k_encode(values, level=0, codecformat="j2k", reversible=True, bitspersample=10))
    with pytest.raises(ImageError, match="sign is unknown"):
        read_stored(file_of(f"{JPEG}.90", frame, allocated=16, bits=12))


def test_a_decoder_that_cleans_nothing_is_cleaned_by_its_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DECODERS, "1.2.3", lambda frame, layout: Decoded(blocks(16).astype(np.int32), 16))  # type: ignore[arg-type]
    found = read_stored(file_of("1.2.3", b"any", allocated=16, bits=9, signed=True))
    np.testing.assert_array_equal(found, of(blocks(16), 9, 8, True))
    monkeypatch.setitem(DECODERS, "1.2.3", lambda frame, layout: Decoded(blocks(8)[1:], 8))  # type: ignore[arg-type]
    with pytest.raises(ImageError, match=r"its pixels decode to \(23, 32\), not to 24 x 32 grey values"):
        read_stored(file_of("1.2.3", b"any", allocated=16, bits=9))


def test_bytes_in_words_are_swapped_in_a_big_endian_file_and_others_are_not() -> None:
    pixels = np.arange(24 * 32).reshape(24, 32).astype(np.uint8)
    swapped = pixels.tobytes()
    swapped = bytes(swapped[at ^ 1] for at in range(len(swapped)))
    entries = film(pixels.shape, swapped, 8, 8)
    np.testing.assert_array_equal(read_stored(written(entries, BIG_ENDIAN)), pixels)
    entries = film(pixels.shape, pixels.tobytes(), 8, 8, x7FE00010=("OB", pixels.tobytes()))
    np.testing.assert_array_equal(read_stored(written(entries, BIG_ENDIAN)), pixels)
    entries = film(pixels.shape, pixels.tobytes(), 8, 8, x7FE00010=("UN", pixels.tobytes()))
    with pytest.raises(ImageError, match="so its byte order is unknown"):
        read_stored(written(entries, BIG_ENDIAN))
    np.testing.assert_array_equal(read_stored(written(entries, EXPLICIT)), pixels)


@pytest.mark.parametrize("syntax", sorted(set(DECODERS) - set(NATIVE) - {RUN_LENGTHS}))
def test_a_cut_stream_is_refused(syntax: str) -> None:
    frame = ENCODERS[syntax].encode(8)
    for end in (len(frame) // 2, len(frame) - 2):
        with pytest.raises(ImageError, match=r"truncated|damaged"):
            read_stored(file_of(syntax, frame[:end], allocated=8, bits=8))
    grey = decode_grey(file_of(syntax, frame + b"\0" * (1 + len(frame) % 2), allocated=8, bits=8), "padded.dcm")
    np.testing.assert_array_equal(grey, blocks(8))


@pytest.mark.parametrize("syntax", sorted(set(DECODERS) - set(NATIVE) - {RUN_LENGTHS}))
def test_the_size_of_a_stream_is_compared_before_it_is_decoded(syntax: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import imagecodecs

    frame = ENCODERS[syntax].encode(8)
    for name in ("jpeg8_decode", "jpegls_decode", "jpeg2k_decode"):
        monkeypatch.setattr(imagecodecs, name, lambda data: pytest.fail("it was decoded"))
    for rows, columns in ((24, 31), (23, 32)):
        data = written(film((rows, columns), b"", 8, 8, x7FE00010=("OB*", items(frame))), syntax)
        with pytest.raises(ImageError, match=f"says {columns} x {rows} pixels, its compressed stream 32 x 24"):
            read_stored(data)


@pytest.mark.parametrize(("syntax", "name"), [("50", "jpeg8"), ("80", "jpegls"), ("90", "jpeg2k")])
def test_a_stream_of_several_samples_a_pixel_is_refused(syntax: str, name: str) -> None:
    import imagecodecs

    frame = bytes(getattr(imagecodecs, f"{name}_encode")(np.dstack([blocks(8)] * 3)))
    with pytest.raises(ImageError, match="its compressed stream has 3 samples a pixel, a grey image has one"):
        read_stored(file_of(f"{JPEG}.{syntax}", frame, allocated=8, bits=8))


def test_a_missing_codec_is_told_and_no_other_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [
        file_of(syntax, ENCODERS[syntax].encode(8), allocated=8, bits=8)
        for syntax in sorted(set(DECODERS) - set(NATIVE) - {RUN_LENGTHS})
    ]
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    for data in files:
        with pytest.raises(
            ImageAccessError, match=r"a\.dcm cannot be read on this machine at this time: .*imagecodecs"
        ):
            decode_grey(data, "a.dcm")


def test_the_key_of_prepared_images_names_every_package_that_decides_pixels() -> None:
    assert {part.partition("-")[0] for part in reader_version().split("+")[1:]} == {"pillow", "pydicom", "imagecodecs"}
