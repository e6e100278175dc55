"""Whatever bytes a file holds: pixels or an ImageError, never another exception (docs/datasets.md §0.1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import dicom, encode, jpeg2000, run_length
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

GREY = np.add.outer(np.arange(64), 3 * np.arange(70)).astype(np.uint8)
DEEP = (GREY.astype(np.uint16) * 16) ^ 5
SEEDS = {
    "png": encode(GREY, "PNG"),
    "png16": encode(DEEP, "PNG"),
    "palette": encode(GREY, "PNG", "P"),
    "jpeg": encode(GREY, "JPEG"),
    "cmyk": encode(np.dstack([GREY] * 3), "JPEG", "CMYK"),
    "progressive": encode(GREY, "JPEG", progressive=True),
    "dicom": dicom(DEEP, bits=12, photometric="MONOCHROME1", WindowCenter=1000, WindowWidth=900, RescaleSlope=2),
    "dicom sigmoid": dicom(
        DEEP,
        bits=12,
        WindowCenter=900,
        WindowWidth=700,
        VOILUTFunction="SIGMOID",
        PixelPaddingValue=5,
        PixelPaddingRangeLimit=60,
    ),
    "dicom jpeg": dicom(GREY, syntax="1.2.840.10008.1.2.4.50", frame=encode(GREY, "JPEG")),
    "dicom jpeg 2000": dicom(DEEP, bits=12, syntax="1.2.840.10008.1.2.4.90", frame=jpeg2000(DEEP, 12)),
    "dicom run lengths": run_length(DEEP, 12),
}


def decode(data: bytes) -> None:
    try:
        found = decode_grey(data, "case.img")
    except ImageError as error:
        assert str(error).startswith("case.img cannot be read: ") and "\n" not in str(error)
        return
    assert found.dtype == np.uint8 and found.ndim == 2 and found.size > 0


@pytest.mark.parametrize("kind", SEEDS)
def test_the_seeds_are_readable(kind: str) -> None:
    assert decode_grey(SEEDS[kind], kind).shape == GREY.shape


@given(st.binary(max_size=400))
def test_random_bytes(data: bytes) -> None:
    decode(data)


@given(st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", bytes(128) + b"DICM"]), st.binary(max_size=400))
def test_random_bytes_behind_a_signature(signature: bytes, data: bytes) -> None:
    decode(signature + data)


@settings(max_examples=300)
@given(st.sampled_from(sorted(SEEDS)), st.data())
def test_truncations(kind: str, data: st.DataObject) -> None:
    seed = SEEDS[kind]
    decode(seed[: data.draw(st.integers(0, len(seed) - 1))])


@settings(max_examples=600)
@given(st.sampled_from(sorted(SEEDS)), st.data())
def test_flipped_bits_and_overwritten_bytes(kind: str, data: st.DataObject) -> None:
    seed = bytearray(SEEDS[kind])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(seed) - 1))
        seed[position] = data.draw(st.integers(0, 255))
    decode(bytes(seed))
