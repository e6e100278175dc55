"""DICOM to 8-bit grey, step by step (docs/datasets.md §0.2, docs/published-datasets.md §10 item 6)."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from dicom_streams import lossless_jpeg
from make_images import dicom, encode, jpeg2000, run_length
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey

RNG = np.random.default_rng(1)
DEEP = RNG.integers(0, 4096, (31, 47), dtype=np.uint16)


def oracle(
    stored: np.ndarray, *, slope: float = 1.0, intercept: float = 0.0, window: tuple[float, float] | None = None,
    inverted: bool = False,
) -> np.ndarray:  # fmt: skip
    """The five steps of docs/datasets.md §0.2, pixel by pixel in double precision."""
    out = np.zeros(stored.shape)
    for position, value in np.ndenumerate(stored):
        x = int(value) * slope + intercept
        if window:
            centre, width = window
            if x <= centre - 0.5 - (width - 1) / 2:
                x = 0.0
            elif x > centre - 0.5 + (width - 1) / 2:
                x = 255.0
            else:
                x = ((x - (centre - 0.5)) / (width - 1) + 0.5) * 255.0
        out[position] = x
    if inverted:
        out = out.max() + out.min() - out
    return (out - out.min()) / (out.max() - out.min()) * 255.0


def close(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal after rounding; half a level may round either way when the oracle's arithmetic differs in the last bit."""
    assert found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("window", [(1500.0, 900.0), (3000.5, 3001.0), None, (2000.0, 1.0)])
def test_twelve_bits_window_first_then_one_inversion(photometric: str, window: tuple[float, float] | None) -> None:
    tags = {"WindowCenter": window[0], "WindowWidth": window[1]} if window else {}
    found = decode_grey(dicom(DEEP, bits=12, photometric=photometric, **tags), "a.dcm")
    if window and window[1] == 1:
        expected = np.where(window[0] - 0.5 < DEEP, 255.0, 0.0)
        close(found, 255.0 - expected if photometric == "MONOCHROME1" else expected)
    else:
        close(found, oracle(DEEP, window=window, inverted=photometric == "MONOCHROME1"))


def test_an_off_centre_window_applied_after_inversion_would_differ() -> None:
    found = decode_grey(dicom(DEEP, bits=12, photometric="MONOCHROME1", WindowCenter=1000, WindowWidth=600), "a.dcm")
    wrong = oracle(int(DEEP.max()) + int(DEEP.min()) - DEEP.astype(int), window=(1000, 600))
    assert np.abs(found - wrong).mean() > 50


def test_the_first_of_several_windows_is_used() -> None:
    data = dicom(DEEP, bits=12, WindowCenter=[1500, 100], WindowWidth=[900, 50])
    close(decode_grey(data, "a.dcm"), oracle(DEEP, window=(1500, 900)))


@pytest.mark.parametrize(("slope", "intercept"), [(2.0, -1000.0), (-1.0, 4095.0), (0.25, 3.5)])
def test_rescaling_comes_before_the_window(slope: float, intercept: float) -> None:
    data = dicom(
        DEEP, bits=12, RescaleSlope=slope, RescaleIntercept=intercept, WindowCenter=700, WindowWidth=500,
        photometric="MONOCHROME1",
    )  # fmt: skip
    close(decode_grey(data, "a.dcm"), oracle(DEEP, slope=slope, intercept=intercept, window=(700, 500), inverted=True))


def test_sixteen_signed_bits() -> None:
    stored = RNG.integers(-30000, 30000, (9, 11), dtype=np.int16)
    close(decode_grey(dicom(stored, bits=16), "a.dcm"), oracle(stored))


def test_signed_twelve_bits_with_rubbish_above_them() -> None:
    values = RNG.integers(-2048, 2048, (9, 11), dtype=np.int16)
    stored = ((values.view(np.uint16) & 0x0FFF) | 0x5000).view(np.int16)
    close(decode_grey(dicom(stored, bits=12), "a.dcm"), oracle(values))


def test_overlay_bits_above_the_high_bit_are_ignored() -> None:
    close(decode_grey(dicom(DEEP | 0xA000, bits=12), "a.dcm"), oracle(DEEP))


def test_values_kept_in_the_upper_bits_are_brought_down() -> None:
    close(decode_grey(dicom(DEEP << 4, bits=12, HighBit=15), "a.dcm"), oracle(DEEP))


