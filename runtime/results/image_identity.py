"""Which images of the cells of one dataset are the same (docs/metrics.md §8.4).

An image is identified by its case and the case's occurrence number, because a list can contain an image more than once;
by the content of its file, as far as models read it; and by its patient, as far as one is named. Everything that pairs,
ranks or resamples two results takes all three from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .load_rows import CellRows

Image = tuple[str, int]
"""A case, and how many times the list had it before."""


def image_names(cell: CellRows) -> list[Image]:
    """(case, occurrence number of the case) of each readable image."""
    numbered = _numbered(cell)
    return [numbered[index] for index in cell.case_of]


def agreed_images(cells: Sequence[CellRows]) -> list[CellRows]:
    """Cells of one dataset, each with what it lacks and the others agree on: contents of files, and names of patients.

    A name is taken from cells that read the same file, or of which one read none. What others disagree on is left out.
    """
    _, index = _joined(cells)
    known, differs = _first([cell.contents for cell in cells], [_read(cell) for cell in cells], index)
    known[differs] = 0
    contents = [
        np.where(_read(cell)[:, None], cell.contents, known[places]) for cell, places in zip(cells, index, strict=True)
    ]
    named: dict[int, list[tuple[bytes, str]]] = {}
    if any(not cell.named.all() for cell in cells) and any(cell.named.any() for cell in cells):
        for cell, places, own in zip(cells, index, contents, strict=True):
            for case in np.flatnonzero(cell.named).tolist():
                named.setdefault(int(places[case]), []).append((_content(own[case]), cell.patients[case]))
    return [_with(*parts, named) for parts in zip(cells, index, contents, strict=True)]


def _with(
    cell: CellRows,
    places: NDArray[np.intp],
    contents: NDArray[np.uint64],
    told: dict[int, list[tuple[bytes, str]]],
) -> CellRows:
    """The cell with these contents, and the names that others give. The same object where it has all already."""
    patients, named = list(cell.patients), cell.named.copy()
    for case in np.flatnonzero(~cell.named).tolist() if told else ():
        own = _content(contents[case])
        names = {name for content, name in told.get(int(places[case]), ()) if not (own and content) or own == content}
        if len(names) == 1:
            (patients[case],), named[case] = names, True
    if (named == cell.named).all() and (contents == cell.contents).all():
        return cell
    return replace(cell, patients=tuple(patients), named=named, contents=contents)


@dataclass(frozen=True)
class ImageConflicts:
    """Readable images that several cells have under one name, but not as the same image: of which models read other
    files; or, else, that are named as of other patients. images: how many several cells have under one name."""

    files: frozenset[Image]
    patients: frozenset[Image]
    images: int = 0

    @property
    def all(self) -> frozenset[Image]:
        """Both."""
        return self.files | self.patients


def image_conflicts(cells: Sequence[CellRows]) -> ImageConflicts:
    """The images on which cells of one dataset disagree; the cells are those of `agreed_images`."""
    images, index = _joined(cells)
    codes: dict[str, int] = {}
    names = [np.array([[codes.setdefault(name, len(codes))] for name in cell.patients], np.uint64) for cell in cells]
    read = [np.isin(np.arange(len(cell.case_ids)), cell.case_of) for cell in cells]
    known = [own & _read(cell) for own, cell in zip(read, cells, strict=True)]
    named = [own & cell.named for own, cell in zip(read, cells, strict=True)]
    _, files = _first([cell.contents for cell in cells], known, index)
    _, patients = _first(names, named, index)
    several = np.bincount(np.concatenate([places[own] for places, own in zip(index, read, strict=True)])) > 1
    one, two = (frozenset(images[at] for at in np.flatnonzero(found)) for found in (files, patients & ~files))
    return ImageConflicts(one, two, int(several.sum()))


def on_agreed_images(cells: Sequence[CellRows]) -> tuple[list[CellRows], tuple[str, ...]]:
    """Cells of any datasets, those of each as `agreed_images` has them, and sentences on the images on which models (no
    baselines) disagree."""
    found, lines = list(cells), list[str]()
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        places = [place for place, cell in enumerate(cells) if cell.dataset == dataset]
        column = agreed_images([cells[place] for place in places])
        for place, cell in zip(places, column, strict=True):
            found[place] = cell
        models = [cell for cell in column if cell.entry["weights"] != "baseline"]
        lines += _conflict_lines(models) if models else ()
    return found, tuple(lines)


def _conflict_lines(cells: Sequence[CellRows]) -> Iterator[str]:
    found = image_conflicts(cells)
    for what, images, why in (
        ("image files", found.files, "which not all models read from the same file"),
        ("patients", found.patients, "whose patient has not the same name in all results"),
    ):
        if images:
            yield (
                f"{cells[0].entry['title']}: other {what}: {len(images):,} of {found.images:,} images, {why}; models "
                f"are not compared on these images, and not ranked with models of other {what}; evaluate again what "
                "was evaluated before the change"
            )


def _joined(cells: Sequence[CellRows]) -> tuple[list[Image], list[NDArray[np.intp]]]:
    """All images of cells, and intp [cases]: which of them each case of a cell is."""
    place: dict[Image, int] = {}
    index: list[NDArray[np.intp]] = []
    for cell in cells:
        if index and cell.case_ids == cells[0].case_ids:
            index.append(index[0])
        else:
            index.append(np.array([place.setdefault(key, len(place)) for key in _numbered(cell)], np.intp))
    return list(place), index


def _first(
    values: Sequence[NDArray[np.uint64]], known: Sequence[NDArray[np.bool_]], index: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """What is known of each image, uint64 [images, W], zeros where nothing is; and where cells differ, bool [images].

    values: of each cell, [cases, W], which count where they are known, bool [cases]; index: as of `_joined`.
    """
    size = 1 + max((int(places.max()) for places in index if len(places)), default=-1)
    first, met, differs = (
        np.zeros((size, values[0].shape[1]), np.uint64),
        np.zeros(size, np.bool_),
        np.zeros(size, bool),
    )
    for own, has, places in zip(values, known, index, strict=True):
        differs[places] |= has & met[places] & (own != first[places]).any(axis=1)
        new = has & ~met[places]
        first[places[new]], met[places[new]] = own[new], True
    return first, differs


def _numbered(cell: CellRows) -> list[Image]:
    """(case, occurrence number of the case) of each case."""
    seen: dict[str, int] = {}
    numbered = []
    for case in cell.case_ids:
        seen[case] = seen.get(case, -1) + 1
        numbered.append((case, seen[case]))
    return numbered


def _read(cell: CellRows) -> NDArray[np.bool_]:
    """bool [cases]: where it is known which file a model read."""
    return np.asarray(cell.contents.any(axis=1), np.bool_)


def _content(pair: NDArray[np.uint64]) -> bytes:
    """The hash of a file, empty where it is not known."""
    return pair.tobytes() if pair.any() else b""
