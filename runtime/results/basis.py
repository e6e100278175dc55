"""What numbers rest on: which images, labels and pairs a cell has, and which of them another cell has too.

An image is known by its case and by which time the case occurs, since a list may hold an image more than once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .load import CellRows
from .pairs import ScoredPairs

__all__ = ["Basis", "common_places", "find_bases", "image_names", "pair_keys"]


@dataclass(frozen=True)
class Basis:
    """Keys of what the numbers of a cell rest on, by class and (empty name) of all classes together.

    pairs: of the pairs that count; labels: of the known labels of readable images, nothing for a cell without scores.
    Two cells of one dataset have the same key where they have the same, in whatever order.
    """

    pairs: Mapping[str, bytes] = field(default_factory=dict)
    labels: Mapping[str, bytes] = field(default_factory=dict)


def find_bases(
    rows: Mapping[tuple[str, str], CellRows], pairs: Mapping[tuple[str, str], ScoredPairs]
) -> dict[tuple[str, str], Basis]:
    """The basis of every cell, by (model, dataset)."""
    numbers: dict[str, dict[Hashable, int]] = defaultdict(dict)
    found = {}
    for key, cell in rows.items():
        known = numbers[cell.dataset]
        image = np.array([known.setdefault(name, len(known)) for name in image_names(cell)], np.int64)
        scored = pairs[key]
        counted = {
            name: _key(image[scored.image_of[scored.class_of == index]])
            for index, name in enumerate(cell.findings)
            if (scored.class_of == index).any()
        }
        # The label is in the key too: a cell that was told another one has no other images.
        labels = {
            name: _key((2 * image + cell.labels[:, index])[cell.labels[:, index] >= 0])
            for index, name in enumerate(cell.findings if cell.scored else ())
            if (cell.labels[:, index] >= 0).any()
        }
        found[key] = Basis(_with_whole(counted), _with_whole(labels))
    return found


def image_names(cell: CellRows) -> list[tuple[str, int]]:
    """(case, which time it occurs) of each readable image."""
    seen: dict[str, int] = {}
    numbered = []
    for case in cell.case_ids:
        seen[case] = seen.get(case, -1) + 1
        numbered.append((case, seen[case]))
    return [numbered[index] for index in cell.case_of]


def common_places(
    one: Sequence[Hashable | None], two: Sequence[Hashable | None]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places in both lists of what both hold, in the order of the first; None is never shared."""
    there = {key: place for place, key in enumerate(two) if key is not None}
    found = [(place, there[key]) for place, key in enumerate(one) if key is not None and key in there]
    both = np.array(found, np.intp).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def pair_keys(scored: ScoredPairs, images: NDArray[np.intp], classes: NDArray[np.intp]) -> list[tuple[int, int] | None]:
    """(shared image, shared finding) of each counted pair; None for a pair whose row is not shared.

    images, classes: places of the shared images and findings in the cell.
    """
    image_at = {int(place): index for index, place in enumerate(images)}
    class_at = {int(place): index for index, place in enumerate(classes)}
    keys: list[tuple[int, int] | None] = []
    for image, c in zip(scored.image_of.tolist(), scored.class_of.tolist(), strict=True):
        shared = image in image_at and c in class_at
        keys.append((image_at[image], class_at[c]) if shared else None)
    return keys


def _key(numbers: NDArray[np.int64]) -> bytes:
    return hashlib.sha256(np.sort(numbers).tobytes()).digest()


def _with_whole(classes: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same with the key of all classes together, under the empty name."""
    return {**classes, "": _joined(f"{name}\0".encode(errors="surrogatepass") + key for name, key in classes.items())}


def _joined(parts: Iterable[bytes]) -> bytes:
    return hashlib.sha256(b"".join(sorted(parts))).digest()
