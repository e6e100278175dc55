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
    **tags: Any,
) -> bytes:
    """A DICOM file around `stored` [H, W]; with `frame` the pixels are that compressed stream. `tags` override."""
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
    """A lossless JPEG 2000 codestream; at least 64 pixels a side."""
    from openjpeg.utils import encode_array

    return bytes(encode_array(stored, bits_stored=bits, photometric_interpretation=2))


def run_length(stored: NDArray[Any], bits: int) -> bytes:
    """A DICOM file with run-length coded pixels."""
    import pydicom
    from pydicom.uid import RLELossless

    dataset = pydicom.dcmread(io.BytesIO(dicom(stored, bits=bits)))
    dataset.compress(RLELossless, generate_instance_uid=False)
    buffer = io.BytesIO()
    dataset.save_as(buffer)
    return buffer.getvalue()
