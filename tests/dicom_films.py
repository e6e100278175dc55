"""Synthetic DICOM films with complete headers, one for each trait that real films have, for tests of their objects."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset

CANARY = "ZZCANARY"
PIXELS = (
    "SamplesPerPixel", "Rows", "Columns", "PixelRepresentation", "PhotometricInterpretation", "BitsAllocated",
    "BitsStored", "HighBit",
)  # fmt: skip
SECONDARY_CAPTURE, COMPUTED, DIGITAL = (f"1.2.840.10008.5.1.4.1.1.{end}" for end in ("7", "1", "1.1"))


class Raw(str):
    """A value that is written as it is, which pydicom would refuse."""


def film(name: str = "sc", size: tuple[int, int] = (300, 260), **changes: Any) -> bytes:
    """A film of `size` rows and columns; `changes` are attributes, None leaves one out.

    name: "sc", a secondary capture with an age without unit, as in RSNA; "inverted", MONOCHROME1 of 12 bits with a
    spacing of 0; "undated", DX without study date, patient's birth date, body part and spacing, in Implicit VR.
    """
    seed = sum(map(ord, name))
    values = np.random.default_rng(seed).integers(0, 4096, (size[0] // 10, size[1] // 10))
    stored = np.kron(values, np.ones((10, 10), int))
    shared = {
        "SOPInstanceUID": f"1.2.826.0.1.3680043.10.{seed}.1",
        "StudyInstanceUID": f"1.2.826.0.1.3680043.10.{seed}.2",
        "SeriesInstanceUID": f"1.2.826.0.1.3680043.10.{seed}.3",
        "PatientName": f"{CANARY}^ZZ",
        "PatientID": f"{CANARY}-4711",
        "AccessionNumber": f"{CANARY}-8",
        "SamplesPerPixel": 1,
        "Rows": size[0],
        "Columns": size[1],
        "PixelRepresentation": 0,
        "PatientComments": f"{CANARY} comment",
        "OtherPatientNames": f"{CANARY}^OTHER",
        "InstitutionName": f"{CANARY} hospital",
    }
    own: dict[str, dict[str, Any]] = {
        "sc": {
            "SOPClassUID": SECONDARY_CAPTURE, "Modality": "CR", "SpecificCharacterSet": "ISO_IR 100",
            "PatientBirthDate": "", "PatientSex": "F", "PatientAge": "68", "StudyDate": "19010101",
            "StudyTime": "000000.00", "StudyID": "", "ReferringPhysicianName": "", "BodyPartExamined": "CHEST",
            "ViewPosition": "PA", "PatientOrientation": "", "PixelSpacing": [0.143, 0.143],
            "ConversionType": "WSD", "PhotometricInterpretation": "MONOCHROME2", "BitsAllocated": 8, "BitsStored": 8,
            "HighBit": 7, "LossyImageCompression": "01", "LossyImageCompressionMethod": "ISO_10918_1",
            "PixelData": (stored >> 4).astype(np.uint8).tobytes(),
        },
        "inverted": {
            "SOPClassUID": COMPUTED, "Modality": "CR", "PatientBirthDate": "19500301", "PatientSex": "M",
            "StudyDate": "20040826", "StudyTime": "185059", "StudyID": "1", "ReferringPhysicianName": f"{CANARY}^WARD",
            "StudyDescription": "chest, two views", "BodyPartExamined": "CHEST", "ViewPosition": "PA",
            "PatientOrientation": ["L", "F"], "PixelSpacing": ["0.000", "0.000"],
            "PhotometricInterpretation": "MONOCHROME1", "BitsAllocated": 16, "BitsStored": 12, "HighBit": 11,
            "PixelData": stored.astype("<u2").tobytes(),
        },
        "undated": {
            "SOPClassUID": DIGITAL, "Modality": "DX", "PatientSex": "", "ReferringPhysicianName": "",
            "PhotometricInterpretation": "MONOCHROME2", "BitsAllocated": 16, "BitsStored": 12, "HighBit": 11,
            "PixelData": stored.astype("<u2").tobytes(),
        },
    }  # fmt: skip
    data = Dataset()
    for keyword, value in (shared | own[name] | changes).items():
        if isinstance(value, Raw):
            data.add_new(keyword, "LO", str(value))
        elif value is not None:
            setattr(data, keyword, value)
    data.file_meta = FileMetaDataset()
    syntax = "1.2.840.10008.1.2" if name == "undated" else "1.2.840.10008.1.2.1"
    data.file_meta.TransferSyntaxUID = syntax
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    stream = io.BytesIO()
    data.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


NAMES = ("sc", "inverted", "undated")
