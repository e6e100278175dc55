"""Marks by which annotation tools say that a region shall not count, or counts apart (docs/datasets.md §0.1)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

from ..file_rows import Note
from ..source.csv_cells import BLANKS
from .shapes import Annotated

CROWD: Final = "iscrowd"
"""The mark of COCO: its own average precision ignores the region (docs/detection.md §3)."""

_MARKS: Final = {
    "iscrowd": CROWD, "crowd": CROWD, "ignore": "ignore", "ignored": "ignore", "isignore": "ignore",
    "isgroupof": "isgroupof", "difficult": "difficult", "isdifficult": "difficult", "occluded": "occluded",
    "isoccluded": "occluded", "truncated": "truncated", "istruncated": "truncated",
}  # fmt: skip
"""The letters of a key -> the mark: of COCO, its relatives, Open Images, Pascal VOC, CVAT and KITTI."""

_ORDER: Final = tuple(dict.fromkeys(_MARKS.values()))
_UNSET: Final = BLANKS | {"false", "f", "no", "n", "-"}


@lru_cache(4096)
def letters(key: str) -> str:
    """The letters of a key or column in lower case: "IsGroupOf" and "is_group_of" are one."""
    return re.sub(r"[\W\d_]", "", key.casefold())


def is_set(mark: object) -> bool:
    """Whether a mark is set: 1 or true, as a number, a truth value or a text."""
    if mark is None or isinstance(mark, bool | list | dict):
        return mark is True
    text = str(mark).strip().lower()
    if text in _UNSET:
        return False
    try:
        return float(text) != 0
    except ValueError:
        return True


def mark_of(*attributes: Mapping[str, object]) -> str:
    """The mark that keys set, the first in the order iscrowd, ignore, isgroupof, difficult, ...; empty: none is set."""
    marks = {
        _MARKS[letters(key)]
        for values in attributes
        for key, value in values.items()
        if value and letters(key) in _MARKS and is_set(value)
    }
    return min(marks, key=_ORDER.index, default="")


def note_marks(items: Iterable[Annotated], classes: Collection[str], notes: list[Note]) -> None:
    """Notes how many regions of `classes` are marked, each once; they count as regions all the same."""
    marked: dict[str, list[Annotated]] = defaultdict(list)
    for item in items:
        regions: set[object] = set()
        for shape in item.shapes:
            if shape.mark and shape.region is not None and shape.finding in classes:
                same = (shape.finding, shape.region)
                if same not in regions:
                    marked[shape.mark].append(item)
                regions.add(same)
    if marked:
        counts = [
            f"{mark}: {len(marked[mark])} in {len({item.case_id for item in marked[mark]})} images"
            for mark in sorted(marked, key=_ORDER.index)
        ]
        text = f"regions marked {', '.join(counts)}; they count as regions"
        first = next(iter(marked.values()))[0]
        notes.append(Note("crowd", ", ".join(sorted(marked, key=_ORDER.index)), first.file, None, text))
