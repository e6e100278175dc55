"""A DICOM object made of an answer, ready to be written or sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KINDS: Final = ("overlay", "mask", "report", "fractions", "map")
"""Kinds of objects (docs/dicom.md §1). Viewers show the first three."""

DEFAULT_KINDS: Final = KINDS[:3]

MANUFACTURER: Final = "xbench-fast"
"""Manufacturer of every object, by which it is known as one of ours."""


@dataclass(frozen=True)
class DicomObject:
    """One object about one film: its identity and its file as bytes (docs/dicom.md).

    kind: "overlay", "mask", "fractions", "map" or "report". study_uid is the film's; series_uid is one a kind and run;
    uid is derived from all that decides pixels and numbers, so the same answer gives the same uid. finding: None for
    a report of all findings.
    """

    kind: str
    finding: str | None
    class_uid: str
    study_uid: str
    series_uid: str
    uid: str
    content: bytes
