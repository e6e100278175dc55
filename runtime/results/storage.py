"""Writes the files of a run atomically: to a temporary name, flushed, then renamed. A file is never half written.

A cell is computed in chunks. Each chunk becomes a part file, a whole Parquet file; when the last one exists, their row
groups are joined as they are. All of them have the cell's content key and a checksum in their footer; a file with
another key, or a damaged one, counts as missing. Every page has a checksum too, which is compared when it is read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError, RunError
from ...engines.visible_text import visible_json
from .integrity import BLANK, HashedStream, checksum_fault, seal
from .schema import count_faults, reading

if TYPE_CHECKING:
    import pyarrow as pa

    from .row_groups import JoinedFiles, ParsedFile

KEY_FIELD = "xbench_cell_key"

_READERS: Final = 2  # threads that read parts ahead of their merging, and parts that wait

_ROWS: Final = 4096  # whose regions are in memory at once

# Dictionaries of floats and counts would be larger than the data themselves; the bytes of a map's values compress
# better when they are split into four streams. Nobody selects rows by the least and greatest value of a map or a count.
_COMPRESSION: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": False,
    "use_byte_stream_split": ["saliency.list.element"],
    "write_page_checksum": True,
    "write_statistics": ["model", "dataset", "case_id", "patient_id", "finding", "status", "label", "path"],
}


def write_atomic(path: Path, write: Callable[[Path], object], option: str = "--out") -> None:
    """Calls `write` with a temporary path beside `path`, then renames it to `path`.

    option: what names another place, for the error of one that may not be written. Raises RunError when writing fails;
    the temporary file is removed and `path` is not changed.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(draft)
        # Without this, a power loss could leave the new name without its content.
        with draft.open("rb") as stream:
            os.fsync(stream.fileno())
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):  # if the folder is a file, this fails too
            draft.unlink(missing_ok=True)
        raise RunError(f"{path} cannot be written: {_disk_reason(error, option)}.") from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def is_draft(name: str) -> bool:
    """Whether `write_atomic` gives a file this name until it is whole."""
    return re.fullmatch(r"\..+\.\d+\.part", name) is not None


def remove_drafts(folder: Path) -> None:
    """Removes the files in `folder` that a killed process had not written to the end.

    No other process may write there. A file that cannot be removed stays.
    """
    for found in folder.iterdir() if folder.is_dir() else ():
        if is_draft(found.name):
            with suppress(OSError):
                found.unlink()


def write_bytes(path: Path, data: bytes, option: str = "--out") -> None:
    """Writes a file atomically; option: as of `write_atomic`. Raises RunError when writing fails."""
    write_atomic(path, lambda draft: draft.write_bytes(data), option)


def write_json(path: Path, data: object, option: str = "--out") -> None:
    """Writes `data` as indented JSON, atomically; option: as of `write_atomic`. Raises RunError."""
    write_bytes(path, json_text(data).encode(), option)


def json_text(data: object) -> str:
    """`data` as indented JSON, which a terminal can show."""
    return visible_json(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)) + "\n"


def result_fault(path: Path, key: str) -> str:
    """Why a file is not the whole result with this content key, in words after "the file"; empty if it is.

    The whole file is read: its checksum covers every bit. A file without a checksum, of an older version, passes with
    its key alone.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return "is missing"
    try:
        fault = checksum_fault(path)
        if fault:
            return f"is damaged: {fault}"
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as error:
        return f"is damaged: {' '.join(str(error).split())}"
    return "" if metadata.get(KEY_FIELD.encode()) == key.encode() else "has another key"


def read_columns(path: Path, columns: list[str] | None = None, **how: Any) -> pa.Table:
    """Columns of a result file; every page is compared with its checksum. Raises OSError and Arrow's errors.

    `how`: other arguments of `pyarrow.parquet.read_table`.
    """
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=columns, page_checksum_verification=True, **how)


def write_table(path: Path, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Writes `tables` into one file, atomically, with one of them in memory at a time. Raises RunError."""

    def write(draft: Path) -> None:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(draft, schema, **_COMPRESSION) as writer:
            for table in tables:
                writer.write_table(table)
            writer.add_key_value_metadata(BLANK)
        seal(draft)

    write_atomic(path, write)


