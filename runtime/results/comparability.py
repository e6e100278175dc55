"""Decides which results are comparable, by protocol, images, labels and regions.

Reports, comparisons of runs and studies use this rule. Cells of different protocols are not comparable: what shows
results has a block for each (`protocols_in`), what subtracts them refuses (`check_protocols`). Others are compared on
the rows that all of them have (`comparing.align.shared_rows`): of the same images (`image_identity`), with the same
labels and the same regions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ..host.protocols import PROTOCOLS
from .image_identity import image_names
from .load_rows import CellRows
from .selected_pairs import ScoredPairs


@dataclass(frozen=True)
class Basis:
    """Keys of the data behind the numbers of a cell, by class and (empty name) for all classes together.

    protocol: the cell is scored by it. pairs: keys of the pairs that count, with their regions; labels: of the known
    labels of readable images, empty for a cell without scores. Both are with the patient and the file of each image.
    Two cells of one dataset have equal keys if these data are equal, in any order and in any run.
    """

    protocol: str = ""
    pairs: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[str, bytes] = field(default_factory=dict)


def find_basis(cell: CellRows, scored: ScoredPairs) -> Basis:
    """The basis of a cell, one of `agreed_images`. Raises RunError when its regions cannot be read."""
    contents = cell.contents.tolist()
    image = np.array(
        [
            _digest("\0".join(map(str, (turn, case, cell.patients[at], *contents[at]))))
            for (case, turn), at in zip(image_names(cell), cell.case_of.tolist(), strict=True)
        ],
        np.uint64,
    )
    truth = cell.truth[scored.places]
    counted = [
        (name, image[scored.image_of[mine]], truth[mine])
        for index, name in enumerate(cell.findings)
        if (mine := scored.class_of == index).any()
    ]
    # The label is in the key too: a cell with another label of the same image has another key.
    labels = [
        (name, image[known], cell.labels[known, index].astype(np.uint64))
        for index, name in enumerate(cell.findings if cell.scored else ())
        if (known := cell.labels[:, index] >= 0).any()
    ]
    return Basis(scored.protocol.name, _keys(counted), _keys(labels))


def on_one_basis(bases: Sequence[Hashable], groups: Sequence[str] | None = None) -> list[bool]:
    """Which items rest on the basis of most items (of their group), of equally many on that of the first."""
    groups = [""] * len(bases) if groups is None else groups
    most: dict[str, Hashable] = {}
    for group in dict.fromkeys(groups):
        own = [basis for basis, of in zip(bases, groups, strict=True) if of == group]
        most[group] = max(own, key=own.count)
    return [basis == most[group] for basis, group in zip(bases, groups, strict=True)]


def pair_keys(cell: CellRows, scored: ScoredPairs) -> NDArray[np.uint64]:
    """uint64 [P]: a key of each pair that counts, equal in all cells for the same class, region, image and patient,
    whatever the file of the image is: a baseline reads none."""
    names = list(zip(image_names(cell), (cell.patients[case] for case in cell.case_of), strict=True))
    told = zip(scored.image_of.tolist(), scored.class_of.tolist(), cell.truth[scored.places].tolist(), strict=True)
    return np.array([_digest(f"{cell.findings[c]}\0{truth}\0{names[image]}") for image, c, truth in told], np.uint64)


def protocols_in(names: Iterable[str]) -> tuple[str, ...]:
    """The protocols among these names, each once, in the order of their blocks."""
    found = set(names)
    return (*(name for name in PROTOCOLS.own if name in found), *sorted(found.difference(PROTOCOLS.own)))


def other_protocols(protocol: str, protocols: Sequence[str]) -> tuple[str, ...]:
    """A sentence for the block of `protocol` on the other blocks, if there are any."""
    others = " and ".join(name for name in protocols if name != protocol)
    return (
        (
            f"protocol {protocol} only: what was evaluated by {others} stands apart, because numbers of different "
            "protocols are not comparable",
        )
        if others
        else ()
    )


def check_protocols(
    where: str, cells: Sequence[tuple[str, CellRows]], advice: str = "evaluate both with the same --protocol"
) -> None:
    """Raises RunError unless all cells were swept by the same protocol.

    where: what is compared, for the message; cells: with their names for the message; advice: what to do.
    """
    first, one = cells[0]
    for name, cell in cells[1:]:
        if cell.protocol != one.protocol:
            raise RunError(
                f"{where}: {first} was evaluated by protocol '{one.protocol}', {name} by '{cell.protocol}', and their "
                f"numbers cannot be compared; {advice}."
            )


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _keys(classes: Iterable[tuple[str, NDArray[np.uint64], NDArray[np.uint64]]]) -> dict[str, bytes]:
    """A hash of the images of each class with their values, in any order, and of all classes under the empty name."""
    found: dict[str, bytes] = {}
    for name, images, values in classes:
        order = np.lexsort((values, images))
        found[name] = hashlib.sha256(np.stack([images[order], values[order]]).astype("<u8").tobytes()).digest()
    parts = sorted(f"{name}\0".encode(errors="surrogatepass") + key for name, key in found.items())
    return {**found, "": hashlib.sha256(b"".join(parts)).digest()}
