"""The film that objects are about: its pixels, and the part of its header that they take over (docs/dicom.md §4)."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError, MissingExtraError
from ....engines.extras import missing_package
from ...data.images.decode import decode_grey
from ...data.images.dicom.elements import DataSet, valid_uid
from ...data.images.dicom.open_dicom import open_data_set
from ...data.images.kinds import image_kind
from .dicom_object import MANUFACTURER
from .header_values import FORMS, body_part, directions, lossy_flags, numbers, orientation, spacing, words
from .identity import hashed_uid

_RADIOGRAPHS: Final = ("CR", "DX", "RG", "OT", "")
"""Modalities of films. Secondary captures of them say OT, or nothing."""
_EMPTY: Final = ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID",
                 "AccessionNumber", "ReferringPhysicianName")  # fmt: skip
_STUDY: Final = (*_EMPTY, "IssuerOfPatientID", "StudyDescription")
_PIXELS: Final = ("Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "BitsAllocated", "BitsStored",
                  "HighBit", "PixelRepresentation")  # fmt: skip
_UIDS: Final = ("SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID")
_PLANE: Final = ("FrameOfReferenceUID", "ImagePositionPatient", "ImageOrientationPatient")
_OTHERS: Final = ("Modality", "BodyPartExamined", "PatientOrientation", "PixelSpacing", "ImagerPixelSpacing",
                  "LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod",
                  "BurnedInAnnotation", "SpecificCharacterSet", "SliceThickness")  # fmt: skip
HEADER: Final = (*_UIDS, *_STUDY, *_PIXELS, *_PLANE, *_OTHERS)
"""The attributes of a film that are read for its objects. All others stay out of them."""


@dataclass(frozen=True, eq=False)
class FilmHeader:
    """A film: the reduced header, the pixels uint8 [rows, columns] with bright = radio-dense, and remarks.

    header: a pydicom data set of `HEADER` alone, with a frame of reference of its own unless the film has one. Texts
    about the patient and the study are empty in it, because messages and warnings of highdicom quote them. study: these
    texts by keyword, which are written into a finished object. spacing: (row, column) in mm as the film states it, None
    where it states none.
    """

    header: Any
    study: Mapping[str, str]
    grey: NDArray[np.uint8]
    spacing: tuple[float, float] | None

    @staticmethod
    def read(data: bytes, name: str) -> FilmHeader:
        """The film in the bytes of a DICOM file; `name` is used in messages.

        Raises ImageError, which quotes no value of the file, for another file, an image that is no radiograph, and a
        film without identifiers; MissingExtraError without highdicom.
        """
        return film_header(data, name, None)

    @property
    def uid(self) -> str:
        """The SOP Instance UID of the film."""
        return str(self.header.SOPInstanceUID)

    @property
    def remark(self) -> str:
        """What a user should know of the objects of this film, as a clause; empty for nothing."""
        return "" if self.spacing else "it has no pixel spacing; its objects say 1 x 1, which is no measurement"

    @cached_property
    def plain(self) -> Any:
        """The header for objects that have no plane: without the frame of reference that was made for the others."""
        plain = copy.deepcopy(self.header)  # a shallow copy shares the elements
        for keyword in (*_PLANE, "PositionReferenceIndicator", "SliceThickness"):
            if keyword in plain:
                del plain[keyword]
        return plain


def film_header(data: bytes, name: str, grey: NDArray[np.uint8] | None) -> FilmHeader:
    """As `FilmHeader.read`, with pixels that were decoded before."""
    try:
        if image_kind(data) != "dicom":
            raise ImageError("it is no DICOM file, so no DICOM object can refer to it")
        dataset = open_data_set(io.BytesIO(data), HEADER, pixels=False)
        if is_own_object(data):
            raise ImageError("it was made by xbench-fast about a film, and is none")
        if dataset.text("Modality") not in _RADIOGRAPHS:
            raise ImageError("it is no radiograph: its Modality is none of CR, DX, RG and OT")
        if dataset.integer("NumberOfFrames", 1) > 1:
            raise ImageError("it has several frames, a radiograph has one")
    except ImageError as error:
        raise ImageError(f"{name} gets no DICOM objects: {error}.") from None
    pixels = decode_grey(data, name) if grey is None else grey
    try:
        return _reduced(dataset, pixels)
    except ImageError as error:
        raise ImageError(f"{name} gets no DICOM objects: {error}.") from None
    except ImportError as error:
        raise MissingExtraError(missing_package(error.name or "highdicom", "dicom")) from error
    # pydicom converts values here, and its messages quote them.
    except Exception as error:
        raise ImageError(f"{name} gets no DICOM objects: its header is damaged ({type(error).__name__}).") from None


def is_own_object(data: bytes) -> bool:
    """Whether a DICOM file is an object that this project made about a film."""
    with suppress(ImageError):
        return open_data_set(io.BytesIO(data), ("Manufacturer",), pixels=False).text("Manufacturer") == MANUFACTURER
    return False


def _reduced(dataset: DataSet, grey: NDArray[np.uint8]) -> FilmHeader:
    from pydicom.dataset import Dataset, FileMetaDataset

    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1"  # of the objects; the film's pixels are not copied
    for keyword in _UIDS:
        uid = valid_uid(dataset.text(keyword))
        if not uid:
            raise ImageError(f"its {keyword} is absent or no valid identifier")
        setattr(header, keyword, uid)
    if header.SOPClassUID.is_private:
        raise ImageError("its SOPClassUID is private, and objects can refer only to images of the standard")
    study: dict[str, str] = {}
    for keyword in _STUDY:
        value = words(dataset, keyword)
        if keyword in FORMS and not FORMS[keyword](value):
            value = ""  # not guessed
        if value or keyword in _EMPTY:
            study[keyword] = value
    for keyword in _EMPTY:
        setattr(header, keyword, "")
    for keyword in _PIXELS[:-1]:
        setattr(header, keyword, dataset.get(keyword))
    header.PixelRepresentation = dataset.integer("PixelRepresentation", 0)
    header.SpecificCharacterSet = "ISO_IR 192"  # of own texts too, such as a finding's name
    header.Modality = dataset.text("Modality") or "OT"
    header.BodyPartExamined = body_part(dataset)
    header.PatientOrientation = orientation(dataset)
    for keyword, flag in lossy_flags(dataset).items():
        setattr(header, keyword, flag)
    if dataset.text("BurnedInAnnotation") == "YES":
        header.BurnedInAnnotation = "YES"
    stated = spacing(dataset, "PixelSpacing") or spacing(dataset, "ImagerPixelSpacing")
    header.PixelSpacing = [f"{number:g}" for number in stated or (1.0, 1.0)]
    _place(header, dataset)
    return FilmHeader(header, study, grey, stated)


def _place(header: Any, dataset: DataSet) -> None:
    """Gives the header the film's frame of reference and plane, or a frame of its own.

    Without a plane, no reader but a tolerant one takes a Segmentation, and no Parametric Map can be made.
    """
    header.PositionReferenceIndicator = ""
    header.SliceThickness = "1"
    frame, position = valid_uid(dataset.text("FrameOfReferenceUID")), numbers(dataset, "ImagePositionPatient", 3)
    if frame and position and directions(dataset):
        header.FrameOfReferenceUID = frame
        for keyword in ("ImagePositionPatient", "ImageOrientationPatient"):
            setattr(header, keyword, dataset.text(keyword).split("\\"))
        if (thickness := numbers(dataset, "SliceThickness", 1)) and thickness[0] > 0:
            header.SliceThickness = dataset.text("SliceThickness")
        return
    header.FrameOfReferenceUID = hashed_uid("frame", str(header.SOPInstanceUID))
    header.ImagePositionPatient = [0, 0, 0]
    header.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
