"""Cases by column: what was read of their images, and their pairs of case and finding that have a region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..data.datasets.region_grid import ManyRegions
from ..data.images.contents import HASH_BYTES
from .decoded_case import DecodedCase

if TYPE_CHECKING:
    from ..data.datasets.dataset import Case


@dataclass(frozen=True, eq=False)
class CaseColumns:
    """What was read of the images of n cases, without pixels.

    readable: bool [n]; unread: place -> status and reason, of the others. images: uint8 [n, 16], hashes as
    `DecodedCase.image`, where `hashed`, bool [n]. faults: case, finding (places) and what is wrong with the region.
    """

    cases: Sequence[Case]
    readable: NDArray[np.bool_]
    images: NDArray[np.uint8]
    hashed: NDArray[np.bool_]
    faults: list[tuple[int, int, str]] = field(default_factory=list)
    unread: dict[int, tuple[str, str | None]] = field(default_factory=dict)

    @staticmethod
    def of(decoded: Sequence[DecodedCase], findings: Sequence[str]) -> CaseColumns:
        """The columns of cases that were decoded one by one, with the faults of `findings`."""
        count = len(decoded)
        columns = CaseColumns(
            [decoded_case.case for decoded_case in decoded],
            np.zeros(count, np.bool_),
            np.zeros((count, HASH_BYTES), np.uint8),
            np.zeros(count, np.bool_),
        )
        position = {name: at for at, name in enumerate(findings)}
        columns.put(list(enumerate(decoded)))
        for at, decoded_case in enumerate(decoded):
            columns.faults.extend(
                (at, position[name], fault) for name, fault in decoded_case.faults.items() if name in position
            )
        return columns

    def asked(self, all_findings: Sequence[str], findings: Sequence[str]) -> CaseColumns:
        """The columns with the faults of `findings` alone, some of `all_findings`, those of these columns."""
        if tuple(findings) == tuple(all_findings):
            return self
        place = {all_findings.index(name): at for at, name in enumerate(findings)}
        faults = sorted((case, place[at], fault) for case, at, fault in self.faults if at in place)
        return replace(self, faults=faults)

    def put(self, decoded: Sequence[tuple[int, DecodedCase]]) -> None:
        """Enters cases that were decoded one by one, with their places and without their faults."""
        for at, decoded_case in decoded:
            self.readable[at] = decoded_case.status == "ok"
            if decoded_case.status != "ok":
                self.unread[at] = decoded_case.status, decoded_case.reason
            if decoded_case.image is not None:
                self.images[at] = np.frombuffer(decoded_case.image, np.uint8)
                self.hashed[at] = True


@dataclass(frozen=True, eq=False)
class DrawnPairs:
    """The P pairs of B cases and findings that have a region, case by case, each in the order of the findings.

    of_case, of_finding: intp [P], places among the cases and `findings`. masks: packed bits uint8 [P, 224, 28]. frames:
    float64 [P, 4]. sub_pixel: bool [P]. cases; sizes: int32 [B, 2], of the native grids on which regions were drawn, 0
    where none was.
    """

    findings: Sequence[str]
    of_case: NDArray[np.intp]
    of_finding: NDArray[np.intp]
    masks: NDArray[np.uint8]
    frames: NDArray[np.float64]
    sub_pixel: NDArray[np.bool_]
    cases: Sequence[Case]
    sizes: NDArray[np.int32]

    @staticmethod
    def of(decoded: Sequence[DecodedCase], findings: Sequence[str]) -> DrawnPairs:
        """The pairs of these cases, which are readable, and findings."""
        regions = ManyRegions.of(
            [(at, (decoded_case.masks, decoded_case.sub_pixel, {})) for at, decoded_case in enumerate(decoded)],
            findings,
        )
        of_case, of_finding, masks, sub_pixel, _ = regions
        frames = np.array([decoded_case.frame for decoded_case in decoded], np.float64).reshape(-1, 4)
        sizes = np.array([decoded_case.size or (0, 0) for decoded_case in decoded], np.int32).reshape(-1, 2)
        cases = [decoded_case.case for decoded_case in decoded]
        return DrawnPairs(findings, of_case, of_finding, masks, frames[of_case], sub_pixel, cases, sizes)

    def asked(self, findings: Sequence[str]) -> DrawnPairs:
        """The pairs of some of the findings, in the order of these."""
        if tuple(findings) == tuple(self.findings):
            return self
        place = np.full(len(self.findings), -1, np.intp)
        place[[self.findings.index(name) for name in findings]] = np.arange(len(findings))
        of_finding = place[self.of_finding]
        kept = np.flatnonzero(of_finding >= 0)
        kept = kept[np.lexsort((of_finding[kept], self.of_case[kept]))]
        return DrawnPairs(
            findings,
            self.of_case[kept],
            of_finding[kept],
            self.masks[kept],
            self.frames[kept],
            self.sub_pixel[kept],
            self.cases,
            self.sizes,
        )

    def part(self, start: int, stop: int) -> DrawnPairs:
        """The pairs of the cases from `start` to before `stop`."""
        here = slice(*np.searchsorted(self.of_case, (start, stop)).tolist())
        return DrawnPairs(
            self.findings,
            self.of_case[here] - start,
            self.of_finding[here],
            self.masks[here],
            self.frames[here],
            self.sub_pixel[here],
            self.cases[start:stop],
            self.sizes[start:stop],
        )

    def __len__(self) -> int:
        return len(self.of_case)
