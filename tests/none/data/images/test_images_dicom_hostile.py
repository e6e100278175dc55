"""DICOM files made to take memory: what they hold is told before it is unpacked."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from make_images import dicom, encode
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

EXPLICIT, DEFLATED, RLE = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.5"
LARGE = 32 << 20  # bytes the files unpack to
ALLOWED = 4 << 20  # bytes their refusal may take
SMALL = np.add.outer(np.arange(16), np.arange(16)).astype(np.uint8)


def element(group: int, number: int, kind: str, value: bytes) -> bytes:
    """A data element with explicit VR, little endian; without a VR where `kind` is empty."""
    value += b"\0" * (len(value) % 2)
    tag = struct.pack("<HH", group, number) + kind.encode()
    if kind in ("OB", "OW", "UN", ""):
        return tag + bytes(2 if kind else 0) + struct.pack("<I", len(value)) + value
    return tag + struct.pack("<H", len(value)) + value


def part10(meta: bytes, content: bytes) -> bytes:
    return bytes(128) + b"DICM" + meta + content


def peak_of_refusal(data: bytes, sentence: str) -> int:
    """Bytes taken at most until `data` is refused with `sentence`."""
    decode_grey(dicom(SMALL), "b.dcm")  # imports are not what is measured
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match=sentence):
            decode_grey(data, "a.dcm")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def deflated(inner: bytes = b"") -> bytes:
    """A deflated data set that inflates to LARGE bytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    head = inner + struct.pack("<HH", 0x7FE1, 0x1010) + b"OB\0\0" + struct.pack("<I", LARGE)
    return packer.compress(head) + packer.compress(bytes(LARGE)) + packer.flush()


UID = DEFLATED.encode()
DECOY = element(2, 0x10, "UI", EXPLICIT.encode())


@pytest.mark.parametrize(
    "meta",
    [
        element(2, 0x10, "UI", UID),
        element(2, 1, "OB", DECOY) + element(2, 0x10, "UI", UID),
        element(2, 0x10, "LO", UID),
        element(2, 0x10, "UN", UID),
        element(2, 2, "", b"1.2.3") + element(2, 0x10, "", UID),
        # The last one of two counts.
        DECOY + element(2, 0x10, "UI", UID),
    ],
    ids=["plain", "decoy", "text", "unknown", "implicit", "twice"],
)
def test_a_deflated_data_set_is_refused_however_its_syntax_is_written(meta: bytes) -> None:
    assert peak_of_refusal(part10(meta, deflated()), "deflated as a whole") < ALLOWED


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.4.102", "1.2.840.10008.1.2.8.1", "1.2.3"])
def test_other_transfer_syntaxes_are_refused_by_their_name(syntax: str) -> None:
    data = dicom(SMALL)
    start = data.index(element(2, 0x10, "UI", EXPLICIT.encode()))
    content = data[start + 8 + 20 :]
    with pytest.raises(ImageError, match=r"its transfer syntax .*1\.2.* is not read; store it uncompressed"):
        decode_grey(part10(element(2, 0x10, "UI", syntax.encode()), content), "a.dcm")
    with pytest.raises(ImageError, match="lacks the tag TransferSyntaxUID"):
        decode_grey(part10(element(2, 2, "UI", b"1.2.3"), content), "a.dcm")
    read = decode_grey(part10(element(2, 0x10, "UI", EXPLICIT.encode()), content), "a.dcm")
    np.testing.assert_array_equal(read, SMALL)


def run_lengths(segments: Sequence[bytes], allocated: int, pad: bytes = b"") -> bytes:
    """A file of 64 x 64 words whose run-length coded frame has these segments."""
    offsets = np.cumsum([64, *map(len, segments[:-1])]).tolist()
    header = struct.pack("<16I", len(segments), *offsets, *[0] * (15 - len(segments)))
    stored = np.zeros((64, 64), f"u{allocated // 8}")
    return dicom(stored, bits=allocated, syntax=RLE, frame=header + b"".join(segments) + pad)


BOMB = b"\x81\x07" * (LARGE // 128)  # runs of 128 bytes
PLANE = b"\x81\x07" * (64 * 64 // 128)


def test_runs_behind_the_last_pixel_are_not_expanded() -> None:
    for data in (run_lengths([BOMB], 8), run_lengths([BOMB, PLANE], 16), run_lengths([PLANE], 8, pad=BOMB)):
        tracemalloc.start()
        found = decode_grey(data, "a.dcm")
        assert tracemalloc.get_traced_memory()[1] < len(data) * 3 + ALLOWED
        tracemalloc.stop()
        assert found.shape == (64, 64) and not np.ptp(found)


def test_runs_that_stand_for_too_little_are_refused() -> None:
    nothing = b"\x80" * (1 << 20)
    for data, sentence in (
        (run_lengths([BOMB, b""], 16), "gives 0 of 4096 bytes"),
        (run_lengths([nothing], 8), "gives 0 of 4096 bytes"),
        (run_lengths([PLANE[:-2]], 8), "gives 3968 of 4096 bytes"),
        (run_lengths([PLANE, PLANE], 8), "has 2 segments, 8 bits need 1"),
        (dicom(SMALL, syntax=RLE, frame=b"\1\0"), "frame is truncated"),
    ):
        assert peak_of_refusal(data, sentence) < 4 * len(data) + ALLOWED


@pytest.mark.parametrize("table", ["basic", "extended"])
def test_a_table_of_offsets_leads_to_no_other_frame(table: str) -> None:
    """The first fragment has the size of the header; the table points at a second, which is larger."""
    true, large = encode(SMALL, "JPEG"), encode(np.zeros((512, 512), np.uint8), "JPEG")
    data = dicom(SMALL, syntax="1.2.840.10008.1.2.4.50", frame=true)
    fragments = [frame + b"\0" * (len(frame) % 2) for frame in (true, large)]
    second = 8 + len(fragments[0])
    offsets = struct.pack("<I", second) if table == "basic" else b""
    items = b"".join(struct.pack("<HHI", 0xFFFE, 0xE000, len(item)) + item for item in (offsets, *fragments))
    pixels = struct.pack("<HH2sHI", 0x7FE0, 0x10, b"OB", 0, 0xFFFFFFFF) + items
    pixels += struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    extended = b""
    if table == "extended":
        for number, value in ((1, second), (2, len(large))):
            eight = struct.pack("<Q", value)
            extended += struct.pack("<HH2sHI", 0x7FE0, number, b"OV", 0, len(eight)) + eight
    changed = data[: data.index(b"\xe0\x7f\x10\x00OB")] + extended + pixels
    cause = "its offset table is of 1 frames" if table == "basic" else "its pixels are 2 compressed frames"
    with pytest.raises(ImageError, match=f"{cause}, its header says 1"):
        decode_grey(changed, "a.dcm")
