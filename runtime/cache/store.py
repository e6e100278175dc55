"""Prepared images of one geometry: every image decoded and resized once, shared by all models of that geometry.

Pixels are written before the record that marks them as ready, so a killed process leaves at worst an empty slot.
`layout` describes the files.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageAccessError, ImageError
from ...engines.geometry import Geometry
from ..datasets.base import Case
from ..images.decode import read_grey
from ..images.geometry import to_model
from .layout import EMPTY, READY, RECORD, UNREADABLE, StoreFiles, checked, disk_error, is_whole, store_folder
from .locks import Hold

__all__ = ["Identity", "Prepared", "PreparedStore", "file_identity"]

Pixels = NDArray[np.uint8]
Prepared = tuple[Pixels, int, int]
"""Pixels [S, S] of a case, native height and width of its image."""
Identity = tuple[int, int]
"""Size in bytes and modification time in nanoseconds of an image file."""


class PreparedStore:
    """uint8 [S, S] per case, kept on disk. Use as a context manager; `get`, `put` and `load` are thread-safe,
    unless two threads write the same case at the same time.

    One process writes at a time. Another process that opens the store can read the images that are ready, also those
    that become ready later. It does not store images that it decodes itself; `note` says so. Memory use does not grow
    with the number of images. `damaged`: the cases whose entry did not match its checksum, and that are decoded again.
    """

    def __init__(self, cases: Sequence[Case], geometry: Geometry, files: StoreFiles | None, note: str | None) -> None:
        self.geometry = geometry
        self.note = note
        self._paths = [case.image for case in cases]
        self._index = {case.case_id: number for number, case in enumerate(cases)}
        # Cases may share an image (SIIM by rows); they share the slot of the first one.
        first: dict[Path, int] = {}
        self._slots = [first.setdefault(path, number) for number, path in enumerate(self._paths)]
        self._files = files
        self._checked = np.zeros(len(cases), np.bool_)
        self._reasons: dict[int, str] = files.reasons() if files and files.writes else {}
        self._skipped: dict[int, str] = {}
        self.damaged: set[int] = set()

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
        """Opens the store of these cases under `cache_root`, or creates it. A damaged one is rebuilt.

        `wait`: called with the store's folder when another process writes to it; this one then waits until it can.
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
        """Whether decoded images are stored on disk; False: another process writes to the directory."""
        return self._files is not None and self._files.writes

    def __len__(self) -> int:
        return len(self._paths)

    def __enter__(self) -> PreparedStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, case: Case, others: Sequence[PreparedStore] = ()) -> Prepared:
        """`load`, for a case instead of its index."""
        return self.load(self._index[case.case_id], others)

    def load(self, index: int, others: Sequence[PreparedStore] = ()) -> Prepared:
        """Reads a case from the store, or decodes it and stores it here and in `others`.

        `others` are stores of the same cases in other geometries. Raises FileNotFoundError for a missing image,
        ImageError for one that cannot be read (recorded until the file changes, unless it is an ImageAccessError),
        RunError when the disk is full.
        """
        index = self._slots[index]
        path = self._paths[index]
        identity = file_identity(path)
        found = self.find(index, identity)
        if found is not None:
            return found
        missing: list[PreparedStore] = []
        for store in others:
            if store.lacks(index, identity):
                missing.append(store)
        try:
            grey = read_grey(path)
        except ImageAccessError:
            raise  # the file may be readable later, or by another user
        except ImageError as error:
            for store in (self, *missing):
                store.refuse(index, str(error), identity)
            raise
        for store in missing:
            with contextlib.suppress(ImageError):  # recorded; it concerns that geometry only
                store.keep(index, grey, identity)
        return self.keep(index, grey, identity)

    def index(self, case: Case) -> int:
        """The number of a case in the order the store was opened with."""
        return self._index[case.case_id]

    def slot(self, index: int) -> int:
        """The slot of a case's image: the number of the first case that has this image."""
        return self._slots[index]

    def path(self, index: int) -> Path:
        """The image file of a case."""
        return self._paths[index]

    def find(self, index: int, identity: Identity) -> Prepared | None:
        """The prepared case if its file has this identity; None: it must be decoded.

        Raises ImageError when this version of the file is recorded as unreadable, ImageAccessError when it was
        skipped.
        """
        if index in self._skipped:
            raise ImageAccessError(self._skipped[index])
        found = self._ready(index, identity)
        if found is None and index in self._reasons:
            raise ImageError(self._reasons[index] or f"{self._paths[index]} could not be read before.")
        return found

    def lacks(self, index: int, identity: Identity) -> bool:
        """Whether the case is neither prepared nor recorded as unreadable, and this process may write."""
        if not self.is_kept or index in self._skipped:
            return False
        return self._ready(index, identity) is None and index not in self._reasons

    def keep(self, index: int, grey: Pixels, identity: Identity) -> Prepared:
        """Transforms a decoded image, uint8 [H, W], to the geometry and stores it. Raises ImageError, RunError."""
        try:
            pixels = to_model(grey, self.geometry)
        except ImageError as error:
            self.refuse(index, str(error), identity)
            raise
        height, width = grey.shape
        self._reasons.pop(index, None)
        self._write(index, READY, (height, width), identity, pixels)
        return pixels, height, width

    def refuse(self, index: int, reason: str, identity: Identity) -> None:
        """Records why the current image file of a case cannot be read. Raises RunError."""
        self._reasons[index] = reason
        self._write(index, UNREADABLE, (0, 0), identity, reason)

    def skip(self, index: int, reason: str) -> None:
        """Skips a case while the store is open: the image itself did not fail, so nothing is stored about it."""
        self._skipped[index] = reason

    def get(self, index: int) -> Pixels | None:
        """Read-only view [S, S] of a prepared case; None: empty, unreadable, missing, or its file has changed."""
        try:
            found = self._ready(self._slots[index], file_identity(self._paths[index]))
        except OSError:
            return None
        return None if found is None else found[0]

    def put(self, index: int, pixels: Pixels, native_size: tuple[int, int], identity: Identity | None = None) -> None:
        """Stores the pixels [S, S] of a case and its file's (height, width); `identity`: default that of the file now.

        Raises ValueError for another shape or dtype, RunError when the disk is full, FileNotFoundError when the image
        does not exist.
        """
        side = self.geometry.size
        if pixels.shape != (side, side) or pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be uint8 [{side}, {side}], not {pixels.dtype} {list(pixels.shape)}")
        index = self._slots[index]
        self._reasons.pop(index, None)
        self._write(index, READY, native_size, identity or file_identity(self._paths[index]), pixels)

    def close(self) -> None:
        """Writes everything to the disk and releases the store. Views returned before stay valid."""
        files, self._files = self._files, None
        if files is not None:
            files.close()

    def _ready(self, index: int, identity: Identity) -> Prepared | None:
        files = self._files
        if files is None:
            return None
        if not files.writes:
            return _shared(files, index, identity)
        record = files.records[index]
        if not self._checked[index]:
            changed = record["state"] != EMPTY and (int(record["bytes"]), int(record["mtime_ns"])) != identity
            if record["state"] == UNREADABLE:
                changed |= not is_whole(record.tobytes(), self._reasons.get(index))
            if changed:
                self._forget(index)
            self._checked[index] = True
        if record["state"] != READY:
            return None
        if not is_whole(record.tobytes(), files.pixels[index]):
            self.damaged.add(index)
            self._forget(index)
            return None
        return files.pixels[index], int(record["height"]), int(record["width"])

    def _forget(self, index: int) -> None:
        self._write(index, EMPTY, (0, 0), (0, 0))
        self._reasons.pop(index, None)

    def _write(
        self, index: int, state: int, size: tuple[int, int], identity: Identity, content: Pixels | str | None = None
    ) -> None:
        """Writes a record after its `content`: the pixels or the reason. Raises RunError."""
        files = self._files
        if files is None or not files.writes:
            return
        place = index * RECORD.itemsize
        try:
            if isinstance(content, str):
                files.add_reason(index, content)
            elif content is not None:
                if files.records[index]["state"] != EMPTY:
                    _write_all(files.record_file, bytes(RECORD.itemsize), place)
                _write_all(files.pixel_file, np.ascontiguousarray(content).data.cast("B"), index * content.size)
            record = np.array([(state, *size, 0, *identity)], RECORD).tobytes()
            _write_all(files.record_file, checked(record, content), place)
        except OSError as error:
            raise disk_error(files.folder, error) from error
        self._checked[index] = True


def file_identity(path: Path) -> Identity:
    """The current identity of an image file. Raises FileNotFoundError when it does not exist, ImageAccessError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise FileNotFoundError(str(path)) from error
    except OSError as error:
        raise ImageAccessError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError(str(path))
    return found.st_size, found.st_mtime_ns


def _shared(files: StoreFiles, index: int, identity: Identity) -> Prepared | None:
    """A copy of a case that another process prepared; that process may be writing now, so the record is read twice."""
    before = files.records[index].tobytes()
    record = np.frombuffer(before, RECORD)[0]
    if record["state"] != READY or (int(record["bytes"]), int(record["mtime_ns"])) != identity:
        return None
    pixels: Pixels = files.pixels[index].copy()
    height, width = int(record["height"]), int(record["width"])
    if files.records[index].tobytes() != before or not is_whole(before, pixels):
        return None
    pixels.setflags(write=False)
    return pixels, height, width


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
