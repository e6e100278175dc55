"""How many patients the images of a dataset are of: intervals and tests rest on their number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..case import Case


@dataclass(frozen=True)
class PatientCounts:
    """images: distinct image files. patients: those that are resampled; an image without a name of one is its own.

    unnamed: images whose patient is not named. largest, most: the named patient with most images, and their number;
    empty and 0 without a name.
    """

    images: int
    patients: int
    unnamed: int
    largest: str
    most: int

    @property
    def sentence(self) -> str:
        """The counts in words, for the line before an evaluation."""
        text = f"{_number(self.images, 'image')} of {_number(self.patients, 'patient')}"
        if self.unnamed == self.images:
            return f"{text}: no patient is named, so each image counts as one"
        if self.unnamed:
            text += f", of which {self.unnamed} are images without a named patient"
        return f"{text}; most of one patient: {self.most}" if self.most > 1 else text


def count_patients(cases: Iterable[Case]) -> PatientCounts:
    """The patients of these cases."""
    images: set[Path] = set()
    named: dict[str, set[Path]] = defaultdict(set)
    patients: set[str] = set()
    for case in cases:
        images.add(case.image)
        patients.add(case.patient)
        if case.is_named:
            named[case.patient].add(case.image)
    unnamed = len(images.difference(*named.values())) if named else len(images)
    largest = max(named, key=lambda name: len(named[name]), default="")
    return PatientCounts(len(images), len(patients), unnamed, largest, len(named.get(largest, ())))


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
