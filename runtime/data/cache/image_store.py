"""Prepared images of one geometry: every image decoded and resized once, shared by all models of that geometry.

Pixels are written before the record that marks them as ready, so a killed process leaves at worst an empty slot.
`layout` describes the files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageAccessError, ImageError
from ....engines.geometry import Geometry
from ..datasets.dataset import Case
from ..datasets.pixels import ReadyImages
from ..images.contents import HASH_BYTES, Contents, FileState, file_state
from ..images.decode import decode_grey
from ..images.resizing import to_model
from .ready import read_ready
from .store_files import EMPTY, READY, RECORD, UNREADABLE, CaseRecord, StoreFiles, is_whole
from .store_layout import store_folder

Pixels = NDArray[np.uint8]
Prepared = tuple[Pixels, int, int]
"""Pixels [S, S] of a case, native height and width of its image."""


class PreparedStore:
    """uint8 [S, S] per case, kept on disk. Use as a context manager; `get`, `put` and `load` are thread-safe,
    unless two threads write the same case at the same time.

    One process writes at a time. Another process that opens the store can read the images that are ready, also those
    that become ready later. It does not store images that it decodes itself, and `note` gives the reason. `contents`:
    what is known of the image files, also from the records; may be replaced after opening. `others`: stores of the same
    cases in other geometries, which also keep what is decoded here; none unless they are set after opening. `damaged`:
    the cases whose entry did not match its checksum, and that are decoded again.

    It is a `BulkSource`: a call with a case is `load` with its index.
    """

    def __init__(self, cases: Sequence[Case], geometry: Geometry, files: StoreFiles | None, note: str | None) -> None:
        self.geometry = geometry
        self.contents = Contents()
        self.others: Sequence[PreparedStore] = ()
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
        Without it a read-only store is read, and nothing is kept. Raises RunError when the folder cannot be written.
        """
        folder, about = store_folder(cache_root, dataset_name, cases, geometry, reader)
        files, note = StoreFiles.take(folder, about, len(cases), (geometry.size, geometry.size), wait=wait)
        return cls(cases, geometry, files, note or None)

    @property
    def is_kept(self) -> bool:
        """Whether decoded images are stored on disk; False: another process writes there, or it cannot be written."""
        return self._files is not None and self._files.writes

    def __len__(self) -> int:
        return len(self._paths)

    def __enter__(self) -> PreparedStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, case: Case, /) -> Prepared:
        return self.load(self._index[case.case_id])

    def read_many(self, cases: Sequence[Case], target: Pixels, /) -> ReadyImages:
        """Copies those cases to `target`, uint8 [n, ...], that are ready and whose files are unchanged."""
        if self._files is None or self.contents.verify or self._skipped:
            return ReadyImages.none(len(cases))
        numbers = [self._slots[self._index[case.case_id]] for case in cases]
        paths = [self._paths[number] for number in numbers]
        return read_ready(self._files, np.array(numbers, np.int64), paths, self.contents, target)

    def load(self, index: int) -> Prepared:
        """Reads a case from the store, or decodes it and stores it here and in `others`.

        Raises FileNotFoundError for a missing image, ImageError for one that cannot be read (recorded until the file
        changes, unless it is an ImageAccessError), RunError when the disk is full.
        """
        index = self._slots[index]
        path = self._paths[index]
        state = file_state(path)
        prepared = self.find(index, state)
        if prepared is not None:
            return prepared
        missing = [store for store in self.others if store.lacks(index, state)]
        try:
            data = self.contents.read(path)
            kinds = {store.geometry.stretched for store in (self, *missing)}
            grey = {stretched: decode_grey(data, str(path), stretched=stretched) for stretched in kinds}
        except ImageAccessError:
            raise  # the file may be readable later, or by another user
        except ImageError as error:
            for store in (self, *missing):
                store.refuse(index, str(error), state)
            raise
        for store in missing:
            with contextlib.suppress(ImageError):  # recorded; it concerns that geometry only
                store.keep(index, grey[store.geometry.stretched], state)
        return self.keep(index, grey[self.geometry.stretched], state)

    def index(self, case: Case) -> int:
        """The number of a case in the order the store was opened with."""
        return self._index[case.case_id]

    def slot(self, index: int) -> int:
        """The slot of a case's image: the number of the first case that has this image."""
        return self._slots[index]

    def path(self, index: int) -> Path:
        """The image file of a case."""
        return self._paths[index]

    def find(self, index: int, state: FileState) -> Prepared | None:
        """The prepared case if its file has this state or the same content; None: it must be decoded.

        Raises ImageError when this version of the file is recorded as unreadable, ImageAccessError when it was
        skipped.
        """
        if index in self._skipped:
            raise ImageAccessError(self._skipped[index])
        prepared = self._ready(index, state)
        if prepared is None and index in self._reasons:
            raise ImageError(self._reasons[index] or f"{self._paths[index]} could not be read before.")
        return prepared

    def lacks(self, index: int, state: FileState) -> bool:
        """Whether the case is neither prepared nor recorded as unreadable, and this process may write."""
        if not self.is_kept or index in self._skipped:
            return False
        return self._ready(index, state) is None and index not in self._reasons

    def keep(self, index: int, grey: Pixels, state: FileState) -> Prepared:
        """Transforms a decoded image, uint8 [H, W], to the geometry and stores it. Raises ImageError, RunError."""
        try:
            pixels = to_model(grey, self.geometry)
        except ImageError as error:
            self.refuse(index, str(error), state)
            raise
        height, width = grey.shape
        self._reasons.pop(index, None)
        self._write(index, READY, (height, width), state, pixels)
        return pixels, height, width

    def refuse(self, index: int, reason: str, state: FileState) -> None:
        """Records why the current image file of a case cannot be read. Raises RunError."""
        self._reasons[index] = reason
        self._write(index, UNREADABLE, (0, 0), state, reason)

    def skip(self, index: int, reason: str) -> None:
        """Skips a case while the store is open: the image itself did not fail, so nothing is stored about it."""
        self._skipped[index] = reason

    def get(self, index: int) -> Pixels | None:
        """Read-only view [S, S] of a prepared case; None: empty, unreadable, missing, or its file has changed."""
        try:
            prepared = self._ready(self._slots[index], file_state(self._paths[index]))
        except OSError:
            return None
        return None if prepared is None else prepared[0]

    def put(self, index: int, pixels: Pixels, native_size: tuple[int, int], state: FileState | None = None) -> None:
        """Stores the pixels [S, S] of a case and its file's (height, width).

        `state`: of the file when it was read through `contents`; default: the file is read for its hash now.

        Raises ValueError for another shape or dtype, RunError when the disk is full, FileNotFoundError when the image
        does not exist.
        """
        side = self.geometry.size
        if pixels.shape != (side, side) or pixels.dtype != np.uint8:
            raise ValueError(f"pixels must be uint8 [{side}, {side}], not {pixels.dtype} {list(pixels.shape)}")
        index = self._slots[index]
        self._reasons.pop(index, None)
        if state is None:
            state = file_state(self._paths[index])
            self.contents.hash_now(self._paths[index])
        self._write(index, READY, native_size, state, pixels)

    def close(self) -> None:
        """Writes everything to the disk and releases the store. Views returned before stay valid."""
        files, self._files = self._files, None
        if files is not None:
            files.close()

    def _ready(self, index: int, state: FileState) -> Prepared | None:
        files = self._files
        if files is None:
            return None
        if not files.writes:
            return self._shared(files, index, state)
        if files.records[index]["state"] == EMPTY:
            return None
        written = files.records[index].tobytes()
        record = CaseRecord.of(written)
        content = files.pixels[index] if record.state == READY else self._reasons.get(index)
        if not is_whole(written, content):
            if record.state == READY:
                self.damaged.add(index)
            self._forget(index)
            return None
        if not self._checked[index] and not self._is_of(record, index, state, content):
            self._forget(index)
            return None
        self._checked[index] = True
        return (files.pixels[index], record.height, record.width) if record.state == READY else None

    def _is_of(self, record: CaseRecord, index: int, state: FileState, content: Pixels | str | None) -> bool:
        """Whether a record was made from the current content of its file, which is read if its state changed."""
        recorded, path = record.file, self._paths[index]
        if recorded == state and not self.contents.verify:
            self.contents.note(path, (*state, record.content, None))
            return True
        if recorded.bytes != state.bytes or self.contents.hash_now(path) != record.content:
            return False
        if recorded != state:
            self._write(index, record.state, (record.height, record.width), state, content, record_only=True)
        return True

    def _shared(self, files: StoreFiles, index: int, state: FileState) -> Prepared | None:
        """A copy of a case that another process prepared; it may be writing now, so the record is read twice."""
        before = files.records[index].tobytes()
        record = CaseRecord.of(before)
        if record.state != READY:
            return None
        pixels: Pixels = files.pixels[index].copy()
        if files.records[index].tobytes() != before or not is_whole(before, pixels):
            return None
        if not self._is_of(record, index, state, pixels):
            return None
        pixels.setflags(write=False)
        return pixels, record.height, record.width

    def _forget(self, index: int) -> None:
        self._write(index, EMPTY, (0, 0), None)
        self._reasons.pop(index, None)

    def _write(
        self,
        index: int,
        record_state: int,
        size: tuple[int, int],
        state: FileState | None,
        content: Pixels | str | None = None,
        *,
        record_only: bool = False,
    ) -> None:
        """Writes a record after its `content`: the pixels or the reason, unless they are there. Raises RunError."""
        files = self._files
        if files is None or not files.writes:
            return
        image = bytes(HASH_BYTES) if state is None else self.contents.hash_of(self._paths[index])
        record = np.array(
            [(record_state, *size, 0, *(state or (0,) * len(FileState._fields)), image)], RECORD
        ).tobytes()
        files.write(index, record, content, record_only=record_only)
        self._checked[index] = True
