"""The DICOM files of a folder by their identity, and what is needed of their headers (docs/formats.md §9.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from ......engines.errors import ImageError, XBenchError
from ....images.dicom.elements import DataSet, valid_uid
from ....images.dicom.open_dicom import open_data_set
from ....images.kinds import KIND_BYTES, image_kind
from ...file_rows import fail
from ...source.listing import tree
from ..shapes import Place

Made = TypeVar("Made")

_STORAGE: Final = "1.2.840.10008.5.1.4.1.1"
OBJECTS: Final = {
    f"{_STORAGE}.66.4": "seg",
    f"{_STORAGE}.66.7": "seg",
    f"{_STORAGE}.30": "pm",
    f"{_STORAGE}.11.1": "gsps",
    f"{_STORAGE}.88.22": "sr",
    f"{_STORAGE}.88.33": "sr",
    f"{_STORAGE}.88.34": "sr",
    f"{_STORAGE}.481.3": "rtstruct",
}
"""SOP class -> kind of annotation object. Other structured reports and presentation states are of the kind `other`."""

_INFLATED: Final = 1 << 29  # bytes of a deflated object, the same limit as for any image file
_OTHERS: Final = (f"{_STORAGE}.88.", f"{_STORAGE}.11.", f"{_STORAGE}.66.", f"{_STORAGE}.481.")


@dataclass(frozen=True)
class DicomFile:
    """A DICOM file: its type ("image", "other" or one of `OBJECTS`), and the UID of its instance."""

    path: Path
    object_type: str
    uid: str


def dicom_files(folder: Path, *, strict: bool = True) -> Iterator[DicomFile]:
    """The DICOM files below a folder, with any names; only the beginning of each file is read.

    Raises DataError for a file that does not say what it is; without `strict` it is left out.
    """
    for path in tree(folder):
        try:
            with path.open("rb") as stream:
                if image_kind(stream.read(KIND_BYTES)) != "dicom":
                    continue
                stream.seek(0)
                sop, uid = _identity(stream)
        except (OSError, ImageError) as error:
            if strict:
                cause = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
                raise fail(path, None, f"it cannot be read as DICOM: {cause}") from None
            continue
        yield DicomFile(path, OBJECTS.get(sop, "other" if sop.startswith(_OTHERS) else "image"), uid)


def _identity(stream: BinaryIO) -> tuple[str, str]:
    """Class and UID of an instance."""
    header = open_data_set(stream, ("SOPClassUID", "SOPInstanceUID"), pixels=False, inflated=_INFLATED)
    sop, uid = (valid_uid(header.text(keyword)) for keyword in ("SOPClassUID", "SOPInstanceUID"))
    if not sop or not uid:
        raise ImageError("its SOP Class UID or SOP Instance UID is absent or no valid identifier")
    return sop, uid


def read_object(path: Path, *tags: str) -> DataSet:
    """The data set of a file, or only `tags` of it, without pixels. Raises DataError."""

    def read() -> DataSet:
        with path.open("rb") as stream:
            return open_data_set(stream, tags, pixels=not tags, inflated=_INFLATED)

    return guarded((path, None), read)


def guarded(where: Place, make: Callable[[], Made]) -> Made:
    """What `make` returns; any failure in a damaged file is a DataError, which quotes no value of the file."""
    try:
        return make()
    except ImageError as error:
        raise fail(*where, str(error)) from None
    except XBenchError:
        raise
    except OSError as error:
        raise fail(*where, error.strerror or "it cannot be read") from None
    except Exception as error:
        raise fail(*where, f"it is damaged or incomplete ({type(error).__name__})") from None


def items(data: Any, *path: str) -> list[Any]:
    """The items of a sequence, at a path of sequences of which the first items are taken; none if it is not there."""
    sequence = [data]
    for name in path:
        sequence = list(sequence[0].get(name) or ()) if sequence else []
    return sequence


def text_of(data: Any, name: str) -> str:
    """The text of an attribute, empty if it is not there."""
    return str(data.get(name) or "").strip()


def uid_of(data: Any, name: str) -> str:
    """A UID. Raises ImageError for another text, which a damaged file may hold and no name of a file may show."""
    uid = valid_uid(text_of(data, name))
    if not uid:
        raise ImageError(f"its {name} is absent or no valid identifier")
    return uid