def test_a_missing_high_bit_is_bits_stored_minus_one() -> None:
    close(decode_grey(dicom(DEEP, bits=12, drop=("HighBit",)), "a.dcm"), oracle(DEEP))


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2"])
def test_implicit_and_big_endian(syntax: str) -> None:
    close(decode_grey(dicom(DEEP, bits=12, syntax=syntax), "a.dcm"), oracle(DEEP))


def test_eight_bits_stay_as_they_are_whatever_the_window() -> None:
    stored = RNG.integers(20, 200, (15, 21), dtype=np.uint8)
    found = decode_grey(dicom(stored, WindowCenter=60, WindowWidth=10), "a.dcm")
    np.testing.assert_array_equal(found, stored)


def test_eight_bits_monochrome1_are_inverted_over_the_range_in_use() -> None:
    stored = RNG.integers(20, 200, (15, 21), dtype=np.uint8)
    found = decode_grey(dicom(stored, photometric="MONOCHROME1"), "a.dcm")
    np.testing.assert_array_equal(found, int(stored.max()) + int(stored.min()) - stored)


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(("dtype", "bits"), [(np.uint8, 8), (np.uint16, 12)])
def test_a_constant_image_becomes_zeros(photometric: str, dtype: Any, bits: int) -> None:
    assert not decode_grey(dicom(np.full((4, 6), 77, dtype), bits=bits, photometric=photometric), "a.dcm").any()


def lut(first: int, entries: np.ndarray, keyword: str) -> dict[str, Any]:
    from pydicom.dataset import Dataset
    from pydicom.sequence import Sequence

    item = Dataset()
    item.add_new("LUTDescriptor", "US", [len(entries), first, 16])
    item.add_new("LUTData", "US", [int(v) for v in entries])
    return {keyword: Sequence([item])}


@pytest.mark.parametrize("keyword", ["ModalityLUTSequence", "VOILUTSequence"])
def test_a_table_need_not_be_monotone(keyword: str) -> None:
    entries = ((np.arange(3000) - 1500) ** 2 // 40).astype(np.uint16)
    stored = RNG.integers(600, 3900, (12, 13), dtype=np.uint16)
    mapped = entries[np.clip(stored.astype(int) - 500, 0, 2999)]
    close(decode_grey(dicom(stored, bits=12, **lut(500, entries, keyword)), "a.dcm"), oracle(mapped))


def test_a_window_goes_before_a_voi_table() -> None:
    tags = lut(0, np.arange(4096)[::-1], "VOILUTSequence")
    found = decode_grey(dicom(DEEP, bits=12, WindowCenter=1500, WindowWidth=900, **tags), "a.dcm")
    close(found, oracle(DEEP, window=(1500, 900)))


def test_baseline_jpeg_equals_pillow() -> None:
    smooth = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)
    frame = encode(smooth, "JPEG", quality=90)
    found = decode_grey(dicom(smooth, syntax="1.2.840.10008.1.2.4.50", frame=frame), "a.dcm")
    np.testing.assert_array_equal(found, decode_grey(frame, "a.jpg"))


def test_lossless_jpeg2000_gives_the_stored_values() -> None:
    stored = RNG.integers(0, 4096, (64, 96), dtype=np.uint16)
    data = dicom(stored, bits=12, syntax="1.2.840.10008.1.2.4.90", frame=jpeg2000(stored, 12))
    found = decode_grey(data, "a.dcm")
    close(found, oracle(stored))


@pytest.mark.parametrize("bits", [8, 12, 15, 16])
@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.4.70", "1.2.840.10008.1.2.4.57"])
def test_lossless_jpeg_gives_the_stored_values(bits: int, syntax: str) -> None:
    """Process 14, selection value 1 (4.70), which 4.57 allows too."""
    stored = RNG.integers(0, 1 << bits, (17, 23), dtype=np.uint16).astype(np.uint8 if bits == 8 else np.uint16)
    stored[0, :2] = 0, (1 << bits) - 1
    found = decode_grey(dicom(stored, bits=bits, syntax=syntax, frame=lossless_jpeg(stored, bits)), "a.dcm")
    close(found, oracle(stored) if bits > 8 else stored)


