"""The DICOM files of a folder by their identity, and what is needed of their headers (docs/datasets.md §9.10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ....engines.errors import XBenchError
from ..files import fail
from ..source.listing import tree
from .shapes import Place

__all__ = ["OBJECTS", "DicomFile", "dicom_files", "guarded", "items", "read_object", "text_of"]

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

_OTHERS: Final = (f"{_STORAGE}.88.", f"{_STORAGE}.11.", f"{_STORAGE}.66.", f"{_STORAGE}.481.")


@dataclass(frozen=True)
class DicomFile:
    """A DICOM file: its kind ("image", "other" or one of `OBJECTS`), and the UID of its instance."""

    path: Path
    kind: str
    uid: str


def dicom_files(folder: Path, *, strict: bool = True) -> Iterator[DicomFile]:
    """The DICOM files below a folder, whatever their names; only the beginning of each file is read.

    Raises DataError for a file that does not say what it is; without `strict` it is left out.
    """
    for path in tree(folder):
        try:
            with path.open("rb") as stream:
                if stream.read(132)[128:] != b"DICM":
                    continue
            sop, uid = _identity(path)
        # pydicom can raise any exception on a damaged file, with the values of patients in its text.
        except Exception as error:
            if strict:
                raise fail(path, None, f"it cannot be read as DICOM ({type(error).__name__})") from None
            continue
        yield DicomFile(path, OBJECTS.get(sop, "other" if sop.startswith(_OTHERS) else "image"), uid)


def _identity(path: Path) -> tuple[str, str]:
    """Class and UID of an instance, from the file's own header, else from the data set."""
    import pydicom
    from pydicom.filereader import read_file_meta_info

    meta = read_file_meta_info(path)
    if "MediaStorageSOPClassUID" in meta and "MediaStorageSOPInstanceUID" in meta:
        return str(meta.MediaStorageSOPClassUID), str(meta.MediaStorageSOPInstanceUID)
    data = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=["SOPClassUID", "SOPInstanceUID"])
    return str(data.SOPClassUID), str(data.SOPInstanceUID)


def read_object(path: Path, *tags: str) -> Any:
    """The data set of a file, or only `tags` of it, without pixels. Raises DataError."""
    import pydicom

    if not tags:
        return guarded((path, None), lambda: pydicom.dcmread(path))
    return guarded((path, None), lambda: pydicom.dcmread(path, stop_before_pixels=True, specific_tags=list(tags)))


def guarded(where: Place, make: Callable[[], Made]) -> Made:
    """What `make` returns; whatever fails in a damaged file is a DataError, which quotes no value of the file."""
    try:
        return make()
    except XBenchError:
        raise
    except OSError as error:
        raise fail(*where, error.strerror or "it cannot be read") from None
    except Exception as error:
        raise fail(*where, f"it is damaged or incomplete ({type(error).__name__})") from None


def items(data: Any, *path: str) -> list[Any]:
    """The items of a sequence, at a path of sequences of which the first items are taken; none if it is not there."""
    found = [data]
    for name in path:
        found = list(found[0].get(name) or ()) if found else []
    return found


def text_of(data: Any, name: str) -> str:
    """The text of an attribute, empty if it is not there."""
    return str(data.get(name) or "").strip()
