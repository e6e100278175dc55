"""Image files made for tests."""

from __future__ import annotations

import io
from typing import Any

from numpy.typing import NDArray


def encode(pixels: NDArray[Any], kind: str, mode: str | None = None, **options: Any) -> bytes:
    """PNG or JPEG bytes of an array, through Pillow."""
    from PIL import Image

    image = Image.fromarray(pixels)
    if mode is not None:
        image = image.convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def dicom(
    stored: NDArray[Any],
    *,
    bits: int = 8,
    photometric: str = "MONOCHROME2",
    syntax: str = "1.2.840.10008.1.2.1",
    frame: bytes | None = None,
    drop: tuple[str, ...] = (),
    tag_type: str | None = None,
    **tags: Any,
) -> bytes:
    """A DICOM file around `stored` [H, W]; with `frame` the pixels are that compressed stream. `tags` override, written
    with the value representation `tag_type` if one is given."""
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.1")
    meta.MediaStorageSOPInstanceUID = UID("1.2.3.4")
    meta.TransferSyntaxUID = UID(syntax)
    dataset = FileDataset("made", {}, file_meta=meta, preamble=b"\0" * 128)
    dataset.SOPClassUID = meta.MediaStorageSOPClassUID
    dataset.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    dataset.Rows, dataset.Columns = stored.shape
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = photometric
    dataset.BitsAllocated = stored.dtype.itemsize * 8
    dataset.BitsStored = bits
    dataset.HighBit = bits - 1
    dataset.PixelRepresentation = int(stored.dtype.kind == "i")
    for name, value in tags.items():
        setattr(dataset, name, value)
        if tag_type is not None:
            dataset[name].VR = tag_type
    order = ">" if syntax == "1.2.840.10008.1.2.2" else "<"
    data = stored.astype(stored.dtype.newbyteorder(order)).tobytes() if frame is None else encapsulate([frame])
    dataset.PixelData = data + b"\0" * (len(data) % 2)
    dataset["PixelData"].VR = "OB" if frame is not None or stored.dtype.itemsize == 1 else "OW"
    for name in drop:
        delattr(dataset, name)
    buffer = io.BytesIO()
    pydicom.dcmwrite(buffer, dataset, enforce_file_format=True)
    return buffer.getvalue()


def jpeg2000(stored: NDArray[Any], bits: int) -> bytes:
    """A lossless JPEG 2000 codestream."""
    from imagecodecs import jpeg2k_encode

    return bytes(jpeg2k_encode(stored, level=0, codecformat="j2k", reversible=True, bitspersample=bits))


def run_length(stored: NDArray[Any], bits: int) -> bytes:
    """A DICOM file with run-length coded pixels."""
    import pydicom
    from pydicom.uid import RLELossless

    dataset = pydicom.dcmread(io.BytesIO(dicom(stored, bits=bits)))
    dataset.compress(RLELossless, generate_instance_uid=False)
    buffer = io.BytesIO()
    dataset.save_as(buffer)
    return buffer.getvalue()


def deep_png(values: NDArray[Any], *, interlaced: bool = False, chunks: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    """A PNG of 16 bits of `values` uint16 [H, W, C], C = 1 to 4; `chunks` stand before the pixels."""
    import struct
    import zlib

    height, width, channels = values.shape
    starts = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    passes = [values[y::dy, x::dx] for x, y, dx, dy in starts] if interlaced else [values]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for part in passes if part.size for row in part)
    kind = bytes([16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, interlaced])
    whole = [
        (b"IHDR", struct.pack(">II", width, height) + kind),
        *chunks,
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in whole)
    return b"\x89PNG\r\n\x1a\n" + body
