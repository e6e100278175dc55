"""What a format says about one image -> a case, by the classes that the dataset has (docs/formats.md §9.3)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..case import UNCERTAIN, Case, Region
from ..file_rows import Note, fail
from ..region_boxes import Boxes
from ..region_shapes import union
from ..source.spelling import Spellings
from .empty_class_names import says_nothing
from .region_marks import CROWD
from .shapes import Annotated, Shape


class CaseRule(NamedTuple):
    """classes: of the dataset. nothing: names that mean that nothing was found. split: the name of the split."""

    classes: tuple[str, ...]
    nothing: Collection[str]
    split: str


def case_of(item: Annotated, image: Path, rule: CaseRule, notes: list[Note]) -> Case:
    """The case of an annotated image. A shape that is listed twice counts once, and is noted. Raises DataError."""
    drawn: dict[str, list[Region]] = {}
    named: set[str] = set()
    nothing: list[Shape] = []
    seen: set[tuple[str, Region]] = set()
    for shape in item.shapes:
        if shape.region is not None and (shape.finding, shape.region) in seen:
            text = f"this region of '{shape.finding}' was listed before"
            notes.append(Note("duplicate", item.case_id, item.file, shape.row, text))
            continue
        if shape.region is not None:
            seen.add((shape.finding, shape.region))
        if shape.finding in rule.classes:
            named.add(shape.finding)
            if shape.region is not None:
                drawn.setdefault(shape.finding, []).append(_marked(shape.region, shape.mark))
        elif says_nothing(shape.finding, rule.nothing):
            nothing.append(shape)
    for shape in nothing:
        text = f"'{shape.finding}' means that nothing was found, "
        if named:
            text += f"but the image has '{min(named)}' too"
            notes.append(Note("disagreement", item.case_id, item.file, shape.row, text))
        elif shape.region is not None:
            text += "so its region is not used"
            notes.append(Note("no_finding", item.case_id, item.file, shape.row, text))
    unread = {shape.finding for shape in item.shapes if shape.unread}
    if "" in unread:  # it can belong to any class: none that is not named is known to be absent, no region is whole
        item.labels = item.labels if item.labels is not None else {}
        unread |= set(rule.classes)
    drawn = {finding: regions for finding, regions in drawn.items() if finding not in unread}
    return Case(
        case_id=item.case_id,
        image=image,
        labels=_settled_labels(item, rule.classes, named, notes),
        regions={finding: union(drawn[finding]) for finding in rule.classes if finding in drawn},
        split=rule.split,
        patient_id=item.patient,
        rows=item.rows,
        size=item.size,
    )


def _marked(region: Region, mark: str) -> Region:
    """The region with the mark of its boxes that the scorer `coco` asks for."""
    if mark == CROWD and isinstance(region, Boxes):
        return replace(region, crowd=frozenset(region.corners))
    return region


def one_label_each(item: Annotated, spellings: Spellings) -> dict[str, int | None]:
    """The labels by the one spelling of each class. Raises DataError where two spellings have different labels."""
    labels: dict[str, int | None] = {}
    for name, label in (item.labels or {}).items():
        finding = spellings.of(name)
        if labels.setdefault(finding, label) != label:
            raise fail(item.file, item.row, f"'{name}' and '{finding}' are one class, but have different labels")
    return labels


def _settled_labels(
    item: Annotated, classes: Collection[str], drawn: Collection[str], notes: list[Note]
) -> dict[str, int | None]:
    """The label of every class: as stated, else by the classes that are drawn. Raises DataError where both differ."""
    if item.labels is None:
        return {finding: int(finding in drawn) for finding in classes}
    labels: dict[str, int | None] = {}
    for finding in classes:
        labels[finding] = item.labels.get(finding, 1 if finding in drawn else None)
        if labels[finding] == 0 and finding in drawn:
            text = f"the label of '{finding}' is 0, but the image has a region of it"
            raise fail(item.file, item.row, text)
        if labels[finding] == UNCERTAIN and finding in drawn:
            text = f"the label of '{finding}' is uncertain, but the image has a region of it; it is positive"
            notes.append(Note("disagreement", item.case_id, item.file, item.row, text))
            labels[finding] = 1
    return labels
