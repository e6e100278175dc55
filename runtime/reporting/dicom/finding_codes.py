"""Codes of findings (docs/dicom.md §5): those that pydicom's copy of the standard's dictionary holds, else private."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

PRIVATE: Final = "99XBENCH"
"""The designator of codes of this project. A code that nobody verified would be worse than a private one."""

VERIFIED: Final[Mapping[str, tuple[str, str, str]]] = {
    "effusion": ("60046008", "SCT", "Pleural effusion"),
    "pleural effusion": ("60046008", "SCT", "Pleural effusion"),
    "pneumothorax": ("36118008", "SCT", "Pneumothorax"),
    "nodule": ("27925004", "SCT", "Nodule"),
    "mass": ("4147007", "SCT", "Mass"),
    "fibrosis": ("112674009", "SCT", "Fibrosis"),
    "edema": ("19242006", "SCT", "Pulmonary edema"),
    "pulmonary edema": ("19242006", "SCT", "Pulmonary edema"),
    "infiltrate": ("112121", "DCM", "Infiltrate"),
    "infiltration": ("112121", "DCM", "Infiltrate"),
    "opacity": ("112001", "DCM", "Opacity"),
    "lung opacity": ("112001", "DCM", "Opacity"),
}
"""A dataset's word in lower case -> code, scheme and meaning."""


def finding_code(finding: str) -> Any:
    """The code of a finding, of pydicom's `Code`."""
    from pydicom.sr.coding import Code

    code = VERIFIED.get(finding.lower().replace("_", " "))
    return Code(*code) if code else private_code(finding)


def private_code(meaning: str) -> Any:
    """A code of this project; its value follows from the words, so equal words have equal codes."""
    from pydicom.sr.coding import Code

    return Code(f"X{hashlib.sha256(meaning.encode()).hexdigest()[:12].upper()}", PRIVATE, long_text(meaning))


def long_text(text: str) -> str:
    """A text for the value representation LO: at most 64 characters, without backslashes and control characters."""
    return _limited(text, 64)


def short_text(text: str) -> str:
    """A text for the value representation SH: at most 16 characters."""
    return _limited(text, 16)


def _limited(text: str, most: int) -> str:
    clean = "".join(character if character.isprintable() and character != "\\" else " " for character in text)
    return clean.strip()[:most].strip() or "-"
