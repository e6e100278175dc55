"""The rows that cells share, on (case, finding), and those that only one of two has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..choices import Choices
from ..comparability import check_protocols
from ..image_identity import ImageConflicts, agreed_images, image_conflicts, image_names
from ..load_rows import CellRows, StoredRun
from ..selected_pairs import ScoredPairs, scored_pairs
from .cell_pairs import Match

Index = NDArray[np.intp]
Pair = tuple[int, int]

NOT_READ, NOT_THERE = "no readable image", "not in the run"
OTHER_FILE, OTHER_PATIENT = "another image file", "another patient"


@dataclass(frozen=True)
class OnlyIn:
    """What only one of two runs has.

    rows: scored (case, finding) rows. cases: (case, why the other has none of this image). findings: classes. pairs:
    (case, finding) of shared rows whose region is counted in this run alone.
    """

    rows: int
    cases: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def total(self) -> int:
        """Rows and pairs together."""
        return self.rows + len(self.pairs)


Side = tuple[CellRows, ScoredPairs]
"""One run's part of the shared rows."""


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two cells on the rows that both scored: those of run A, those of run B, and what only one of them has; `whole`:
    both with all their rows.

    label_changes, region_changes: (case, finding) whose label or region differs: the truth changed, and they are not
    compared.
    """

    match: Match
    title: str
    shared: SharedRows
    a: Side
    b: Side
    only_a: OnlyIn
    only_b: OnlyIn
    whole: tuple[CellRows, CellRows]

    @property
    def label_changes(self) -> tuple[tuple[str, str], ...]:
        return self.shared.names(np.argwhere(self.shared.other_labels))

    @property
    def region_changes(self) -> tuple[tuple[str, str], ...]:
        return self.shared.names(self.shared.other_regions)


def align(run_a: StoredRun, run_b: StoredRun, match: Match, choices: Choices) -> Aligned:
    """Reads both cells and keeps what they share.

    Raises RunError when they were swept by different protocols, whose numbers are not comparable, or cannot be read.
    """
    one, two = agreed_images([run_a.cell(match.model_a, match.dataset), run_b.cell(match.model_b, match.dataset)])
    where = f"{match.models} on {match.dataset}"
    names = [str(run.path) for run in (run_a, run_b)] if run_a.path != run_b.path else [match.model_a, match.model_b]
    check_protocols(where, list(zip(names, (one, two), strict=True)))
    whole = (one, scored_pairs(run_a, one, choices)), (two, scored_pairs(run_b, two, choices))
    shared = shared_rows(whole)
    a, b = (shared.cut(place, *cell) for place, cell in enumerate(whole))
    return Aligned(
        match=match,
        title=str(one.entry["title"]),
        shared=shared,
        a=a,
        b=b,
        only_a=_only(one, two, shared, shared.names(shared.alone[0])),
        only_b=_only(two, one, shared, shared.names(shared.alone[1])),
        whole=(one, two),
    )


def _only(cell: CellRows, other: CellRows, shared: SharedRows, pairs: tuple[tuple[str, str], ...]) -> OnlyIn:
    names, listed, apart = image_names(cell), set(other.case_ids), shared.conflicts
    why = dict.fromkeys(apart.files, OTHER_FILE) | dict.fromkeys(apart.patients, OTHER_PATIENT)
    why |= {image: NOT_READ if image[0] in listed else NOT_THERE for image in set(names) - set(image_names(other))}
    cases = [(image[0], why[image]) for image in names if image in why]
    findings = tuple(name for name in cell.findings if name not in other.findings)
    rows = len(cases) * len(cell.findings) + (len(names) - len(cases)) * len(findings)
    return OnlyIn(rows, tuple(cases), findings, pairs)


@dataclass(frozen=True, eq=False)
class SharedRows:
    """The N images and C findings that all given cells of a dataset have, and the P pairs that count in all of them.

    For each cell, images, classes, pairs: places of the shared ones in the cell; alone: (shared image, shared finding)
    of the pairs that count in it, but not in all cells. cases: of each image; patients: of each image, in all cells,
    and named, bool [N], whether its name is known. labels: int8 [N, C], -1 also where two cells disagree. image_of,
    class_of: intp [P].
    other_labels: bool [N, C], where labels differ between cells; other_regions: (shared image, shared finding) of the
    pairs that count in all cells with different regions, and are not shared for that reason: the ground truth changed.
    conflicts: images that cells have under one name, and that are not shared because they are not the same; apart:
    their places in each cell.
    Images, findings and pairs are in the order of the cells, where these have one order, else sorted by name, so that
    the order of the cells does not matter.
    """

    cases: tuple[str, ...]
    patients: tuple[str, ...]
    named: NDArray[np.bool_]
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
    conflicts: ImageConflicts
    apart: tuple[Index, ...]

    def names(self, places: Iterable[Sequence[int]] | NDArray[np.intp]) -> tuple[tuple[str, str], ...]:
        """(case, finding) for given (shared image, shared finding)."""
        return tuple((self.cases[image], self.findings[c]) for image, c in places)

    def pair_names(self, pairs: NDArray[np.intp]) -> tuple[tuple[str, str], ...]:
        """(case, finding) of the given shared pairs."""
        return self.names(zip(self.image_of[pairs].tolist(), self.class_of[pairs].tolist(), strict=True))

    def cut(self, place: int, cell: CellRows, scored: ScoredPairs) -> tuple[CellRows, ScoredPairs]:
        """The shared rows of the cell at `place` among the cells, one case for each image."""
        images, classes, pairs = self.images[place], self.classes[place], self.pairs[place]
        cases = cell.case_of[images]
        counts, truth = scored.counts.take(pairs), cell.truth[scored.places[pairs]]
        part = replace(
            cell,
            cases=len(images),
            missing=0,
            unreadable=0,
            findings=self.findings,
            case_ids=self.cases,
            patients=self.patients,
            named=self.named,
            contents=cell.contents[cases],
            positive=cell.positive[np.ix_(cases, classes)],
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
        kept = replace(
            scored.take(pairs),
            names=self.findings,
            class_of=self.class_of,
            image_of=self.image_of,
            places=np.arange(len(counts)),
        )
        return part, kept

    def is_whole(self, place: int, cell: CellRows, scored: ScoredPairs) -> bool:
        """Whether `cut` changes nothing, so that the numbers of the cell are those of the shared rows."""
        kept = (self.images[place], self.classes[place], self.pairs[place])
        whole = (len(cell.case_of), len(cell.findings), len(scored.counts))
        if any(not np.array_equal(places, np.arange(count)) for places, count in zip(kept, whole, strict=True)):
            return False
        same = self.patients == tuple(cell.patients[case] for case in cell.case_of)
        return same and bool((self.labels == cell.labels).all())


def shared_rows(cells: Sequence[tuple[CellRows, ScoredPairs]]) -> SharedRows:
    """The rows that cells of one dataset have in common."""
    agreed = agreed_images([cell for cell, _ in cells])
    first, conflicts, names = agreed[0], image_conflicts(agreed), [image_names(cell) for cell in agreed]
    images = _common(*([None if key in conflicts.all else key for key in own] for own in names))
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
        named=first.named[cases],
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
        conflicts=conflicts,
        apart=tuple(np.flatnonzero([key in conflicts.all for key in own]) for own in names),
    )


def _common(*lists: Sequence[Any]) -> tuple[Index, ...]:
    """Positions, in each list, of the items that all lists contain; None is never shared. They are in the order of the
    lists, or sorted by item where these have them in different orders."""
    places = [{key: place for place, key in enumerate(keys) if key is not None} for keys in lists]
    shared = [key for key in places[0] if all(key in other for other in places[1:])]
    found = [np.array([own[key] for key in shared], np.intp) for own in places]
    if any((np.diff(own) < 0).any() for own in found):
        shared.sort()
        found = [np.array([own[key] for key in shared], np.intp) for own in places]
    return tuple(found)


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
