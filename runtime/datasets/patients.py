"""The reader option `patients`: a CSV that names the patient of each image, for datasets whose own files do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...engines.errors import DataError
from .case import Case
from .files import fail
from .source.image_names import portable_name
from .source.tables import header_text, read_rows

__all__ = [
    "IMAGE_COLUMNS",
    "NIH_COLUMNS",
    "PATIENT_COLUMNS",
    "is_placeholder",
    "read_indices",
    "read_patients",
    "with_patients",
]

IMAGE_COLUMNS: Final = ("image", "file_name", "filename", "image_id", "ImageId", "case_id")
PATIENT_COLUMNS: Final = ("patient_id", "patient", "PatientID", "Patient ID")
NIH_COLUMNS: Final = ("nih_image_index", "Image Index")
"""Columns with the name of an image in NIH ChestX-ray14; the part before "_" is the patient."""


_PLACEHOLDERS: Final = frozenset(
    {
        "nan", "none", "null", "na", "n/a", "<na>", "nat", "unknown", "unk", "undefined", "missing", "not available",
        "anonymous", "anonymized", "anonymised", "anon", "anonym", "anonymous patient", "deidentified", "de-identified",
        "removed", "redacted", "hidden", "no id", "noid", "-", "--", "?", "??", ".", "x", "xx", "xxx", "xxxx",
    }
)  # fmt: skip


def is_placeholder(patient: str) -> bool:
    """Whether a text stands in the place of a patient and names none: empty, "nan", "ANONYMOUS" and the like.

    A number is a name, also 0: the films of a patient named so are counted (`case_rules.settle`).
    """
    text = " ".join(patient.split()).casefold().strip("^ ")
    return not text or text in _PLACEHOLDERS


def with_patients(cases: Sequence[Case], file: Path, dataset: str) -> list[Case]:
    """The cases with the patients that `file` names. Raises DataError for a case whose patient it does not name."""
    patients = {portable_name(image): patient for image, patient in read_patients(file).items()}
    names = [(case.image.name, case.image.stem, case.case_id) for case in cases]
    chosen = [next((patients[name] for name in map(portable_name, each) if name in patients), None) for each in names]
    missing = [each[0] for each, patient in zip(names, chosen, strict=True) if patient is None]
    if missing:
        raise DataError(
            f"{file} names no patient for {len(missing)} of {len(cases)} images of the dataset '{dataset}', the "
            f"first is {missing[0]}; add them, or leave the option patients out."
        )
    return [replace(case, patient_id=patient) for case, patient in zip(cases, chosen, strict=True)]


def read_patients(file: Path) -> dict[str, str]:
    """Image -> patient. Raises DataError for a file that cannot be read, or that names two patients of an image."""
    rows = read_rows(file)
    line, header = next(rows, (1, []))
    image = next((header.index(name) for name in IMAGE_COLUMNS if name in header), None)
    patient = next((header.index(name) for name in PATIENT_COLUMNS if name in header), None)
    index = next((header.index(name) for name in NIH_COLUMNS if name in header), None)
    if image is None or (patient is None and index is None):
        raise fail(
            file,
            line,
            f"the header needs one of {', '.join(IMAGE_COLUMNS)}, and one of {', '.join(PATIENT_COLUMNS)} or, for "
            f"images of NIH ChestX-ray14, {' or '.join(NIH_COLUMNS)}; it has {header_text(header)}",
        )
    found: dict[str, str] = {}
    for line, cells in rows:
        if len(cells) != len(header):
            raise fail(file, line, f"{len(cells)} cells, the header has {len(header)}")
        if patient is not None:
            name, who = cells[image], cells[patient]
        else:
            name, who = cells[image], cells[index or 0].partition("_")[0]
        if not name or not who:
            raise fail(file, line, "the image or its patient is empty")
        if found.setdefault(name, who) != who:
            raise fail(file, line, f"'{name}' belongs to the patient '{who}', but to '{found[name]}' before")
    return found


def read_indices(file: Path) -> dict[str, str]:
    """Image -> its name in NIH ChestX-ray14, of a file that `read_patients` can read; empty if it does not say them."""
    rows = read_rows(file)
    _, header = next(rows, (1, []))
    image = next((header.index(name) for name in IMAGE_COLUMNS if name in header), None)
    index = next((header.index(name) for name in NIH_COLUMNS if name in header), None)
    if image is None or index is None:
        return {}
    return {cells[image]: cells[index] for _, cells in rows if len(cells) == len(header) and cells[index]}
