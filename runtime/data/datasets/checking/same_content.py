"""Image files of one content under two names: one film that counts twice."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from .....engines.errors import DataError
from .....metrics_gpu.sweep.masks import GRID
from ....host.machine_record import usable_cores
from ..case import Case, Region
from ..region_grid import region_grid

_PROBE: Final = 4096
"""Bytes from the middle of a file that are compared first: films of equal size nearly always differ there."""

_DIFFER: Final = "; their annotations differ, so keep one of them"

Sizes = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SameContent:
    """count: files that are copies of one before them; texts: a line for each group of equal files, first of those
    whose annotations differ."""

    count: int
    texts: tuple[str, ...]


def find_same_content(cases: Sequence[Case], sizes: Sizes, threads: int | None) -> SameContent:
    """Compares the image files of `cases`; only files of equal length are read, and first a part of them.

    sizes: case -> (height, width), where known. A film in DICOM and its copy in PNG differ in content.
    """
    of_file: dict[Path, list[Case]] = defaultdict(list)
    for case in cases:
        of_file[case.image].append(case)
    with ThreadPoolExecutor(threads or usable_cores(), thread_name_prefix="audit") as pool:
        groups: list[list[Path]] = [list(of_file)]
        for key_of in (_length, _probe, _digest):
            groups = [part for group in groups for part in _equal(group, key_of, pool)]
    texts = [_text(group, of_file, sizes) for group in groups]
    return SameContent(sum(len(group) - 1 for group in groups), tuple(sorted(texts, key=lambda t: _DIFFER not in t)))


def _equal(paths: Sequence[Path], key_of: Callable[[Path], Hashable], pool: ThreadPoolExecutor) -> Iterable[list[Path]]:
    """The groups of at least two files with one key, without those that cannot be read."""
    groups: dict[Hashable, list[Path]] = defaultdict(list)
    for path, key in zip(paths, pool.map(key_of, paths), strict=True):
        if key is not None:
            groups[key].append(path)
    return [group for group in groups.values() if len(group) > 1]


def _length(path: Path) -> int | None:
    try:
        return path.stat().st_size or None
    except OSError:
        return None


def _probe(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            stream.seek(max(path.stat().st_size // 2 - _PROBE // 2, 0))
            return stream.read(_PROBE)
    except OSError:
        return None


def _digest(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError:
        return None


def _text(group: Sequence[Path], of_file: Mapping[Path, Sequence[Case]], sizes: Sizes) -> str:
    named = ", ".join(f"{path.name} ('{of_file[path][0].case_id}')" for path in group[:3]) + ", ..." * (len(group) > 3)
    alike = _one_annotation([of_file[path] for path in group], sizes)
    return f"{named}: one image under {len(group)} names" + ("" if alike else _DIFFER)


def _one_annotation(files: Sequence[Sequence[Case]], sizes: Sizes) -> bool:
    first, *others = files
    return all(
        len(first) == len(other) and all(_same(a, b, sizes) for a, b in zip(first, other, strict=True))
        for other in others
    )


def _same(one: Case, other: Case, sizes: Sizes) -> bool:
    if one.labels != other.labels or one.regions.keys() != other.regions.keys():
        return False
    for finding, region in one.regions.items():
        second = other.regions[finding]
        if region != second and not _drawn_alike((one, region), (other, second), sizes):
            return False
    return True


def _drawn_alike(one: tuple[Case, Region], other: tuple[Case, Region], sizes: Sizes) -> bool:
    grids = []
    for case, region in (one, other):
        size = case.size or sizes.get(case.case_id)
        if size is None:
            return False
        try:
            grids.append(region_grid(region, *size, GRID[0])[0])
        except DataError:
            return False
    return bool(np.array_equal(grids[0], grids[1]))
