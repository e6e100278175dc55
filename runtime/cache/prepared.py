"""Prepared images: every image decoded and resized once, shared by all models of one geometry.

A store is one directory per (dataset, geometry, decoder) with

    pixels.bin    uint8 [N, S, S], sparse: only prepared slots take space
    records.bin   one 32-byte record per case: state, native size, and size and time of the image file
    reasons.jsonl why an image could not be read
    index.json    what the two files above mean
    lock, use     who may write, who has it open

Pixels are written before the record that declares them ready, so a process that is killed leaves at worst an empty
slot. A machine that lost power may have kept the record and lost the pixels; a store that was not closed before a
restart is therefore emptied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageAccessError, ImageError
from ...engines.geometry import Geometry
from ..datasets.base import Case
from ..images.decode import read_grey
from ..images.geometry import to_model
from .prepared_files import RECORD, StoreFiles
from .prepared_keys import Identity, disk_error, file_identity, store_folder
from .prepared_locks import Hold

__all__ = ["PreparedStore", "load_once"]

EMPTY, READY, UNREADABLE = 0, 1, 2

Pixels = NDArray[np.uint8]


class PreparedStore:
    """uint8 [S, S] per case, kept on disk. Use as a context manager; `get`, `put` and `load` are safe in threads,
    as long as one case is not written by two of them at a time.

    One process writes at a time. Another one that opens the store meanwhile reads what is ready, including what becomes
    ready later; what it decodes itself it does not keep, and `note` says so. Memory does not grow with the images.
    """

    def __init__(self, cases: Sequence[Case], geometry: Geometry, files: StoreFiles | None, note: str | None) -> None:
        self.geometry = geometry
        self.note = note
        self._paths = [case.image for case in cases]
        self._index = {case.case_id: number for number, case in enumerate(cases)}
        # Cases may share an image (SIIM by rows); they share the slot of the first of them.
        first: dict[Path, int] = {}
        self._slots = [first.setdefault(path, number) for number, path in enumerate(self._paths)]
        self._files = files
        self._sizes = np.zeros((len(cases), 2), np.int32)
        self._checked = np.zeros(len(cases), np.bool_)
        self._reasons: dict[int, str] = files.reasons() if files and files.writes else {}
        self._skipped: dict[int, str] = {}

    @classmethod
    def open(
        cls,
        cache_root: Path,
        dataset_name: str,
        cases: Sequence[Case],
        geometry: Geometry,
        *,
        reader: str | None = None,
        wait: Callable[[Path], None] | None = None,
    ) -> PreparedStore:
        """Opens the store of these cases under `cache_root`, or begins it. A damaged one is begun again.

        `wait`: called with the store's folder when another process writes to it; this one then waits for its turn.
        Raises RunError when the folder cannot be written.
        """
        folder, about = store_folder(cache_root, dataset_name, cases, geometry, reader)
        try:
            hold = Hold.take(folder, None if wait is None else lambda: wait(folder))
        except OSError as error:
            raise disk_error(folder, error) from error
        try:
            files = StoreFiles.open(folder, about, len(cases), geometry.size, hold)
        except BaseException as error:
            hold.release()
            if isinstance(error, OSError):
                raise disk_error(folder, error) from error
            raise
        if files is None:
            hold.release()
        note = f"{folder} is in use by another process: what it prepares is read, the rest is decoded and not kept."
        return cls(cases, geometry, files, None if hold.writes else note)

    @property
    def is_kept(self) -> bool:
        """Whether what is decoded here is kept on disk; False: another process writes to the directory."""
        return self._files is not None and self._files.writes

    def __len__(self) -> int:
        return len(self._paths)

    def __enter__(self) -> PreparedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, case: Case, /) -> tuple[Pixels, int, int]:
        """`load`, by case. Raises ImageError, FileNotFoundError, RunError."""
        return self.load(self._index[case.case_id])

    def load(self, index: int) -> tuple[Pixels, int, int]:
        """Pixels [S, S], native height and width of a case: from the store, or decoded and put into it.

        Raises FileNotFoundError for a missing image, ImageError for one that cannot be read (remembered until the
        file changes, unless it is an ImageAccessError), RunError when the disk is full.
        """
        return load_once(index, self)

    def index(self, case: Case) -> int:
        """The number of a case in the order the store was opened with."""
        return self._index[case.case_id]

    def slot(self, index: int) -> int:
        """Where the image of a case is kept: the number of the first case that has this image."""
        return self._slots[index]

    def path(self, index: int) -> Path:
        """The image file of a case."""
        return self._paths[index]

    def find(self, index: int, identity: Identity) -> tuple[Pixels, int, int] | None:
        """Pixels [S, S], native height and width of a case whose file has this identity; None: it must be decoded.

        Raises ImageError when the file, as it is, was found to be unreadable before, ImageAccessError when it was
        skipped.
        """
        if index in self._skipped:
            raise ImageAccessError(self._skipped[index])
        pixels = self._ready(index, identity)
        if pixels is None:
            if self._state(index) == UNREADABLE:
                raise ImageError(self._reasons.get(index, f"{self._paths[index]} could not be read before."))
            return None
        height, width = self._sizes[index].tolist()
        return pixels, height, width

    def lacks(self, index: int, identity: Identity) -> bool:
        """Whether the case is neither prepared nor known to be unreadable, and this process could change that."""
        if not self.is_kept or index in self._skipped:
            return False
        return self._ready(index, identity) is None and self._state(index) == EMPTY

    def keep(self, index: int, grey: Pixels, identity: Identity) -> tuple[Pixels, int, int]:
        """Brings a decoded image, uint8 [H, W], to the geometry and keeps it. Raises ImageError, RunError."""
        try:
            pixels = to_model(grey, self.geometry)
        except ImageError as error:
            self.refuse(index, str(error), identity)
            raise
        self._write(index, pixels, (grey.shape[0], grey.shape[1]), identity)
        return pixels, grey.shape[0], grey.shape[1]

    def refuse(self, index: int, reason: str, identity: Identity) -> None:
        """Remembers why the image of a case, as it is, cannot be read. Raises RunError."""
        self._mark(index, reason, identity)

    def skip(self, index: int, reason: str) -> None:
        """Leaves a case out while the store is open: what failed was not the image, so nothing is kept about it."""
        self._skipped[index] = reason

    def get(self, index: int) -> Pixels | None:
        """Read-only view [S, S] of a prepared case; None: empty, unreadable, missing, or its file has changed."""
        try:
            return self._ready(self._slots[index], file_identity(self._paths[index]))
        except OSError:
            return None

    def put(self, index: int, pixels: Pixels, native_size: tuple[int, int], identity: Identity | None = None) -> None:
        """Keeps the pixels [S, S] of a case and the (height, width) of its image file, by default as the file is now.

        Raises ValueError for another shape or dtype, RunError when the disk is full, FileNotFoundError when the image
        does not exist.
        """
        self._write(self._slots[index], pixels, native_size, identity or file_identity(self._paths[index]))

    def mark_unreadable(self, index: int, reason: str) -> None:
        """Remembers that the image file, as it is now, cannot be read. Raises RunError, FileNotFoundError."""
        self._mark(self._slots[index], reason, file_identity(self._paths[index]))

    def reason(self, index: int) -> str | None:
        """Why the image of a case cannot be read; None: it was not found to be unreadable."""
        return self._reasons.get(self._slots[index])

    def native_size(self, index: int) -> tuple[int, int] | None:
        """(height, width) of the image file of a case that is prepared, or was put since opening; else None."""
        index = self._slots[index]
        if not self._sizes[index].any() and self.get(index) is None:
            return None
        height, width = self._sizes[index].tolist()
        return height, width

    def close(self) -> None:
        """Writes everything to the disk and lets other processes in. Views given out stay valid."""
        files, self._files = self._files, None
        if files is not None:
            files.close()

    def _state(self, index: int) -> int:
        if self._files is not None and self._files.writes:
            return int(self._files.records[index]["state"])
        return UNREADABLE if index in self._reasons else EMPTY

    def _ready(self, index: int, identity: Identity) -> Pixels | None:
        files = self._files
        if files is None:
            return None
        if not files.writes:
            return self._shared(files, index, identity)
        record = files.records[index]
        if not self._checked[index]:
            if record["state"] != EMPTY and (int(record["bytes"]), int(record["mtime_ns"])) != identity:
                self._guard(files.clear, index)
                self._reasons.pop(index, None)
            self._sizes[index] = (record["height"], record["width"])
            self._checked[index] = True
        return files.pixels[index] if record["state"] == READY else None

    def _shared(self, files: StoreFiles, index: int, identity: Identity) -> Pixels | None:
        """A copy of what another process has prepared; it may be writing right now, so the record is read twice."""
        before = files.records[index].tobytes()
        record = np.frombuffer(before, RECORD)[0]
        if record["state"] != READY or (int(record["bytes"]), int(record["mtime_ns"])) != identity:
            return None
        pixels: Pixels = files.pixels[index].copy()
        if not (record["height"] and record["width"]) or files.records[index].tobytes() != before:
            return None
        self._sizes[index] = (record["height"], record["width"])
        pixels.setflags(write=False)
        return pixels

    def _write(self, index: int, pixels: Pixels, native_size: tuple[int, int], identity: Identity) -> None:
        side = self.geometry.size
        if pixels.shape != (side, side) or pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be uint8 [{side}, {side}], not {pixels.dtype} {list(pixels.shape)}")
        self._sizes[index] = native_size
        self._reasons.pop(index, None)
        if self._files is not None and self._files.writes:
            self._guard(self._files.write, index, pixels, _record(READY, native_size, identity))
            self._checked[index] = True

    def _mark(self, index: int, reason: str, identity: Identity) -> None:
        self._reasons[index] = reason
        if self._files is not None and self._files.writes:
            self._guard(self._files.mark, index, reason, _record(UNREADABLE, (0, 0), identity))
            self._checked[index] = True

    def _guard(self, action: Any, *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            folder = self._files.folder if self._files else Path()
            raise disk_error(folder, error) from error


def load_once(index: int, wanted: PreparedStore, others: Sequence[PreparedStore] = ()) -> tuple[Pixels, int, int]:
    """A case from the store `wanted`; where it must be decoded, it is decoded once and kept in `others` as well.

    `others` are stores of the same cases in other geometries. Raises FileNotFoundError for a missing image, ImageError
    for one that cannot be read (remembered until the file changes, unless it is an ImageAccessError), RunError when
    the disk is full.
    """
    index = wanted.slot(index)
    path = wanted.path(index)
    identity = file_identity(path)
    found = wanted.find(index, identity)
    if found is not None:
        return found
    missing = [store for store in others if store.lacks(index, identity)]
    try:
        grey = read_grey(path)
    except ImageAccessError:
        raise  # another time, or another user, may read it
    except ImageError as error:
        for store in (wanted, *missing):
            store.refuse(index, str(error), identity)
        raise
    for store in missing:
        with contextlib.suppress(ImageError):  # remembered; it concerns that geometry only
            store.keep(index, grey, identity)
    return wanted.keep(index, grey, identity)


def _record(state: int, size: tuple[int, int], identity: Identity) -> NDArray[np.void]:
    return np.array([(state, *size, 0, *identity)], RECORD)
