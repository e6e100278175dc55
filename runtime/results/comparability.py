"""Decides which results are comparable, by protocol, images, labels and regions, and finds the rows that they share.

Reports, comparisons of runs and studies use this rule. Cells of different protocols are not comparable: what shows
results has a block for each (`protocols_in`), what subtracts them refuses (`check_protocols`). Others are compared on
the rows that all of them have (`shared_rows`), with the same labels and the same regions. An image is identified by its
case and the case's occurrence number, because a list can contain an image more than once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...metrics_gpu.grounding.protocols import PROTOCOLS
from .load import CellRows
from .pairs import ScoredPairs

__all__ = [
    "Basis",
    "SharedRows",
    "check_protocols",
    "find_basis",
    "image_names",
    "on_one_basis",
    "other_protocols",
    "pair_keys",
    "protocols_in",
    "shared_rows",
]

Index = NDArray[np.intp]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Basis:
    """Keys of the data behind the numbers of a cell, by class and (empty name) for all classes together.

    protocol: the cell is scored by it. pairs: keys of the pairs that count, with their regions; labels: of the known
    labels of readable images, empty for a cell without scores. Two cells of one dataset have equal keys if these data
    are equal, in any order and in any run.
    """

    protocol: str = ""
    pairs: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[str, bytes] = field(default_factory=dict)


def find_basis(cell: CellRows, scored: ScoredPairs) -> Basis:
    """The basis of a cell. Raises RunError when its regions cannot be read."""
    image = np.array([_digest(f"{turn}\0{case}") for case, turn in image_names(cell)], np.uint64)
    truth = cell.truth[scored.places]
    counted = {
        name: _key(image[scored.image_of[mine]], truth[mine])
        for index, name in enumerate(cell.findings)
        if (mine := scored.class_of == index).any()
    }
    # The label is in the key too: a cell with another label of the same image has another key.
    labels = {
        name: _key(image[known], cell.labels[known, index].astype(np.uint64))
        for index, name in enumerate(cell.findings if cell.scored else ())
        if (known := cell.labels[:, index] >= 0).any()
    }
    return Basis(scored.protocol.name, _with_whole(counted), _with_whole(labels))


def on_one_basis(bases: Sequence[Hashable], groups: Sequence[str] | None = None) -> list[bool]:
    """Which items rest on the basis of most items (of their group), of equally many on that of the first."""
    groups = [""] * len(bases) if groups is None else groups
    most: dict[str, Hashable] = {}
    for group in dict.fromkeys(groups):
        own = [basis for basis, of in zip(bases, groups, strict=True) if of == group]
        most[group] = max(own, key=own.count)
    return [basis == most[group] for basis, group in zip(bases, groups, strict=True)]


def pair_keys(cell: CellRows, scored: ScoredPairs) -> NDArray[np.uint64]:
    """uint64 [P]: a key of each pair that counts, equal in all cells for the same image, class and region."""
    names = image_names(cell)
    told = zip(scored.image_of.tolist(), scored.class_of.tolist(), cell.truth[scored.places].tolist(), strict=True)
    return np.array([_digest(f"{cell.findings[c]}\0{truth}\0{names[image]}") for image, c, truth in told], np.uint64)


def image_names(cell: CellRows) -> list[tuple[str, int]]:
    """(case, occurrence number of the case) of each readable image."""
    seen: dict[str, int] = {}
    numbered = []
    for case in cell.case_ids:
        seen[case] = seen.get(case, -1) + 1
        numbered.append((case, seen[case]))
    return [numbered[index] for index in cell.case_of]


def protocols_in(names: Iterable[str]) -> tuple[str, ...]:
    """The protocols among these names, each once, in the order of their blocks."""
    found = set(names)
    return tuple(name for name in PROTOCOLS if name in found)


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


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The N images and C findings that all given cells of a dataset have, and the P pairs that count in all of them.

    For each cell, images, classes, pairs: places of the shared ones in the cell; alone: (shared image, shared finding)
    of the pairs that count in it, but not in all cells. cases: of each image; patients: of each image, as the first
    cell names them. labels: int8 [N, C], -1 also where two cells disagree. image_of, class_of: intp [P].
    other_labels: bool [N, C], where labels differ between cells; other_regions: (shared image, shared finding) of the
    pairs that count in all cells with different regions, and are not shared for that reason: the ground truth changed.
    """

    cases: tuple[str, ...]
    patients: tuple[str, ...]
    findings: tuple[str, ...]
    labels: NDArray[np.int8]
    image_of: Index
    class_of: Index
    images: tuple[Index, ...]
    classes: tuple[Index, ...]
    pairs: tuple[Index, ...]
    alone: tuple[tuple[Pair, ...], ...]
    other_labels: NDArray[np.bool_]
    other_regions: tuple[Pair, ...]

    def names(self, places: Iterable[Sequence[int]] | NDArray[np.intp]) -> tuple[tuple[str, str], ...]:
        """(case, finding) for given (shared image, shared finding)."""
        return tuple((self.cases[image], self.findings[c]) for image, c in places)

    def pair_names(self, pairs: NDArray[np.intp]) -> tuple[tuple[str, str], ...]:
        """(case, finding) of the given shared pairs."""
        return self.names(zip(self.image_of[pairs].tolist(), self.class_of[pairs].tolist(), strict=True))

    def cut(self, place: int, cell: CellRows, scored: ScoredPairs) -> tuple[CellRows, ScoredPairs]:
        """The shared rows of the cell at `place` among the cells, one case for each image."""
        images, classes, pairs = self.images[place], self.classes[place], self.pairs[place]
        counts, truth = scored.counts.take(pairs), cell.truth[scored.places[pairs]]
        part = replace(
            cell,
            cases=len(images),
            missing=0,
            unreadable=0,
            findings=self.findings,
            case_ids=self.cases,
            patients=self.patients,
            positive=cell.positive[np.ix_(cell.case_of[images], classes)],
            case_of=np.arange(len(images)),
            labels=self.labels,
            logits=cell.logits[np.ix_(images, classes)],
            negatives=cell.negatives[np.ix_(images, classes)],
            counts=counts,
            image_of=self.image_of,
            class_of=self.class_of,
            sub_pixel=np.zeros(len(counts), np.bool_),  # not used for a part
            read_truth=lambda: truth,
        )
        own = replace(scored.take(pairs), image_of=self.image_of, class_of=self.class_of, places=np.arange(len(counts)))
        return part, own

    def is_whole(self, place: int, cell: CellRows, scored: ScoredPairs) -> bool:
        """Whether `cut` leaves nothing out, so that the numbers of the cell are those of the shared rows."""
        if self.labels.shape != cell.labels.shape or len(self.pairs[place]) != len(scored.counts):
            return False
        return bool((self.labels == cell.labels[np.ix_(self.images[place], self.classes[place])]).all())


