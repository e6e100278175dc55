"""Windows of the three VOI LUT Functions against pydicom, and pixels that are padding (docs/datasets.md §0.2)."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pydicom
import pytest
from make_images import dicom, jpeg2000
from numpy.typing import NDArray
from pydicom.pixels import apply_modality_lut, apply_windowing
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey

RNG = np.random.default_rng(20)
DEEP = RNG.integers(0, 4096, (31, 47), dtype=np.uint16)
SIGNED = RNG.integers(-2048, 2048, (31, 47), dtype=np.int16)
FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")


def by_pydicom(data: bytes) -> NDArray[np.float64]:
    """The file as pydicom windows it, then one inversion, then stretched to 0..255; a constant image is zeros."""
    dataset = pydicom.dcmread(io.BytesIO(data))
    with np.errstate(over="ignore"):
        shown = apply_windowing(apply_modality_lut(dataset.pixel_array, dataset), dataset).astype(np.float64)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        shown = shown.max() + shown.min() - shown
    return np.asarray((shown - shown.min()) / (np.ptp(shown) or 1.0) * 255.0)


def close(found: NDArray[np.uint8], expected: NDArray[np.float64]) -> None:
    assert found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("window", [(1500.0, 900.0), (-300.5, 3001.0), (2000.0, 2.0), (800.0, 60000.0)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_window_is_pydicoms(function: str, window: tuple[float, float], photometric: str) -> None:
    tags = {"WindowCenter": window[0], "WindowWidth": window[1], "VOILUTFunction": function, "photometric": photometric}
    files = [dicom(DEEP, bits=12, **tags), dicom(SIGNED, bits=12, **tags)]
    files.append(dicom(DEEP, bits=12, RescaleSlope=0.5, RescaleIntercept=-900, **tags))
    for data in files:
        close(decode_grey(data, "a.dcm"), by_pydicom(data))


@pytest.mark.parametrize("bits", [9, 10, 11])
def test_a_window_counts_from_nine_stored_bits_on(bits: int) -> None:
    """Plates of computed radiography store 10 bits."""
    values = (DEEP >> (12 - bits)).astype(np.uint16)
    window = {"WindowCenter": 2 ** (bits - 2), "WindowWidth": 2 ** (bits - 2)}
    data = dicom(values, bits=bits, **window)
    close(decode_grey(data, "a.dcm"), by_pydicom(data))
    assert (decode_grey(data, "a.dcm") != decode_grey(dicom(values, bits=bits), "a.dcm")).any()


def test_the_three_functions_differ_and_linear_is_the_default() -> None:
    tags = {"WindowCenter": 2000, "WindowWidth": 40}
    linear, exact, sigmoid = (decode_grey(dicom(DEEP, bits=12, VOILUTFunction=f, **tags), "a.dcm") for f in FUNCTIONS)
    near = (DEEP > 1980) & (DEEP < 2020)
    assert (linear != exact)[near].any() and (exact != sigmoid)[near].any()
    for value in (None, "", "LINEAR "):
        np.testing.assert_array_equal(decode_grey(dicom(DEEP, bits=12, VOILUTFunction=value, **tags), "a.dcm"), linear)


@pytest.mark.parametrize("function", ["LINEAR_EXACT", "SIGMOID"])
def test_a_width_below_one_is_allowed_where_dicom_allows_it(function: str) -> None:
    data = dicom(
        DEEP, bits=12, RescaleSlope=0.001, RescaleIntercept=0, WindowCenter=2, WindowWidth=0.5, VOILUTFunction=function
    )
    close(decode_grey(data, "a.dcm"), by_pydicom(data))


def test_values_far_outside_a_sigmoid_are_its_ends() -> None:
    data = dicom(DEEP, bits=12, WindowCenter=2048, WindowWidth="1e-9", VOILUTFunction="SIGMOID")
    found = decode_grey(data, "a.dcm")
    np.testing.assert_array_equal(found[DEEP != 2048], np.where(DEEP < 2048, 0, 255)[DEEP != 2048])


@pytest.mark.parametrize(
    ("tags", "cause"),
    [
        ({"VOILUTFunction": "CUBIC"}, "its VOILUTFunction is not one that DICOM defines"),
        ({"VOILUTFunction": "SIGMOID", "WindowWidth": 0}, "width 0, SIGMOID"),
        ({"VOILUTFunction": "LINEAR_EXACT", "WindowWidth": -1}, "width -1, LINEAR_EXACT"),
        ({"VOILUTFunction": "LINEAR", "WindowWidth": 0.5}, "width 0.5, LINEAR"),
    ],
)
def test_a_window_that_dicom_does_not_allow(tags: dict[str, Any], cause: str) -> None:
    with pytest.raises(ImageError, match=cause):
        decode_grey(dicom(DEEP, bits=12, **{"WindowCenter": 9, "WindowWidth": 9, **tags}), "a.dcm")


def test_a_function_without_a_window_means_nothing() -> None:
    plain = decode_grey(dicom(DEEP, bits=12), "a.dcm")
    np.testing.assert_array_equal(decode_grey(dicom(DEEP, bits=12, VOILUTFunction="CUBIC"), "a.dcm"), plain)


# --- padding ---


def padded(low: int, high: int, dtype: Any = np.uint16) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """An image of values from `low` to `high` - 1, and where its padding shall be: a border."""
    values = RNG.integers(low, high, (20, 24)).astype(dtype)
    values[8, 8:10] = low, high - 1
    border = np.ones(values.shape, np.bool_)
    border[3:-4, 5:-2] = False
    return values, border


def rest_stretched(values: NDArray[Any], border: NDArray[np.bool_], *, inverted: bool = False) -> NDArray[np.float64]:
    """The pixels inside stretched among themselves, the border black."""
    inside = values[~border].astype(np.float64)
    shown = np.zeros(values.shape)
    level = (inside - inside.min()) / (inside.max() - inside.min()) * 255.0
    shown[~border] = 255.0 - level if inverted else level
    return shown


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("value", [0, 4095])
def test_padding_is_black_and_decides_nothing(value: int, photometric: str) -> None:
    values, border = padded(1000, 3000)
    data = dicom(
        np.where(border, value, values).astype(np.uint16), bits=12, photometric=photometric, PixelPaddingValue=value
    )
    close(decode_grey(data, "a.dcm"), rest_stretched(values, border, inverted=photometric == "MONOCHROME1"))


@pytest.mark.parametrize("ends", [(10, 40), (40, 10)])
def test_a_range_of_padding_in_either_order(ends: tuple[int, int]) -> None:
    values, border = padded(41, 3000)
    rim = RNG.integers(10, 41, values.shape)
    stored = np.where(border, rim, values).astype(np.uint16)
    stored[0, :2] = 10, 40
    data = dicom(stored, bits=12, PixelPaddingValue=ends[0], PixelPaddingRangeLimit=ends[1])
    close(decode_grey(data, "a.dcm"), rest_stretched(values, border))


def test_a_limit_without_a_value_means_nothing() -> None:
    np.testing.assert_array_equal(
        decode_grey(dicom(DEEP, bits=12, PixelPaddingRangeLimit=2000), "a.dcm"), decode_grey(dicom(DEEP, bits=12), "a")
    )


@pytest.mark.parametrize("written", [-2000, 63536])
def test_padding_of_signed_pixels_may_be_written_unsigned(written: int) -> None:
    values, border = padded(-900, 1500, np.int16)
    stored = np.where(border, -2000, values).astype(np.int16)
    tags = {"PixelPaddingValue": written}
    data = dicom(stored, bits=16, syntax="1.2.840.10008.1.2.1", tag_type="SS" if written < 0 else "US", **tags)
    close(decode_grey(data, "a.dcm"), rest_stretched(values, border))


def test_padding_of_unsigned_pixels_may_be_written_signed() -> None:
    values, border = padded(100, 60000)
    data = dicom(np.where(border, 65535, values).astype(np.uint16), bits=16, tag_type="SS", PixelPaddingValue=-1)
    close(decode_grey(data, "a.dcm"), rest_stretched(values, border))


def test_padding_is_a_stored_value_and_no_window_brightens_it() -> None:
    values, border = padded(1000, 3000)
    stored = np.where(border, 4000, values).astype(np.uint16)
    tags = {"RescaleSlope": 2, "RescaleIntercept": -500, "WindowCenter": 3500, "WindowWidth": 4000}
    found = decode_grey(dicom(stored, bits=12, PixelPaddingValue=4000, **tags), "a.dcm")
    whole = decode_grey(dicom(values, bits=12, **tags), "a.dcm")
    assert not found[border].any()
    # Without the border, the window is stretched over the values inside.
    inside = np.clip((values[~border] * 2.0 - 500 - 3499.5) / 3999 + 0.5, 0, 1)
    close(found[~border], (inside - inside.min()) / (inside.max() - inside.min()) * 255.0)
    assert whole[border].any()


def test_eight_bits_keep_their_levels_beside_padding() -> None:
    values, border = padded(20, 200, np.uint8)
    stored = np.where(border, 255, values).astype(np.uint8)
    found = decode_grey(dicom(stored, PixelPaddingValue=255), "a.dcm")
    np.testing.assert_array_equal(found, np.where(border, 0, values))
    inverted = decode_grey(dicom(stored, PixelPaddingValue=255, photometric="MONOCHROME1"), "a.dcm")
    np.testing.assert_array_equal(inverted, np.where(border, 0, 219 - values.astype(int)))


def test_padding_that_does_not_occur_changes_nothing() -> None:
    stored = RNG.integers(20, 200, (9, 7), dtype=np.uint8)
    np.testing.assert_array_equal(decode_grey(dicom(stored, PixelPaddingValue=0), "a.dcm"), stored)


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(("dtype", "bits"), [(np.uint8, 8), (np.uint16, 12)])
def test_an_image_of_padding_alone_is_black(photometric: str, dtype: Any, bits: int) -> None:
    data = dicom(np.full((4, 6), 77, dtype), bits=bits, photometric=photometric, PixelPaddingValue=77)
    assert not decode_grey(data, "a.dcm").any() and decode_grey(data, "a.dcm").shape == (4, 6)


def test_padding_in_a_compressed_file() -> None:
    stored = RNG.integers(1000, 3000, (64, 96), dtype=np.uint16)
    stored[:, :20] = 4095
    frame = jpeg2000(stored, 12)
    data = dicom(stored, bits=12, syntax="1.2.840.10008.1.2.4.90", frame=frame, PixelPaddingValue=4095)
    found = decode_grey(data, "a.dcm")
    assert not found[:, :20].any() and found.max() == 255


def test_padding_that_is_no_number_is_refused() -> None:
    with pytest.raises(ImageError, match="its PixelPaddingValue is not one whole number"):
        decode_grey(dicom(DEEP, bits=12, PixelPaddingValue=[3, 4], tag_type="US"), "a.dcm")
