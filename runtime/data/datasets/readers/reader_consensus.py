"""What several readers drew for one class: one region of all (docs/published-datasets.md §7), or each reader left out
in turn (docs/subgroups.md §6.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from .....engines.errors import DataError
from ..case import UNCERTAIN, patient_of_image
from ..dataset import Case, Region
from ..region_boxes import Boxes
from ..region_shapes import AtLeast
from .reader_marks import ReaderBoxes

LEAVE_ONE_OUT: Final = "leave-one-out"
READERS: Final = 3
RULES = ("majority", "any", "pixels", "fused")
Corners = tuple[float, float, float, float]
_ByReader = Mapping[str, Mapping[str, Mapping[Corners, None]]]
"""Class -> reader -> boxes."""

_OVERLAP = 0.5  # intersection over union above which two boxes are the same finding
_MAX_FUSED = 1_000  # boxes; fusing compares each with the mean of every group, so its cost grows with the square


def needed(readers: int) -> int:
    """The smallest number that is more than half of `readers`: 2 of 3, 2 of 2, 1 of 1."""
    return readers // 2 + 1


def majority(votes: Collection[int]) -> int:
    """The label of one class in one image by the labels of its readers: 1 or 0 if more than half of them say so.

    Where the answer hangs on readers who were not sure (`UNCERTAIN`), it is `UNCERTAIN`. A tie of sure readers is 0.
    """
    positives, unsure, least = [*votes].count(1), [*votes].count(UNCERTAIN), needed(len(votes))
    return 1 if positives >= least else UNCERTAIN if positives + unsure >= least else 0


def merge(
    boxes: Mapping[str, Mapping[Corners, None]], rule: str, readers: int, *, exact: bool = False
) -> Region | None:
    """The region of one class in one image; None if the rule gives no region.

    boxes: reader -> boxes. readers: how many read the image. exact: see `Boxes`. rule: `majority`, the union of
    all boxes if more than half of the readers name the class; `any`, the union in any case; `pixels`, the pixels that
    more than half of the readers cover; `fused`, the union of averaged boxes: each box joins the mean box it overlaps
    most, if their intersection over union is above 0.5, and mean boxes of more than half of the readers are kept.
    Raises DataError when there are too many boxes to fuse.
    """
    least = needed(readers)
    everything = Boxes(tuple(box for drawn in boxes.values() for box in drawn), exact)
    if rule == "any":
        return everything
    if len(boxes) < least:
        return None
    if rule == "majority" or least == 1:
        return everything
    if rule == "pixels":
        return AtLeast(tuple(Boxes(tuple(drawn), exact) for drawn in boxes.values()), least)
    return _fused(boxes, least, exact)


def _fused(boxes: Mapping[str, Mapping[Corners, None]], least: int, exact: bool) -> Boxes | None:
    flat = [(reader, np.array(box)) for reader, drawn in boxes.items() for box in drawn]
    if len(flat) > _MAX_FUSED:
        raise DataError(f"One image has {len(flat)} boxes of one class, too many to fuse; use another rule of readers.")
    groups: list[list[tuple[str, np.ndarray]]] = []
    means = np.zeros((len(flat), 4))
    for reader, box in flat:
        overlap = _overlap(means[: len(groups)], box)
        best = int(overlap.argmax()) if groups else 0
        if not groups or overlap[best] <= _OVERLAP:
            best = len(groups)
            groups.append([])
        groups[best].append((reader, box))
        means[best] = np.mean([member for _, member in groups[best]], axis=0)
    kept = [means[i] for i, group in enumerate(groups) if len({reader for reader, _ in group}) >= least]
    return Boxes(tuple((float(b[0]), float(b[1]), float(b[2]), float(b[3])) for b in kept), exact) if kept else None


def _overlap(many: np.ndarray, one: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes [n, 4] with one box [4]; 0 where both have no area."""
    sides = np.clip(np.minimum(many[:, 2:], one[2:]) - np.maximum(many[:, :2], one[:2]), 0, None)
    common = sides.prod(axis=1)
    union = (many[:, 2:] - many[:, :2]).prod(axis=1) + (one[2:] - one[:2]).prod() - common
    return np.asarray(np.divide(common, union, out=np.zeros(len(many)), where=union > 0))


class LeftOut:
    """The boxes of the reader whom each case leaves out: two readers give the truth, the third is scored.

    A case is called IMAGE~READER.
    """

    def __init__(self) -> None:
        self._boxes: dict[str, dict[str, Mapping[Corners, None]]] = {}

    def cases(
        self, image: Case, classes: Sequence[str], readers: Iterable[str], boxes: _ByReader, exact: bool
    ) -> Iterator[Case]:
        """The image without each of its readers. A class counts where both others name it; its region is the union of
        their boxes, for `exact` see `Boxes`. All are of one patient."""
        for reader in sorted(readers):
            regions: dict[str, Region] = {}
            for finding in classes:
                others = {name: drawn for name, drawn in boxes.get(finding, {}).items() if name != reader}
                region = merge(others, "majority", READERS - 1, exact=exact)
                if region is not None:
                    regions[finding] = region
            labels = {finding: int(finding in regions) for finding in classes}
            name = f"{image.case_id}~{reader}"
            self._boxes[name] = {finding: named[reader] for finding, named in boxes.items() if reader in named}
            patient = patient_of_image(image.case_id)
            yield replace(image, case_id=name, labels=labels, regions=regions, patient_id=patient)

    def marks(self, cases: Iterable[Case], classes: Sequence[str], *, named: bool) -> ReaderBoxes:
        """The boxes as answers; named: whether the dataset names the patients."""
        remark = "the three cases of an image count as one patient, because no patients are named (option patients)"
        return ReaderBoxes(self._lines(cases, classes), "pixels", left_out=True, remarks=() if named else (remark,))

    def _lines(self, cases: Iterable[Case], classes: Sequence[str]) -> Iterator[dict[str, Any]]:
        """A line for every case and class, since each reader looked for all; its largest box is the first."""
        for case in cases:
            boxes_of_case = self._boxes[case.case_id]
            for finding in classes:
                boxes = sorted(
                    boxes_of_case.get(finding, ()), key=lambda box: (box[2] - box[0]) * (box[3] - box[1]), reverse=True
                )
                yield {"case": case.case_id, "finding": finding, "boxes": [list(box) for box in boxes]}
