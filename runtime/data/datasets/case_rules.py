"""Rules that hold for the cases of every reader, because `Dataset.cases` applies them (docs/datasets.md §0.1)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ....engines.errors import DataError
from .case import Case, patient_of_image
from .file_rows import Note
from .patients import is_placeholder
from .region_boxes import distinct
from .source.spelling import spelling_key
from .uncertain_labels import decided

_MOST_OF_ONE: Final = 0.5
"""The share of the images above which one patient is more likely a placeholder than a patient."""
_FEW: Final = 4
"""Below this number of images the share says nothing."""


@dataclass(frozen=True)
class Settled:
    """The cases and notes of a dataset after all rules. uncertain: number of labels that the policy decided."""

    cases: tuple[Case, ...]
    notes: tuple[Note, ...]
    uncertain: int


@dataclass(frozen=True)
class CaseRules:
    """What the rules need to know of a dataset. uncertain: one of `POLICIES`; cases_per_image: how many cases may name
    one image."""

    dataset: str
    classes: Sequence[str]
    uncertain: str
    cases_per_image: int

    def settle(self, cases: Sequence[Case], notes: list[Note], file: Path) -> Settled:
        """The cases as every evaluation takes them; changes and suspicious values are added to `notes`.

        A region that is listed twice counts once. An uncertain label becomes what the policy says. A placeholder is no
        patient. Noted as they are: images that too many cases name, a patient of most images, and classes that differ
        in spelling alone. file: of the dataset, for the notes. Raises DataError for two cases of one id.
        """
        seen: set[str] = set()
        for case in cases:
            if case.case_id in seen:
                raise DataError(
                    f"The dataset '{self.dataset}' yields the case '{case.case_id}' twice; give it one id per image."
                )
            seen.add(case.case_id)
        cases = [_without_duplicates(case, notes, file) for case in cases]
        cases, uncertain = decided(cases, self.uncertain, notes, file)
        cases = _without_placeholders(cases, notes, file)
        images = len({case.image for case in cases})
        if images < len(cases):
            cases = _one_of_each_image(cases)
            _note_images(cases, notes, self.cases_per_image, file)
        _note_most_of_one(cases, images, notes, file)
        _note_spellings(self.classes, notes, file)
        return Settled(tuple(cases), tuple(notes), uncertain)


def _without_duplicates(case: Case, notes: list[Note], file: Path) -> Case:
    regions = dict(case.regions)
    for finding, region in case.regions.items():
        regions[finding], count = distinct(region)
        if count:
            text = f"'{case.case_id}' has regions of '{finding}' that were listed before: {count}; each counts once"
            notes.append(Note("duplicate", case.case_id, file, case.rows[0] if case.rows else None, text))
    return case if regions == case.regions else replace(case, regions=regions)


def _without_placeholders(cases: Sequence[Case], notes: list[Note], file: Path) -> list[Case]:
    placeholders = Counter(c.patient_id for c in cases if c.patient_id is not None and is_placeholder(c.patient_id))
    for name, count in placeholders.items():
        text = f"'{name}' is given as the patient of {count} images but names none; each of them counts as one patient"
        notes.append(Note("placeholder_patient", str(name), file, None, text))
    return [replace(case, patient_id=None) if case.patient_id in placeholders else case for case in cases]


def _note_most_of_one(cases: Sequence[Case], images: int, notes: list[Note], file: Path) -> None:
    counts = Counter(case.patient for case in cases)
    if images < len(cases):
        counts = Counter(patient for patient, _ in {(case.patient, case.image) for case in cases})
    name, most = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if images >= _FEW and most > _MOST_OF_ONE * images:
        text = (
            f"the patient '{name}' has {most} of {images} images; if this name means several patients, intervals "
            "and p values mean nothing"
        )
        notes.append(Note("one_patient", name, file, None, text))


def _one_of_each_image(cases: Sequence[Case]) -> list[Case]:
    """The cases of one image are of one patient, whether its name is known or not."""
    first: dict[Path, str] = {}
    several = {case.image for case in cases if first.setdefault(case.image, case.case_id) != case.case_id}
    return [
        replace(case, patient_id=patient_of_image(first[case.image]))
        if case.patient_id is None and case.image in several
        else case
        for case in cases
    ]


def _note_images(cases: Sequence[Case], notes: list[Note], cases_per_image: int, file: Path) -> None:
    of_image: dict[Path, list[Case]] = defaultdict(list)
    for case in cases:
        of_image[case.image].append(case)
    for image, group in of_image.items():
        if len(group) > cases_per_image:
            named = ", ".join(f"'{case.case_id}'" for case in group[:3]) + " ..." * (len(group) > 3)
            text = f"the cases {named} name one image file, {image.name}, which so counts {len(group)} times"
            if any((case.labels, case.regions) != (group[0].labels, group[0].regions) for case in group):
                text += "; their annotations differ, so put them together under one id, or name each image's own file"
            row = group[1].rows[0] if group[1].rows else None
            notes.append(Note("same_image", group[0].case_id, file, row, text))


def _note_spellings(classes: Sequence[str], notes: list[Note], file: Path) -> None:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        alike[spelling_key(name)].append(name)
    for names in alike.values():
        if len(names) > 1:
            text = f"the classes {' and '.join(map(repr, names))} differ in spelling alone; give them one name"
            notes.append(Note("alike_classes", names[0], file, None, text))
