"""The open files of a store: records with checksums, and what they belong to; `layout` describes the files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....engines.geometry import Geometry
from ...host.paths import has_folder
from ..images.contents import HASH_BYTES, FileState
from .locks import FOREIGN, Hold
from .store_layout import FORMAT, begin_files, boot_id, disk_error, last_opened, read_meaning, write_index

RECORD = np.dtype(
    [
        *((name, "<u4") for name in ("state", "height", "width", "check")),
        *((name, "<i8") for name in ("bytes", "mtime_ns", "ctime_ns")),
        ("inode", "<u8"),
        ("content", f"V{HASH_BYTES}"),
    ]
)
EMPTY, READY, UNREADABLE = 0, 1, 2
"""Values of a record's `state`."""
_FIELDS = struct.Struct(f"<4I3qQ{HASH_BYTES}s")  # as RECORD


class CaseRecord(NamedTuple):
    """A record of `RECORD`; `file`: the state of the image file, `content`: its hash."""

    state: int
    height: int
    width: int
    file: FileState
    content: bytes

    @staticmethod
    def of(written: bytes) -> CaseRecord:
        """The record that was written."""
        state, height, width, _, *file, content = _FIELDS.unpack(written)
        return CaseRecord(state, height, width, FileState(*file), content)


_CHECK = slice(RECORD.fields["check"][1], RECORD.fields["check"][1] + 4)  # type: ignore[index]


def _checked(record: bytes, content: NDArray[np.uint8] | str | None) -> bytes:
    """A record with the checksum of it and its content: pixels, or the text of a reason."""
    from .checksums import checksum  # compiles

    if isinstance(content, str):
        data = hashlib.sha256(content.encode(errors="surrogatepass")).digest()
    else:
        data = b"" if content is None else content.tobytes()
    words = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), np.uint32)
    check = int(checksum(np.frombuffer(record, np.uint32), words)).to_bytes(4, "little")
    return record[: _CHECK.start] + check + record[_CHECK.stop :]


def is_whole(record: bytes, content: NDArray[np.uint8] | str | None) -> bool:
    """Whether a record and its content are as they were written."""
    return record == _checked(record, content)


def store_bytes(count: int, geometry: Geometry) -> int:
    """Size in bytes of a store of `count` images when all of them are prepared."""
    return count * (geometry.size**2 + RECORD.itemsize)