class CellFiles:
    """The files of one cell inside `folder`: `<stem>-<key>.parquet` and, until it is finished, its parts."""

    def __init__(self, folder: Path, stem: str, key: str) -> None:
        self.key = key
        self.final = folder / f"{stem}-{key[:16]}.parquet"
        self.parts = folder / f"{stem}-{key[:16]}.parts"

    def finished(self) -> bool:
        """Whether the whole cell is on disk with this key; remaining parts of a finished cell are removed."""
        if self.fault():
            return False
        shutil.rmtree(self.parts, ignore_errors=True)
        return True

    def fault(self) -> str:
        """Why the cell is not `finished`, in words after "its result file"; empty if it is."""
        return result_fault(self.final, self.key)

    def part(self, index: int) -> Path:
        """The path of part `index`."""
        return self.parts / f"{index:06d}.parquet"

    def has_part(self, index: int) -> bool:
        """Whether part `index` is on disk, whole and with this key."""
        return not result_fault(self.part(index), self.key)

    def write_part(self, index: int, table: pa.Table) -> None:
        """Stores the rows of one chunk. Raises RunError."""
        write_table(self.part(index), [table], table.schema)

    def take_part(self, index: int, content: bytes) -> None:
        """Stores a part file that another process made. Raises RunError."""
        write_bytes(self.part(index), content)

    def coverage(self, findings: int) -> dict[str, int]:
        """Images of the finished cell, with `findings` rows each, that are "missing" or "unreadable", and its regions
        that are "outside" their image, "clipped" or "empty".

        Raises DataError when the file is damaged.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            table = read_columns(self.final, ["status", "region_fault"])
        except (OSError, pa.ArrowException) as error:
            raise DataError(
                f"{self.final} is damaged ({error}); delete that file and run the same command again."
            ) from error
        status = table["status"]
        images = {
            name: int(pc.sum(pc.equal(status, name)).as_py() or 0) // findings for name in ("missing", "unreadable")
        }
        return {**images, **count_faults(table["region_fault"])}

    def merge(self, count: int, schema: pa.Schema) -> None:
        """Joins parts 0..count-1 into the final file, with three of them in memory; what is encoded stays as it is.
        `schema`: of a cell without a part.

        Raises RunError when writing fails, and DataError for a damaged part, which is deleted so that the same command
        computes it again. The parts are removed only after the rename.
        """

        def write(draft: Path) -> None:
            from .row_groups import JoinedFiles

            with draft.open("wb") as stream, ThreadPoolExecutor(_READERS) as readers:
                hashed = HashedStream(stream)
                joined = JoinedFiles(hashed)
                # The next parts are read and compared with their checksums while this one is hashed and written.
                waiting: deque[Future[ParsedFile]] = deque()
                for index in range(count + _READERS):
                    if index < count:
                        waiting.append(readers.submit(self._read, self.part(index)))
                    if index >= _READERS and waiting:
                        self._join(joined, waiting.popleft().result(), self.part(index - _READERS))
                begun = hashed.begun()
                joined.finish()
            seal(draft, begun)

        if count:
            write_atomic(self.final, write)
        else:
            write_table(self.final, [], schema)
        shutil.rmtree(self.parts, ignore_errors=True)

    @staticmethod
    def _read(path: Path) -> ParsedFile:
        from .row_groups import ParsedFile

        try:
            if fault := checksum_fault(path):
                raise ValueError(fault)
            return ParsedFile.of(path.read_bytes())
        except (OSError, ValueError) as error:
            raise _deleted(path, error) from error

    @staticmethod
    def _join(joined: JoinedFiles, part: ParsedFile, path: Path) -> None:
        try:
            joined.add(part)
        except ValueError as error:  # not OSError, of the file that is written
            raise _deleted(path, error) from error


def _deleted(path: Path, fault: Exception) -> DataError:
    """The error for a part that is not whole, which is deleted so that the same command computes it again."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return DataError(f"{path} was damaged ({fault}) and is deleted; run the same command again.")


def _disk_reason(error: OSError, option: str) -> str:
    kept = "what is finished is kept; run the same command again then"
    text: Any = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "No space left" in str(error):
        return f"the disk is full ({text}); free some space: {kept}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return f"{text}; choose another place with {option}"
    return f"{text}; {kept}"


def region_digests(path: Path, rows: NDArray[np.bool_], sizes: NDArray[np.int32]) -> NDArray[np.uint64]:
    """uint64 [P]: a digest of the bits and the size in pixels of the region, for each row of a result file in `rows`.

    Equal regions have equal digests in every run, on every machine. Files from before regions were stored have the
    sizes alone. Raises RunError for a file that cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sha, digests, first = partial(hashlib.blake2b, digest_size=8), list[bytes](), 0
    salts = [size.to_bytes(4, "little") for size in sizes.tolist()]
    with reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        # A part at a time: the regions are most of a file's bytes.
        for batch in file.iter_batches(_ROWS, columns=["region"]) if "region" in file.schema_arrow.names else ():
            found = batch["region"].filter(pa.array(rows[first : first + len(batch)])).to_pylist()
            first += len(batch)
            mine = salts[len(digests) : len(digests) + len(found)]
            digests += [sha(each or b"", salt=salt).digest() for each, salt in zip(found, mine, strict=True)]
    digests += [sha(b"", salt=salt).digest() for salt in salts[len(digests) :]]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
