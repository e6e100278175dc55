"""The reader option `patients`: a CSV that names the patient of each image, for datasets whose own files do not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ....engines.errors import DataError
from .case import Case
from .file_rows import fail
from .source.column_guess import renames
from .source.csv_cells import BLANKS
from .source.csv_files import header_text, read_rows
from .source.image_names import TableNames, stem_of

IMAGE_COLUMNS: Final = ("image", "file_name", "filename", "image_id", "ImageId", "case_id")
PATIENT_COLUMNS: Final = ("patient_id", "patient", "PatientID", "Patient ID")
NIH_COLUMNS: Final = ("nih_image_index", "Image Index")
"""Columns with the name of an image in NIH ChestX-ray14; the part before "_" is the patient."""


_UNKNOWN: Final = BLANKS | {
    "n.a.", "n. a.", "(null)", "(none)", "unknown", "unk", "undefined", "missing", "not available", "not applicable",
    "anonymous", "anonymized", "anonymised", "anon", "anonym", "anonyme", "anonymisiert", "anonymous patient",
    "patient anonymous", "anonymized patient", "unknown patient", "patient unknown", "no name", "deidentified",
    "de-identified", "deid", "removed", "redacted", "hidden", "no id", "noid", "no patient", "inconnu", "unbekannt",
    "desconocido", "-", "--", "---", "?", "??", "???", ".",
}  # fmt: skip
"""The texts in files for an unknown or hidden value, in lower case."""

_LONGEST: Final = 32
"""Characters of a placeholder; a UID or UUID is longer."""

_BETWEEN: Final = re.compile(r"[\s^_]+")
_NO_NAME: Final = re.compile(r"x+|-\d+(?:\.0*)?")
"""Crosses, and negative numbers: pandas numbers the patients of rows without one -1."""


def is_unknown(text: str) -> bool:
    """Whether a value of a file means unknown: blank, "nan", "ANONYMOUS", "not available"."""
    return not text.strip() or _BETWEEN.sub(" ", text).strip().casefold() in _UNKNOWN


def is_placeholder(patient: str) -> bool:
    """Whether a text in the place of a patient ID names no patient: empty, "nan", "ANONYMOUS", "XXXX", "-1".

    A number from 0 on is a name, also 0: the films of a patient named so are counted (`case_rules.settle`).
    """
    if patient.isdigit() or len(patient) > _LONGEST:
        return False
    return is_unknown(patient) or _NO_NAME.fullmatch(patient.strip().casefold()) is not None


def with_patients(cases: Sequence[Case], file: Path, dataset: str) -> list[Case]:
    """The cases with the patients that `file` names; None where it says that it knows none.

    Raises DataError for a case that it does not have.
    """
    patients = read_patients(file)
    names = TableNames(patients)
    chosen = [names.of(case.case_id, case.image) for case in cases]
    missing = [case.image.name for case, name in zip(cases, chosen, strict=True) if name is None]
    if missing:
        raise DataError(
            f"{file} names no patient for {len(missing)} of {len(cases)} images of the dataset '{dataset}', the "
            f"first is {missing[0]}; add them, or leave the option patients out."
        )
    return [replace(case, patient_id=patients[str(name)] or None) for case, name in zip(cases, chosen, strict=True)]


def read_patients(file: Path) -> dict[str, str]:
    """Image -> patient, empty where the cell is empty: this image counts as one patient.

    Raises DataError for a file that cannot be read, or that names two patients of an image.
    """
    rows = read_rows(file)
    line, header = next(rows, (1, []))
    image = next((header.index(name) for name in IMAGE_COLUMNS if name in header), None)
    patient = next((header.index(name) for name in PATIENT_COLUMNS if name in header), None)
    index = next((header.index(name) for name in NIH_COLUMNS if name in header), None)
    if image is None or (patient is None and index is None):
        text = (
            f"the header needs one of {', '.join(IMAGE_COLUMNS)}, and one of {', '.join(PATIENT_COLUMNS)} or, for "
            f"images of NIH ChestX-ray14, {' or '.join(NIH_COLUMNS)}; it has {header_text(header)}"
        )
        wanted = [*(IMAGE_COLUMNS if image is None else ()), *(PATIENT_COLUMNS if patient is None else ())]
        hint = renames(wanted, header)
        raise fail(file, line, f"{text}; {hint}" if hint else text)
    patients: dict[str, str] = {}
    for line, cells in rows:
        if len(cells) != len(header):
            raise fail(file, line, f"{len(cells)} cells, the header has {len(header)}")
        if patient is not None:
            name, who = cells[image], cells[patient]
        else:
            name, who = cells[image], stem_of(cells[index or 0]).partition("_")[0]
        if not name:
            raise fail(file, line, f"{header[image]} is empty")
        before = patients.setdefault(name, who)
        if before and who and before != who:
            raise fail(file, line, f"'{name}' belongs to the patient '{who}', but to '{before}' before")
        patients[name] = before or who
    return patients


def read_indices(file: Path) -> dict[str, str]:
    """Image -> its name in NIH ChestX-ray14, of a file that `read_patients` can read; empty if it does not say them."""
    rows = read_rows(file)
    _, header = next(rows, (1, []))
    image = next((header.index(name) for name in IMAGE_COLUMNS if name in header), None)
    index = next((header.index(name) for name in NIH_COLUMNS if name in header), None)
    if image is None or index is None:
        return {}
    return {cells[image]: cells[index] for _, cells in rows if len(cells) == len(header) and cells[index]}