@dataclass
class StoreFiles:
    """Open files of a store; `pixels` uint8 [N, S, S], or [P, 6280], and `records` [N] are read-only maps of them.

    Data are written through `pixel_file` and `record_file`, not through the maps: a full disk then raises an error
    instead of killing the process. `writes`: whether this process may write.
    """

    folder: Path
    pixels: NDArray[np.uint8]
    records: NDArray[np.void]
    pixel_file: int
    record_file: int
    hold: Hold
    writes: bool

    @staticmethod
    def take(
        folder: Path,
        about: Mapping[str, object],
        count: int,
        row: tuple[int, ...],
        rows: int | None = None,
        wait: Callable[[Path], None] | None = None,
    ) -> tuple[StoreFiles | None, str]:
        """As `open`, after taking a hold on the folder, which is created. Also says why this process does not write;
        empty if it does.

        wait: called when another process writes; this one then waits until it can. None instead of files where nobody
        may write here and there is nothing to read. Raises RunError when the folder cannot be written.
        """
        try:
            hold = Hold.take(folder, None if wait is None else lambda: wait(folder))
        except OSError as error:
            if wait is not None or error.errno not in FOREIGN or not has_folder(folder.parent):
                raise disk_error(folder, error) from error
            return None, f"{folder} cannot be made ({error.strerror}): images are not kept."
        try:
            files = StoreFiles.open(folder, about, count, row, hold, rows)
        except BaseException as error:
            hold.release()
            if isinstance(error, OSError):
                raise disk_error(folder, error) from error
            raise
        if files is None:
            hold.release()
        why = f"cannot be written ({hold.refused})" if hold.refused else "is in use by another process"
        return files, ("" if hold.writes else f"{folder} {why}: its images are read, the rest is decoded and not kept.")

    @staticmethod
    def open(
        folder: Path, about: Mapping[str, object], count: int, row: tuple[int, ...], hold: Hold, rows: int | None = None
    ) -> StoreFiles | None:
        """Opens the files; creates them again when they are damaged or their index differs from `about`.

        count: records; row: shape of a row of pixels.bin, of which there are `rows`, default one for each record. A
        hold that only reads creates nothing: None when there is nothing to read. Raises OSError.
        """
        meaning = {"format": FORMAT, **about, "cases": count, "side": row[0]}
        shape = (count if rows is None else rows, *row)
        sizes = {"pixels.bin": math.prod(shape), "records.bin": count * RECORD.itemsize}
        boot = boot_id()
        last = last_opened(folder, meaning, sizes)
        if not hold.writes:
            if last not in ("", boot):
                return None
            with contextlib.suppress(FileNotFoundError):  # the writer may be rebuilding the store now
                return StoreFiles._map(folder, count, shape, hold)
            return None
        if last not in ("", boot):
            begin_files(folder, sizes)
        if last != boot:
            write_index(folder, meaning, boot)
        return StoreFiles._map(folder, count, shape, hold)

    @staticmethod
    def _map(folder: Path, count: int, shape: tuple[int, ...], hold: Hold) -> StoreFiles:
        how = (os.O_RDWR if hold.writes else os.O_RDONLY) | os.O_CLOEXEC
        pixel_file = os.open(folder / "pixels.bin", how)
        try:
            record_file = os.open(folder / "records.bin", how)
        except OSError:
            os.close(pixel_file)
            raise
        pixels, records = np.zeros((0, *shape[1:]), np.uint8), np.zeros(0, RECORD)
        if 0 not in shape:
            pixels = np.memmap(folder / "pixels.bin", np.uint8, "r", shape=shape).view(np.ndarray)
        if count:
            records = np.memmap(folder / "records.bin", RECORD, "r", shape=(count,)).view(np.ndarray)
        return StoreFiles(folder, pixels, records, pixel_file, record_file, hold, hold.writes)

    def write(
        self,
        index: int,
        record: bytes,
        content: NDArray[np.uint8] | str | None,
        *,
        record_only: bool = False,
        row: int | None = None,
    ) -> None:
        """Writes a record, with its checksum, after its `content`: pixels, from row `index` or `row` on, or a reason.

        record_only: the content is there. Raises RunError.
        """
        offset = index * RECORD.itemsize
        try:
            if isinstance(content, str) and not record_only:
                self._add_reason(index, content)
            elif content is not None and not record_only:
                if self.records[index]["state"] != EMPTY:
                    _write_all(self.record_file, bytes(RECORD.itemsize), offset)
                begin = (index if row is None else row) * math.prod(self.pixels.shape[1:])
                _write_all(self.pixel_file, np.ascontiguousarray(content).data.cast("B"), begin)
            _write_all(self.record_file, _checked(record, content), offset)
        except OSError as error:
            raise disk_error(self.folder, error) from error

    def _add_reason(self, index: int, reason: str) -> None:
        line = json.dumps({"case": index, "reason": reason}, ensure_ascii=True) + "\n"
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self.folder / "reasons.jsonl", how, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def reasons(self) -> dict[int, str]:
        """The last reason of every unreadable case; empty if a killed process wrote only a part of the line."""
        last_reasons: dict[int, str] = {}
        with contextlib.suppress(OSError):
            for line in (self.folder / "reasons.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    entry = json.loads(line)
                    last_reasons[int(entry["case"])] = str(entry["reason"])
        return {
            index: last_reasons.get(index, "") for index in np.flatnonzero(self.records["state"] == UNREADABLE).tolist()
        }

    def close(self) -> None:
        """Flushes to the disk, marks the store as closed, and releases the lock; never fails.

        On a full disk the mark cannot be written; the store is then lost only if the machine loses power. When
        flushing fails, the content of the disk is unknown: the index is deleted, and the store is rebuilt next time.
        """
        if self.writes:
            index = self.folder / "index.json"
            try:
                os.fsync(self.pixel_file)
                os.fsync(self.record_file)
            except OSError:
                with contextlib.suppress(OSError):
                    index.unlink(missing_ok=True)
            meaning = read_meaning(self.folder)
            if meaning is not None:
                with contextlib.suppress(OSError):
                    write_index(self.folder, meaning, None)
        os.close(self.pixel_file)
        os.close(self.record_file)
        self.hold.release()


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