def test_lossless_jpeg_with_another_predictor_gives_the_stored_values() -> None:
    """A stream of another encoder, with the predictor of selection value 6."""
    stream = base64.b64decode(
        "/9j/xAAbAAEAAgMBAQAAAAAAAAAAAAAHCQgKCwUGDP/DAAsMAA0AEgEAEQD/2gAIAQAABgAA+f8A2VlZWVlZWVlZWVlZWVlZWVl9"
        "LeaU+bnIiyjMvXGZvNKfNzkRZRmXrjM3mlPm59LeaU+bnBcKOm+XmlPm5wXCjpvl5pT5ufS3mlP1+e0Fwxum+XmlP1+e0Fwxum+X"
        "mlP1+fpbza4nZN4Lm1uxL3y82uJ2TeC5tbsS98vNridk36W80p+vz2guGN03y80p+vz2guGN03y80p+vz9LeaU+bnBcKOm+XmlPm"
        "5wXCjpvl5pT5ufS6yCGyNWn5R03zWQQ2Rq0/KOm+ayCGyNX0t5pT5uciLKMy9cZm80p83ORFlGZeuMzeaU+bn0t5pT5ucFwo6b5e"
        "aU+bnBcKOm+XmlPm59LeaU/X57QXDG6b5eaU/X57QXDG6b5eaU/X5+lvNridk3gubW7EvfLza4nZN4Lm1uxL3y82uJ2TfpbzSn6/"
        "PaC4Y3TfLzSn6/PaC4Y3TfLzSn6/MP/Z"
    )
    y, x = np.mgrid[:13, :18]
    stored = ((37 * y + 101 * x + (y * x % 7) * 211) % 4096).astype(np.uint16)
    close(decode_grey(dicom(stored, bits=12, syntax="1.2.840.10008.1.2.4.57", frame=stream), "a.dcm"), oracle(stored))


def test_run_length_coding_gives_the_stored_values() -> None:
    close(decode_grey(run_length(DEEP, 12), "a.dcm"), oracle(DEEP))


SMOOTH = np.add.outer(np.arange(16), np.arange(16)).astype(np.uint8)


@pytest.mark.parametrize(
    ("data", "cause"),
    [
        (lambda: dicom(DEEP, bits=12, photometric="RGB"), "PhotometricInterpretation is RGB"),
        (lambda: dicom(DEEP, bits=12, photometric="PALETTE COLOR"), "PALETTE COLOR"),
        (
            lambda: dicom(DEEP, bits=12, drop=("PhotometricInterpretation",)),
            "it lacks the tag PhotometricInterpretation",
        ),
        (lambda: dicom(DEEP, bits=12, SamplesPerPixel=3), "more than one sample"),
        (lambda: dicom(DEEP, bits=12, NumberOfFrames=2), "2 frames"),
        (lambda: dicom(DEEP, bits=12, drop=("Rows",)), "lacks the tag Rows"),
        (lambda: dicom(DEEP, bits=12, drop=("PixelData",)), "no PixelData"),
        (lambda: dicom(DEEP, bits=12, Rows=32), "truncated"),
        (lambda: dicom(DEEP, bits=12, Rows=60000, Columns=60000), "60000 x 60000"),
        (lambda: dicom(DEEP, bits=17), "BitsStored 17"),
        (lambda: dicom(DEEP, bits=12, BitsAllocated=32), "its BitsAllocated is 32, pixels of 8 and of 16 bits"),
        (lambda: dicom(DEEP, bits=12, RescaleSlope=0), "RescaleSlope is 0"),
        (lambda: dicom(DEEP, bits=12, WindowCenter=100, WindowWidth=0), "width 0"),
        (
            lambda: dicom(
                np.zeros((8, 8), np.uint8), syntax="1.2.840.10008.1.2.4.50", frame=encode(SMOOTH, "JPEG", quality=90)
            ),
            "8 x 8 pixels, its compressed stream 16 x 16",
        ),
    ],
)
def test_what_is_not_a_radiograph_is_refused_with_the_reason(data: Any, cause: str) -> None:
    with pytest.raises(ImageError, match=rf"film\.dcm cannot be read: .*{cause}"):
        decode_grey(data(), "film.dcm")


def test_a_deflated_data_set_is_refused_because_its_size_is_unknown() -> None:
    with pytest.raises(ImageError, match="deflated"):
        decode_grey(dicom(DEEP, bits=12, syntax="1.2.840.10008.1.2.1.99"), "a.dcm")
