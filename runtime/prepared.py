"""Prepared images: every image decoded and resized once, shared by all models of one geometry.

A store is one directory per (dataset, geometry, reader version) with

    pixels.bin    uint8 [N, S, S], sparse: only prepared slots take space
    records.bin   one 32-byte record per case: state, native size, and size and time of the image file
    reasons.jsonl why an image could not be read
    index.json    what the two files above mean

Pixels are written before the record that declares them ready, so a process that is killed leaves at worst an empty
slot. A machine that lost power may have kept the record and lost the pixels; a store that was not closed before a
restart is therefore emptied.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.errors import ImageError, RunError
from ..engines.geometry import Geometry
from .datasets.base import Case
from .images.decode import read_grey, reader_version
from .images.geometry import to_model
from .prepared_files import RECORD, Lock, StoreFiles

__all__ = ["PreparedStore"]

EMPTY, READY, UNREADABLE = 0, 1, 2

Pixels = NDArray[np.uint8]


class PreparedStore:
    """uint8 [S, S] per case, kept on disk. Use as a context manager; `get`, `put` and `load` are safe in threads,
    as long as one case is not written by two of them at a time.

    When another process holds the directory, or it cannot be created, the store works without it: `get` finds
    nothing, `put` keeps only the native size, and `note` says why. Memory does not grow with the images.
    """

    def __init__(self, cases: Sequence[Case], geometry: Geometry, files: StoreFiles | None, note: str | None) -> None:
        self.geometry = geometry
        self.note = note
        self._paths = [case.image for case in cases]
        self._index = {case.case_id: number for number, case in enumerate(cases)}
        self._files = files
        self._sizes = np.zeros((len(cases), 2), np.int32)
        self._checked = np.zeros(len(cases), np.bool_)
        self._reasons: dict[int, str] = files.reasons() if files else {}

    @classmethod
    def open(cls, cache_root: Path, dataset_name: str, cases: Sequence[Case], geometry: Geometry) -> PreparedStore:
        """Opens the store of these cases under `cache_root`, or begins it. A damaged one is begun again.

        Raises RunError when the folder cannot be written.
        """
        digest = hashlib.sha256()
        for part in (reader_version(), geometry.key, *(f"{case.case_id}\0{case.image.absolute()}" for case in cases)):
            digest.update(part.encode(errors="surrogatepass") + b"\n")
        key = digest.hexdigest()
        folder = Path(cache_root) / f"{_safe(dataset_name)}-{geometry.key}-{key[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = Lock.take(folder / "lock")
        except OSError as error:
            raise _disk_error(folder, error) from error
        if lock is None:
            return cls(cases, geometry, None, f"{folder} is in use by another process; images are decoded without it.")
        try:
            files = StoreFiles.open(folder, key, len(cases), geometry.size, lock)
        except OSError as error:
            lock.release()
            raise _disk_error(folder, error) from error
        return cls(cases, geometry, files, None)

    @property
    def is_kept(self) -> bool:
        """Whether pixels are kept on disk; False: another process holds the directory."""
        return self._files is not None

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
        file changes), RunError when the disk is full.
        """
        path = self._paths[index]
        identity = _identity(path)
        pixels = self._ready(index, identity)
        if pixels is None:
            if self._state(index) == UNREADABLE:
                raise ImageError(self._reasons.get(index, f"{path} could not be read before."))
            try:
                grey = read_grey(path)
                pixels = to_model(grey, self.geometry)
            except ImageError as error:
                if path.is_file():
                    self._mark(index, str(error), identity)
                raise
            self._write(index, pixels, (grey.shape[0], grey.shape[1]), identity)
        height, width = self._sizes[index].tolist()
        return pixels, height, width

    def get(self, index: int) -> Pixels | None:
        """Read-only view [S, S] of a prepared case; None: empty, unreadable, missing, or its file has changed."""
        try:
            return self._ready(index, _identity(self._paths[index]))
        except OSError:
            return None

    def put(self, index: int, pixels: Pixels, native_size: tuple[int, int]) -> None:
        """Keeps the pixels [S, S] of a case and the (height, width) of its image file, as the file is now.

        Raises ValueError for another shape or dtype, RunError when the disk is full, FileNotFoundError when the image
        does not exist.
        """
        self._write(index, pixels, native_size, _identity(self._paths[index]))

    def mark_unreadable(self, index: int, reason: str) -> None:
        """Remembers that the image file, as it is now, cannot be read. Raises RunError, FileNotFoundError."""
        self._mark(index, reason, _identity(self._paths[index]))

    def reason(self, index: int) -> str | None:
        """Why the image of a case cannot be read; None: it was not found to be unreadable."""
        return self._reasons.get(index)

    def native_size(self, index: int) -> tuple[int, int] | None:
        """(height, width) of the image file of a case that is prepared, or was put since opening; else None."""
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
        if self._files is not None:
            return int(self._files.records[index]["state"])
        return UNREADABLE if index in self._reasons else EMPTY

    def _ready(self, index: int, identity: tuple[int, int]) -> Pixels | None:
        files = self._files
        if files is None:
            return None
        record = files.records[index]
        if not self._checked[index]:
            if record["state"] != EMPTY and (int(record["bytes"]), int(record["mtime_ns"])) != identity:
                self._guard(files.clear, index)
                self._reasons.pop(index, None)
            self._sizes[index] = (record["height"], record["width"])
            self._checked[index] = True
        return files.pixels[index] if record["state"] == READY else None

    def _write(self, index: int, pixels: Pixels, native_size: tuple[int, int], identity: tuple[int, int]) -> None:
        side = self.geometry.size
        if pixels.shape != (side, side) or pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be uint8 [{side}, {side}], not {pixels.dtype} {list(pixels.shape)}")
        self._sizes[index] = native_size
        self._reasons.pop(index, None)
        if self._files is not None:
            self._guard(self._files.write, index, pixels, _record(READY, native_size, identity))
            self._checked[index] = True

    def _mark(self, index: int, reason: str, identity: tuple[int, int]) -> None:
        self._reasons[index] = reason
        if self._files is not None:
            self._guard(self._files.mark, index, reason, _record(UNREADABLE, (0, 0), identity))
            self._checked[index] = True

    def _guard(self, action: Any, *arguments: Any) -> None:
        try:
            action(*arguments)
        except OSError as error:
            folder = self._files.folder if self._files else Path()
            raise _disk_error(folder, error) from error


def _record(state: int, size: tuple[int, int], identity: tuple[int, int]) -> NDArray[np.void]:
    return np.array([(state, *size, 0, *identity)], RECORD)


def _identity(path: Path) -> tuple[int, int]:
    """Size in bytes and modification time in nanoseconds. Raises FileNotFoundError, ImageError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ImageError(f"{path} cannot be read: {error}.") from error
    return found.st_size, found.st_mtime_ns


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "dataset"


def _disk_error(folder: Path, error: OSError) -> RunError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"The disk is full: {folder} cannot take more prepared images; free space or choose another cache."
        )
    return RunError(f"Prepared images cannot be kept in {folder}: {error.strerror or error}; choose another cache.")
