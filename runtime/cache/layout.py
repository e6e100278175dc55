"""The files of a store of prepared images or masks: names and content, and how they are opened, closed and rebuilt.

A store is one directory per (dataset, geometry, decoder), or for the masks of a dataset (`masks`), with

    pixels.bin    uint8 [N, S, S], sparse: only prepared slots take space; of masks uint8 [P, 6280]
    records.bin   one 64-byte record per case: state, native size, checksum, and the state and hash of the image file
    reasons.jsonl why an image could not be read
    index.json    the meaning of pixels.bin and records.bin
    lock, use     which process may write, which processes have it open (`locks`)

After a power loss a record can be on disk without its pixels. A store that was not closed before a restart of the
machine is therefore emptied. The checksum of a record covers the record and its pixels, or its reason; an entry that
does not match it is never used.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...engines.geometry import Geometry
from ..datasets.base import Case
from ..host.paths import has_folder
from ..images.decode import reader_version
from .locks import FOREIGN, Hold
from .records import EMPTY, RECORD, UNREADABLE, checked

__all__ = [
    "StoreFiles",
    "disk_error",
    "read_meaning",
    "safe_name",
    "store_bytes",
    "store_folder",
]

_FORMAT = 5


def store_folder(
    cache_root: Path, dataset_name: str, cases: Sequence[Case], geometry: Geometry, reader: str | None = None
) -> tuple[Path, dict[str, object]]:
    """The folder of the store of these cases, and the content of its index: key, dataset, geometry and reader.

    `reader` names the decoder of the images; default: the exact one on the CPU.
    """
    reader = reader or reader_version()
    digest = hashlib.sha256()
    for part in (reader, geometry.key, *(f"{case.case_id}\0{case.image.absolute()}" for case in cases)):
        digest.update(part.encode(errors="surrogatepass") + b"\n")
    key = digest.hexdigest()
    about: dict[str, object] = {"key": key, "dataset": dataset_name, "geometry": geometry.key, "reader": reader}
    return Path(cache_root) / f"{safe_name(dataset_name)}-{geometry.key}-{key[:16]}", about


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
        return files, (
            "" if hold.writes else f"{folder} {why}: what it holds is read, the rest is decoded and not kept."
        )

    @staticmethod
    def open(
        folder: Path, about: Mapping[str, object], count: int, row: tuple[int, ...], hold: Hold, rows: int | None = None
    ) -> StoreFiles | None:
        """Opens the files; creates them again when they are damaged or their index differs from `about`.

        count: records; row: shape of a row of pixels.bin, of which there are `rows`, default one for each record. A
        hold that only reads creates nothing: None when there is nothing to read. Raises OSError.
        """
        meaning = {"format": _FORMAT, **about, "cases": count, "side": row[0]}
        shape = (count if rows is None else rows, *row)
        sizes = {"pixels.bin": math.prod(shape), "records.bin": count * RECORD.itemsize}
        boot = _boot_id()
        last = _last_opened(folder, meaning, sizes)
        if not hold.writes:
            if last not in ("", boot):
                return None
            with contextlib.suppress(FileNotFoundError):  # the writer may be rebuilding the store now
                return StoreFiles._map(folder, count, shape, hold)
            return None
        if last not in ("", boot):
            _begin(folder, sizes)
        if last != boot:
            _write_index(folder, meaning, boot)
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
        place = index * RECORD.itemsize
        try:
            if isinstance(content, str) and not record_only:
                self._add_reason(index, content)
            elif content is not None and not record_only:
                if self.records[index]["state"] != EMPTY:
                    _write_all(self.record_file, bytes(RECORD.itemsize), place)
                begin = (index if row is None else row) * math.prod(self.pixels.shape[1:])
                _write_all(self.pixel_file, np.ascontiguousarray(content).data.cast("B"), begin)
            _write_all(self.record_file, checked(record, content), place)
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
        found: dict[int, str] = {}
        with contextlib.suppress(OSError):
            for line in (self.folder / "reasons.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    entry = json.loads(line)
                    found[int(entry["case"])] = str(entry["reason"])
        return {index: found.get(index, "") for index in np.flatnonzero(self.records["state"] == UNREADABLE).tolist()}

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
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                _write_index(self.folder, json.loads(index.read_text(encoding="utf-8"))["meaning"], None)
        os.close(self.pixel_file)
        os.close(self.record_file)
        self.hold.release()


def read_meaning(folder: Path) -> dict[str, object] | None:
    """The content of a store's index; None when it is missing or damaged."""
    try:
        found = json.loads((folder / "index.json").read_text(encoding="utf-8"))["meaning"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _boot_id() -> str:
    """Names the current start of the machine, so that a store left open before a power loss is recognised."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _last_opened(folder: Path, meaning: Mapping[str, object], sizes: Mapping[str, int]) -> str | None:
    """The machine's start at which the store was opened; "": it was closed; None: it is damaged or is another store."""
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if index["meaning"] != meaning or any((folder / name).stat().st_size != sizes[name] for name in sizes):
            return None
        return "" if index["open_since_boot"] is None else str(index["open_since_boot"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _begin(folder: Path, sizes: Mapping[str, int]) -> None:
    for name in ("index.json", "reasons.jsonl", *sizes):
        (folder / name).unlink(missing_ok=True)
    for name, size in sizes.items():
        with (folder / name).open("wb") as stream:
            stream.truncate(size)


def _write_index(folder: Path, meaning: Mapping[str, object], boot: str | None) -> None:
    temporary = folder / "index.json.new"
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            json.dump({"meaning": meaning, "open_since_boot": boot}, stream)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    temporary.replace(folder / "index.json")


def safe_name(name: str) -> str:
    """The name of a dataset as the first part of a folder's name."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "dataset"


def disk_error(folder: Path, error: OSError) -> RunError:
    """The error for a failure of the disk that holds `folder`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"The disk is full: {folder} cannot take more prepared images; free space or choose another cache."
        )
    return RunError(f"Prepared images cannot be kept in {folder}: {error.strerror or error}; choose another cache.")


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
