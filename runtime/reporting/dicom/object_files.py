"""DICOM objects as files of a folder, one each, under names that follow from their UIDs (docs/dicom.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ....engines.errors import RunError
from ...results.storage import write_bytes
from .dicom_object import DicomObject
from .film_objects import differs, film_label

Outcome = Literal["written", "kept", "refused"]


def object_name(made: DicomObject, film_uid: str) -> str:
    """The name of an object's file: hashes of the UIDs of its film and its own, which name no patient."""
    return f"{film_label(film_uid)}-{made.kind}-{film_label(made.uid)}.dcm"


def write_objects(
    objects: Sequence[DicomObject], film_uid: str, folder: Path
) -> list[tuple[DicomObject, Path, Outcome]]:
    """Writes the objects of a film, each file whole or not at all. An equal one that exists is kept, and one that
    differs in more than its time is neither replaced nor written elsewhere: "refused". Raises RunError."""
    outcomes: list[tuple[DicomObject, Path, Outcome]] = []
    for made in objects:
        path = folder / object_name(made, film_uid)
        try:
            existing = path.read_bytes() if path.exists() else None
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error
        if existing is None:
            write_bytes(path, made.content)
            outcomes.append((made, path, "written"))
        else:
            outcomes.append((made, path, "refused" if differs(existing, made.content) else "kept"))
    return outcomes