def shared_rows(cells: Sequence[tuple[CellRows, ScoredPairs]]) -> SharedRows:
    """The rows that cells of one dataset have in common, in the order of the first."""
    first = cells[0][0]
    images = _common(*(image_names(cell) for cell, _ in cells))
    classes = _common(*(cell.findings for cell, _ in cells))
    keys = [_pair_keys(scored, i, c) for (_, scored), i, c in zip(cells, images, classes, strict=True)]
    pairs = _common(*keys)
    truth = [cell.truth[scored.places[own]] for (cell, scored), own in zip(cells, pairs, strict=True)]
    same = np.all([found == truth[0] for found in truth], axis=0)
    met = np.array([keys[0][place] for place in pairs[0]], np.intp).reshape(-1, 2)
    at, shared = met[same], set(map(tuple, met.tolist()))
    labels = [cell.labels[np.ix_(i, c)] for (cell, _), i, c in zip(cells, images, classes, strict=True)]
    other_labels = np.any([found != labels[0] for found in labels], axis=0)
    cases = first.case_of[images[0]]
    return SharedRows(
        cases=tuple(first.case_ids[case] for case in cases),
        patients=tuple(first.patients[case] for case in cases),
        findings=tuple(first.findings[place] for place in classes[0]),
        labels=np.where(other_labels, np.int8(-1), labels[0]),
        image_of=at[:, 0],
        class_of=at[:, 1],
        images=images,
        classes=classes,
        pairs=tuple(places[same] for places in pairs),
        alone=tuple(tuple(key for key in own if key is not None and key not in shared) for own in keys),
        other_labels=other_labels,
        other_regions=tuple(map(tuple, met[~same].tolist())),
    )


def _common(*lists: Sequence[Hashable | None]) -> tuple[Index, ...]:
    """Positions, in each list, of the items that all lists contain, in the order of the first; None is never shared."""
    places = [{key: place for place, key in enumerate(keys) if key is not None} for keys in lists]
    shared = [key for key in places[0] if all(key in other for other in places[1:])]
    return tuple(np.array([found[key] for key in shared], np.intp) for found in places)


def _pair_keys(scored: ScoredPairs, images: Index, classes: Index) -> list[Pair | None]:
    """(shared image, shared finding) of each counted pair; None for a pair whose row is not shared.

    images, classes: positions of the shared images and findings in the cell.
    """
    image_at = {int(place): index for index, place in enumerate(images)}
    class_at = {int(place): index for index, place in enumerate(classes)}
    keys: list[Pair | None] = []
    for image, c in zip(scored.image_of.tolist(), scored.class_of.tolist(), strict=True):
        shared = image in image_at and c in class_at
        keys.append((image_at[image], class_at[c]) if shared else None)
    return keys


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def _key(images: NDArray[np.uint64], values: NDArray[np.uint64]) -> bytes:
    """A hash of these images with their values, in any order."""
    order = np.lexsort((values, images))
    return hashlib.sha256(np.stack([images[order], values[order]]).astype("<u8").tobytes()).digest()


def _with_whole(classes: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same with the key of all classes together, under the empty name."""
    parts = sorted(f"{name}\0".encode(errors="surrogatepass") + key for name, key in classes.items())
    return {**classes, "": hashlib.sha256(b"".join(parts)).digest()}
