"""The regions of a dataset on the evaluation grid, drawn once for all models, and kept with the prepared images.

The files are as in `layout`. A record is about a case: its native size, and the checksum of its masks. A row of
pixels.bin is of a region, 6272 bytes of packed bits, one byte that says what else was found, and 7 zeros. The key
covers the annotations, the code that reads them and the code that draws: a change of one of them makes another store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError
from ....engines.file_names import plain_stem
from ...host.code_numbers import code_number
from ...host.former_code import FORMER
from ...host.paths import has_folder
from ..datasets.dataset import Case
from ..datasets.region_boxes import FAULTS
from ..datasets.region_grid import DrawnRegions, ManyRegions, region_masks
from .store_files import READY, RECORD, StoreFiles, is_whole

_BITS: Final = (224, 28)  # the evaluation grid of 224 x 224, eight pixels a byte
_SAID: Final = _BITS[0] * _BITS[1]  # place of the byte behind the bits
MASK_ROW: Final = _SAID + 8  # whole words of 64 bits
_DRAWN, _SUB_PIXEL, _FAULT = 1, 2, 4  # bits of that byte; a fault is its place in FAULTS from 1 on

Rows = NDArray[np.uint8]


def mask_rules() -> str:
    """Names the code that draws regions; the code of a reader is not in it."""
    return code_number("masks")


def mask_folder(
    cache_root: Path, dataset_name: str, digest: str, former: Sequence[str] = ()
) -> tuple[Path, dict[str, object]]:
    """As `layout.store_folder`, for the masks of a dataset whose annotations and reader have this digest.

    former: the digests that earlier versions gave the same annotations and reader.
    """
    rules = (mask_rules(), *FORMER.get(mask_rules(), ()))
    stores = [_store(cache_root, dataset_name, *made) for made in product(rules, (digest, *former))]
    return next((store for store in stores if has_folder(store[0])), stores[0])


def _store(cache_root: Path, dataset_name: str, rules: str, digest: str) -> tuple[Path, dict[str, object]]:
    key = hashlib.sha256(f"{rules}\n{digest}".encode()).hexdigest()
    about: dict[str, object] = {"key": key, "dataset": dataset_name, "geometry": "masks", "reader": rules}
    return Path(cache_root) / f"{plain_stem(dataset_name)}-masks-{key[:16]}", about


def mask_bytes(cases: Sequence[Case]) -> int:
    """Size in bytes of a store of these cases when all masks are drawn."""
    return sum(len(case.regions) for case in cases) * MASK_ROW + len(cases) * RECORD.itemsize


class MaskStore:
    """Draws regions as `draw_regions` does, and keeps what it drew on disk. Use as a context manager.

    Thread-safe, unless two threads draw the same case at the same time. One process writes; others read what is drawn,
    as from a read-only disk. `verify`: regions are drawn again and compared with the store. `damaged`: cases whose
    masks did not match their checksum, or what was drawn again.
    """

    def __init__(self, cases: Sequence[Case], files: StoreFiles | None, *, verify: bool = False) -> None:
        self._files, self._verify = files, verify
        self._index = {case.case_id: number for number, case in enumerate(cases)}
        classes = sorted({name for case in cases for name in case.regions})
        class_number = {name: at for at, name in enumerate(classes)}
        self._classes = classes
        self._first = np.zeros(len(cases) + 1, np.int64)
        np.cumsum([len(case.regions) for case in cases], out=self._first[1:])
        self._class_of = np.array([class_number[name] for case in cases for name in sorted(case.regions)], np.int64)
        self._asked: tuple[tuple[str, ...], NDArray[np.int64]] = (), np.full(len(classes), -1, np.int64)
        self.damaged: set[int] = set()

    @classmethod
    def open(
        cls,
        cache_root: Path,
        dataset_name: str,
        cases: Sequence[Case],
        digest: str,
        *,
        former: Sequence[str] = (),
        verify: bool = False,
    ) -> MaskStore:
        """Opens the store of these cases under `cache_root`, or creates it; a damaged one is begun again.

        digest: of the annotations and the code that reads them; former: as for `mask_folder`. Raises RunError when the
        folder cannot be written.
        """
        folder, about = mask_folder(cache_root, dataset_name, digest, former)
        pairs = sum(len(case.regions) for case in cases)
        files, _ = StoreFiles.take(folder, {**about, "pairs": pairs}, len(cases), (MASK_ROW,), pairs)
        return cls(cases, files, verify=verify)

    def __enter__(self) -> MaskStore:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.close()

    def __call__(self, cases: Sequence[Case], sizes: NDArray[np.int32], findings: Sequence[str]) -> ManyRegions:
        """As `draw_regions`."""
        ready, stored = self._stored(cases, sizes, findings)
        if ready.all():
            return stored
        rest = np.flatnonzero(~ready)
        drawn = self._drawn([cases[at] for at in rest.tolist()], sizes[rest], findings)
        return ManyRegions.joined([stored, ManyRegions.of(list(zip(rest.tolist(), drawn, strict=True)), findings)])

    def _drawn(self, cases: Sequence[Case], sizes: NDArray[np.int32], findings: Sequence[str]) -> list[DrawnRegions]:
        """The regions of each case, which has some; they are kept."""
        regions_of_cases, kept = list[DrawnRegions](), list[tuple[int, bytes, Sequence[str], DrawnRegions]]()
        for case, size in zip(cases, sizes.tolist(), strict=True):
            names = sorted(case.regions)
            try:
                drawn = region_masks(case, tuple(size), names)
                facts = b"".join(value.to_bytes(4, "little") for value in (READY, *size))
                kept.append((self._index[case.case_id], facts, names, drawn))
            except DataError:
                drawn = region_masks(case, tuple(size), findings)  # raises, unless it is of a class that nobody asks
            regions_of_cases.append(drawn)
        if self._files is not None:
            self._keep(self._files, kept)
        return regions_of_cases

    def _keep(self, files: StoreFiles, drawn: Sequence[tuple[int, bytes, Sequence[str], DrawnRegions]]) -> None:
        """Writes what was drawn of cases, unless it is there: the number of each, the first fields of its record, the
        names of its rows, and its regions."""
        rows_of_cases = _rows([(names, regions) for _, _, names, regions in drawn])
        for (number, facts, _, _), rows in zip(drawn, rows_of_cases, strict=True):
            record, first = files.records[number].tobytes(), int(self._first[number])
            if record.startswith(facts):
                if is_whole(record, rows) and np.array_equal(files.pixels[first : first + len(rows)], rows):
                    continue
                self.damaged.add(number)
            if files.writes:
                files.write(number, facts.ljust(RECORD.itemsize, b"\0"), rows, row=first)

    def _stored(
        self, cases: Sequence[Case], sizes: NDArray[np.int32], findings: Sequence[str]
    ) -> tuple[NDArray[np.bool_], ManyRegions]:
        """Which of these cases, on native grids of `sizes` [n, 2], have all of their regions in the store, whole, and
        the regions of `findings` of these; the others must be drawn."""
        files, count = self._files, len(cases)
        if files is None or self._verify:
            return np.array([not case.regions for case in cases], np.bool_), ManyRegions.of([], findings)
        from .checksums import copy_masks  # compiles

        numbers = np.array([self._index[case.case_id] for case in cases], np.int64)
        all_records = files.records.view(np.uint32).reshape(-1, RECORD.itemsize // 4)
        records = all_records[numbers]
        spans = self._first[numbers[:, None] + (0, 1)]
        held = spans[:, 1] - spans[:, 0]
        intact = (records[:, 0] == READY) & (records[:, 1:3] == sizes).all(axis=1) & (held > 0)
        case_of = np.repeat(np.arange(count), held)
        rows = np.arange(len(case_of)) + np.repeat(spans[:, 1] - np.cumsum(held), held)
        finding_of = self._places(tuple(findings))[self._class_of[rows]]
        order = np.argsort(case_of * (len(findings) + 1) + finding_of)
        order = order[finding_of[order] >= 0]
        rows, case_of, finding_of = rows[order], case_of[order], finding_of[order]
        bits = np.empty((len(rows), _SAID), np.uint8)
        flags = files.pixels[rows, _SAID]
        copy_masks(files.pixels.view(np.uint32), records, spans, rows, bits.view(np.uint32), intact)
        if not files.writes:  # another process may have written meanwhile
            intact &= (all_records[numbers] == records).all(axis=1)
        kept = intact[case_of]
        faults: list[tuple[int, int, str]] = []
        if not (kept & (flags == _DRAWN)).all():
            wrong = np.flatnonzero(kept & (flags >= _FAULT)).tolist()
            faults = [(int(case_of[at]), int(finding_of[at]), FAULTS[flags[at] // _FAULT - 1]) for at in wrong]
            kept &= (flags & _DRAWN) > 0
            bits, flags, case_of, finding_of = bits[kept], flags[kept], case_of[kept], finding_of[kept]
        sub_pixel = (flags & _SUB_PIXEL) > 0
        intact |= held == 0
        return intact, ManyRegions(case_of, finding_of, bits.reshape(-1, *_BITS), sub_pixel, faults)

    def _places(self, findings: tuple[str, ...]) -> NDArray[np.int64]:
        """The place of each class among the findings, -1 of one that is none."""
        if self._asked[0] != findings:
            position = {name: at for at, name in enumerate(findings)}
            self._asked = findings, np.array([position.get(name, -1) for name in self._classes], np.int64)
        return self._asked[1]


def _rows(cases: Sequence[tuple[Sequence[str], DrawnRegions]]) -> list[Rows]:
    """The rows of the regions of each case, in the order of the names."""
    from ....metrics_gpu.sweep.masks import GRID, pack_masks

    held = [masks[name] for names, (masks, _, _) in cases for name in names if name in masks]
    packed = iter(pack_masks(np.array(held, np.bool_).reshape(-1, *GRID)).reshape(-1, _SAID))
    rows_of_cases = []
    for names, (masks, sub_pixel, faults) in cases:
        rows = np.zeros((len(names), MASK_ROW), np.uint8)
        for row, name in zip(rows, names, strict=True):
            if name in masks:
                row[:_SAID] = next(packed)
                row[_SAID] |= _DRAWN
            if name in sub_pixel:
                row[_SAID] |= _SUB_PIXEL
            if name in faults:
                row[_SAID] |= _FAULT * (1 + FAULTS.index(faults[name]))
        rows_of_cases.append(rows)
    return rows_of_cases
