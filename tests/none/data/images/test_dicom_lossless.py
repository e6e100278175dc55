"""Lossless JPEG of any predictor and precision; differences modulo 2^16 (ITU-T T.81) and modulo 2^P (some makers)."""

from __future__ import annotations

import numpy as np
import pytest
from dicom_streams import JPEG, film, items, lossless_jpeg, written
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.dicom.dicom_grey import read_stored

RNG = np.random.default_rng(3)


def read(stream: bytes, bits: int, syntax: str = "57") -> np.ndarray:
    allocated = 8 if bits <= 8 else 16
    pixels = ("OB*", items(stream))
    return read_stored(written(film((13, 11), b"", allocated, bits, x7FE00010=pixels), f"{JPEG}.{syntax}"))


@pytest.mark.parametrize("restart", [0, 1, 5])
@pytest.mark.parametrize("bits", [2, 7, 8, 9, 10, 12, 15, 16])
def test_every_predictor_in_both_ways_of_counting(bits: int, restart: int) -> None:
    stored = RNG.integers(0, 1 << bits, (13, 11)).astype(np.uint16)
    stored[0, :4] = 0, (1 << bits) - 1, 0, (1 << bits) - 1
    for predictor in range(1, 8):
        for modulus in (16, bits):
            stream = lossless_jpeg(stored, bits, predictor, modulus=modulus, restart=restart)
            for syntax in ("57", "70"):
                found = read(stream, bits, syntax)
                np.testing.assert_array_equal(found, stored, err_msg=f"predictor {predictor}, modulo 2^{modulus}")


def test_what_exceeds_the_bits_of_a_stream_is_no_value() -> None:
    """Differences modulo 2^P leave such bits, also where BitsStored has room for them."""
    stored = RNG.integers(0, 1 << 10, (13, 11)).astype(np.uint16)
    pixels = ("OB*", items(lossless_jpeg(stored, 10, modulus=10)))
    data = written(film((13, 11), b"", 16, 12, x7FE00010=pixels), f"{JPEG}.70")
    np.testing.assert_array_equal(read_stored(data), stored)


def test_a_point_transform_leaves_the_upper_bits() -> None:
    stored = RNG.integers(0, 4096, (13, 11)).astype(np.uint16)
    for predictor in (1, 7):
        found = read(lossless_jpeg(stored, 12, predictor, shift=2), 12)
        np.testing.assert_array_equal(found, stored >> 2 << 2)
    # Which neighbours such a writer halves is not known.
    with pytest.raises(ImageError, match="a point transform and differences modulo its range"):
        read(lossless_jpeg(stored, 12, 7, modulus=10, shift=2), 12)
