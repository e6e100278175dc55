"""The files of one store of prepared images."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .prepared_locks import Hold

__all__ = ["RECORD", "StoreFiles", "read_meaning"]

RECORD = np.dtype(
    [("state", "<u4"), ("height", "<u4"), ("width", "<u4"), ("spare", "<u4"), ("bytes", "<i8"), ("mtime_ns", "<i8")]
)
_FORMAT = 2


@dataclass
class StoreFiles:
    """Open files of a store; `pixels` uint8 [N, S, S] and `records` [N] are read-only maps of them.

    Writing goes through system calls, not through the maps: a full disk then is an error instead of a killed process.
    """

    folder: Path
    pixels: NDArray[np.uint8]
    records: NDArray[np.void]
    _pixel_file: int
    _record_file: int
    _hold: Hold

    @staticmethod
    def open(folder: Path, about: Mapping[str, object], count: int, side: int, hold: Hold) -> StoreFiles | None:
        """Opens the files, beginning them again when they are damaged or not `about` the same.

        With a hold that only reads nothing is begun: None, when there is nothing to read. Raises OSError.
        """
        meaning = {"format": _FORMAT, **about, "cases": count, "side": side}
        sizes = {"pixels.bin": count * side * side, "records.bin": count * RECORD.itemsize}
        boot = _boot_id()
        last = _last_opened(folder, meaning, sizes)
        if not hold.writes:
            if last not in ("", boot):
                return None
            with contextlib.suppress(FileNotFoundError):  # the writer may just be beginning it again
                return StoreFiles._map(folder, count, side, hold)
            return None
        if last not in ("", boot):
            _begin(folder, sizes)
        if last != boot:
            _write_index(folder, meaning, boot)
        return StoreFiles._map(folder, count, side, hold)

    @staticmethod
    def _map(folder: Path, count: int, side: int, hold: Hold) -> StoreFiles:
        how = (os.O_RDWR if hold.writes else os.O_RDONLY) | os.O_CLOEXEC
        pixel_file = os.open(folder / "pixels.bin", how)
        try:
            record_file = os.open(folder / "records.bin", how)
        except OSError:
            os.close(pixel_file)
            raise
        pixels, records = np.zeros((0, side, side), np.uint8), np.zeros(0, RECORD)
        if count:
            pixels = np.memmap(folder / "pixels.bin", np.uint8, "r", shape=(count, side, side)).view(np.ndarray)
            records = np.memmap(folder / "records.bin", RECORD, "r", shape=(count,)).view(np.ndarray)
        return StoreFiles(folder, pixels, records, pixel_file, record_file, hold)

    @property
    def writes(self) -> bool:
        """Whether this process may write."""
        return self._hold.writes

    def write(self, index: int, pixels: NDArray[np.uint8], record: NDArray[np.void]) -> None:
        """Pixels first, then the record that declares them ready; the slot is empty in between. Raises OSError."""
        if self.records[index]["state"] != 0:
            self.clear(index)
        _write_all(self._pixel_file, np.ascontiguousarray(pixels).tobytes(), index * pixels.size)
        _write_all(self._record_file, record.tobytes(), index * RECORD.itemsize)

    def mark(self, index: int, reason: str, record: NDArray[np.void]) -> None:
        """Keeps a reason, then the record. Raises OSError."""
        line = json.dumps({"case": index, "reason": reason}, ensure_ascii=True) + "\n"
        descriptor = os.open(
            self.folder / "reasons.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)
        _write_all(self._record_file, record.tobytes(), index * RECORD.itemsize)

    def clear(self, index: int) -> None:
        """Empties a slot. Raises OSError."""
        _write_all(self._record_file, bytes(RECORD.itemsize), index * RECORD.itemsize)

    def reasons(self) -> dict[int, str]:
        """The last reason of every case that has one; a line that a killed process left half written is skipped."""
        found: dict[int, str] = {}
        with contextlib.suppress(OSError):
            for line in (self.folder / "reasons.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, TypeError, KeyError):
                    entry = json.loads(line)
                    found[int(entry["case"])] = str(entry["reason"])
        unreadable = set(np.flatnonzero(self.records["state"] == 2).tolist())
        return {index: text for index, text in found.items() if index in unreadable}

    def close(self) -> None:
        """Flushes to the disk, notes that nothing is open, and gives the lock back; never fails.

        On a full disk the note stays as it is, which costs the store only if the machine then loses power. When
        flushing fails, nobody knows what the disk holds: the index goes, and the store is begun again next time.
        """
        if self.writes:
            index = self.folder / "index.json"
            try:
                os.fsync(self._pixel_file)
                os.fsync(self._record_file)
            except OSError:
                with contextlib.suppress(OSError):
                    index.unlink(missing_ok=True)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                _write_index(self.folder, json.loads(index.read_text(encoding="utf-8"))["meaning"], None)
        os.close(self._pixel_file)
        os.close(self._record_file)
        self._hold.release()


def read_meaning(folder: Path) -> dict[str, object] | None:
    """What the index of a store says about it; None when it is missing or damaged."""
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
    """The machine's start since which the store has been open; "": it was closed; None: it is damaged or foreign."""
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


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
