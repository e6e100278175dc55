"""Three readers of an image, each left out in turn: two give the truth, the third is scored (docs/trust.md §6.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..case import patient_of_image
from ..dataset import Case, Region
from ..reader_consensus import Corners, merge
from .reader_marks import ReaderBoxes

LEAVE_ONE_OUT: Final = "leave-one-out"
READERS: Final = 3

_ByReader = Mapping[str, Mapping[str, Mapping[Corners, None]]]
"""Class -> reader -> boxes."""


class LeftOut:
    """The boxes of the reader whom each case leaves out. A case is called IMAGE~READER."""

    def __init__(self) -> None:
        self._boxes: dict[str, dict[str, Mapping[Corners, None]]] = {}

    def cases(
        self, image: Case, classes: Sequence[str], readers: Iterable[str], boxes: _ByReader, exact: bool
    ) -> Iterator[Case]:
        """The image without each of its readers. A class counts where both others name it; its region is the union of
        their boxes, `exact` as of `Boxes`. All are of one patient."""
        for reader in sorted(readers):
            regions: dict[str, Region] = {}
            for finding in classes:
                others = {name: own for name, own in boxes.get(finding, {}).items() if name != reader}
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
            own = self._boxes[case.case_id]
            for finding in classes:
                boxes = sorted(own.get(finding, ()), key=_area, reverse=True)
                yield {"case": case.case_id, "finding": finding, "boxes": [list(box) for box in boxes]}


def _area(box: Corners) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
