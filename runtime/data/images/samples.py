"""A small DICOM file in each common transfer syntax, to check what the readers of this machine can decode."""

from __future__ import annotations

import base64
import io
import struct

import numpy as np
from numpy.typing import NDArray

SYNTAXES = {
    "uncompressed": "1.2.840.10008.1.2.1",
    "RLE": "1.2.840.10008.1.2.5",
    "JPEG baseline": "1.2.840.10008.1.2.4.50",
    "JPEG lossless": "1.2.840.10008.1.2.4.70",
    "JPEG-LS": "1.2.840.10008.1.2.4.80",
    "JPEG 2000": "1.2.840.10008.1.2.4.90",
}
"""Name -> UID of the transfer syntax."""

# `sample_pixels`, encoded once by imagecodecs (CharLS, its own lossless JPEG, OpenJPEG) and stored, because this
# module cannot write these formats.
_STREAMS = {
    "JPEG lossless": "/9j/xAAVAAEBAAAAAAAAAAAAAAAAAAAACP/DAAsIABAAEAEAEQD/2gAIAQAABgAAn8BZAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAAAAAD/2Q==",
    "JPEG-LS": "/9j/9wALCAAQABABAREA/9oACAEBAAAAAPwAAAW2V/U+LpcOHDhw4cOHDhw4YP/Z",
    "JPEG 2000": "/0//UQApAAAAAAAQAAAAEAAAAAAAAAAAAAAAEAAAABAAAAAAAAAAAAABBwEB/1IADAAAAAEAAQQEAAH/XAAHQEBISFD/kAAKAA"
    "AAAABCAAH/k9+BMBFQQnhFmQReZxoexqN1VsH+w/lSNnxtuHli/VE3P8yp6A/4UCu/x9oOACFuB6talL//2Q==",
}


def sample_pixels() -> NDArray[np.uint8]:
    """uint8 [16, 16]: 0 in the left half, 200 in the right; constant 8 x 8 blocks, which baseline JPEG preserves."""
    pixels = np.zeros((16, 16), np.uint8)
    pixels[:, 8:] = 200
    return pixels


def dicom_sample(name: str) -> bytes:
    """A DICOM file that holds `sample_pixels` in the syntax named `name`, a key of `SYNTAXES`."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.encaps import encapsulate
    from pydicom.uid import UID

    pixels = sample_pixels()
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = UID("1.2.840.10008.5.1.4.1.1.1")
    meta.MediaStorageSOPInstanceUID = UID("2.25.1")
    meta.TransferSyntaxUID = UID(SYNTAXES[name])
    dataset = FileDataset("sample", {}, file_meta=meta, preamble=bytes(128))
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = 8, 8, 7, 0
    dataset.PixelData = pixels.tobytes() if name == "uncompressed" else encapsulate([_frame(name, pixels)])
    dataset["PixelData"].VR = "OB"
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def _frame(name: str, pixels: NDArray[np.uint8]) -> bytes:
    if name == "RLE":
        # One segment; a run of n is the byte 257 - n and the value (DICOM PS3.5 G.3).
        runs = b"".join(bytes([249, row[0], 249, row[8]]) for row in pixels)
        return struct.pack("<16I", 1, 64, *[0] * 14) + runs
    if name == "JPEG baseline":
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG")
        return buffer.getvalue()
    return base64.b64decode(_STREAMS[name])
