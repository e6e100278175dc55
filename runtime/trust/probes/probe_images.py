"""The images that are asked about: which ones, and their pixels and regions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.sweep.masks import GRID, unpack_masks
from ...evaluation.decoded_blocks import Block, CaseReader, read_ahead

if TYPE_CHECKING:
    from ....metrics_gpu.sweep.maps import Frame
    from ...data.datasets.dataset import Case

Row = Mapping[str, Any]
"""A row of a probe: values by column, all of `IDENTITY` among them."""


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """A readable image with a region.

    pixels: uint8 [1, S, S], the model input. findings: the P findings with a region that is not empty. regions: bool
    [P, 224, 224], on the evaluation grid. frame: (y0, x0, y1, x1), the part of the image that the model input covers.
    """

    case_id: str
    patient_id: str
    image_hash: bytes | None
    pixels: NDArray[np.uint8]
    findings: tuple[str, ...]
    regions: NDArray[np.bool_]
    frame: Frame

    @property
    def pairs(self) -> list[Row]:
        """The columns that identify each of its P pairs."""
        image = {"case_id": self.case_id, "patient_id": self.patient_id, "status": "ok", "image_hash": self.image_hash}
        return [{**image, "finding": name} for name in self.findings]


def pair_rows(pairs: Sequence[Row], facts: Row, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> list[Row]:
    """A row for each of P pairs: its identity, the facts that all of them share, and its value of each column [P]."""
    return [
        {**pair, **facts, **{name: values[at] for name, values in columns.items()}} for at, pair in enumerate(pairs)
    ]


@dataclass(frozen=True, eq=False)
class ImageChunk:
    """Images of some cases; others: the rows of those that are missing, unreadable, or without a region after all."""

    images: list[PreparedImage]
    others: list[Row]


def pairs_of(case: Case, findings: Collection[str]) -> int:
    """How many of the findings have a region in this case."""
    return sum(name in findings for name in case.regions)


def choose_cases(cases: Sequence[Case], findings: Collection[str], pairs: int, seed: int) -> list[Case]:
    """Cases with a region of one of the findings, drawn at random until they have that many pairs, in their order.

    More pairs add cases and take none away (Philox, keyed by the seed).
    """
    having = [place for place, case in enumerate(cases) if pairs_of(case, findings)]
    drawn = np.argsort(np.random.Philox(key=seed).random_raw(len(having)), kind="stable")
    drawn_pairs, chosen = 0, []
    for at in drawn.tolist():
        if drawn_pairs >= pairs:
            break
        chosen.append(having[at])
        drawn_pairs += pairs_of(cases[having[at]], findings)
    return [cases[place] for place in sorted(chosen)]


def read_chunks(reader: CaseReader, chunks: Sequence[Sequence[Case]], batch: int, workers: int) -> Iterator[ImageChunk]:
    """The images of each chunk, read in advance by `workers` threads."""
    with closing(read_ahead(reader, chunks, batch, workers)) as blocks:
        for cases in chunks:
            chunk = ImageChunk([], [])
            left = len(cases)
            while left:
                block = next(blocks)
                left -= len(block.columns.cases)
                _add_block(chunk, block)
            yield chunk


def _add_block(chunk: ImageChunk, block: Block) -> None:
    """Adds each case of a block: its image, or why it has none."""
    columns, pairs = block.columns, block.pairs
    hashes = {
        case.case_id: value.tobytes() if hashed else None
        for case, value, hashed in zip(columns.cases, columns.images, columns.hashed.tolist(), strict=True)
    }
    for at, case in enumerate(pairs.cases):
        of_case = np.flatnonzero(pairs.of_case == at)
        if len(of_case):
            y0, x0, y1, x1 = pairs.frames[of_case[0]].tolist()
            image = PreparedImage(
                case.case_id,
                case.patient,
                hashes[case.case_id],
                block.pixels[at].copy(),  # the memory of a block is used again
                tuple(pairs.findings[place] for place in pairs.of_finding[of_case].tolist()),
                unpack_masks(pairs.masks[of_case], GRID[1]),
                (y0, x0, y1, x1),
            )
            chunk.images.append(image)
    with_region = {pairs.cases[at].case_id for at in pairs.of_case.tolist()}
    for at, case in enumerate(columns.cases):
        if case.case_id not in with_region:
            status = columns.unread[at][0] if at in columns.unread else "no region"
            row = {"case_id": case.case_id, "patient_id": case.patient, "status": status}
            chunk.others.append({**row, "image_hash": hashes[case.case_id]})
