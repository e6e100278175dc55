"""Whether a result file is whole: its checksum, and what holds for the counts of every map and region.

The checksum is kept in the file's own footer and covers every bit of the file. A file is written with 64 zeros in place
of it. The checksum is the SHA-256 of that file, and then replaces the zeros. It stays with the file when run.json is
lost, and when a shard is copied. The rules for counts find damage in files of versions that wrote no checksum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from .schema import GRID, STATUSES, THRESHOLD_COUNT, result_schema

if TYPE_CHECKING:
    import pyarrow as pa

_FIELD: Final = b"xbench_checksum"
_PREFIX: Final = b"sha256:"
_ZEROS: Final = b"0" * 64
BLANK: Final = {_FIELD: _PREFIX + _ZEROS}
"""Metadata with which a file is written before `seal`."""
_TAIL: Final = 1 << 16  # the metadata are at the very end of a footer, and take about 3 kB
_BLOCK: Final = 1 << 20

Begun = tuple[Any, int]
"""A SHA-256 of the first bytes of a file, and their number."""


class HashedStream:
    """Writes to a stream, and hashes what it writes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._sha, self._length = stream, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview, /) -> int:
        """Writes all bytes; their number."""
        self._sha.update(data)
        written = self._stream.write(data)
        self._length += written
        return written

    def begun(self) -> Begun:
        """The hash and the number of the bytes that are written so far."""
        return self._sha.copy(), self._length


def seal(path: Path, begun: Begun | None = None) -> None:
    """Writes the checksum into a file that was written with `BLANK`. Raises OSError, RunError.

    begun: the hash of the first bytes of the file, before its footer, and their number, where they were hashed as they
    were written.
    """
    with path.open("rb+") as stream:
        place, _ = _find(stream)
        if place is None:
            raise RunError(f"{path} was written without room for its checksum; report this as a bug.")
        checksum = _digest(stream, place, begun)
        stream.seek(place)
        stream.write(checksum)


def file_digest(path: Path) -> str:
    """The checksum that a result file keeps, or the SHA-256 of one that keeps none (older versions). Raises OSError.

    Another content has another one, so it names the rows that something was made from.
    """
    with path.open("rb") as stream:
        place, _ = _find(stream)
        if place is None:
            stream.seek(0)
            return hashlib.file_digest(stream, "sha256").hexdigest()
        stream.seek(place)
        return stream.read(len(_ZEROS)).decode()


def checksum_fault(path: Path, *, needed: bool = False) -> str:
    """Why a file is damaged, in words; empty if it is whole, or has no checksum (older versions) and none is `needed`.

    Reads the whole file. Raises OSError.
    """
    with path.open("rb") as stream:
        place, promised = _find(stream)
        if not promised:
            return "it has no checksum" if needed else ""
        if place is None:
            return "its checksum cannot be read"
        stream.seek(place)
        stored = stream.read(len(_ZEROS))
        return "" if stored == _digest(stream, place) else "its checksum does not match"


def _find(stream: IO[bytes]) -> tuple[int | None, bool]:
    """The place of the checksum's digits, and whether the footer says that there is a checksum."""
    start = max(0, stream.seek(0, 2) - _TAIL)
    stream.seek(start)
    footer = stream.read()
    found = [match.end() for match in re.finditer(_PREFIX + rb"(?=[0-9a-f]{64})", footer)]
    return (start + found[-1] if found else None), bool(found) or _FIELD in footer


def _digest(stream: IO[bytes], place: int, begun: Begun | None = None) -> bytes:
    """The checksum of the file, as text, with zeros instead of the digits at `place`, which lie behind what `begun`."""
    sha, start = begun or (hashlib.sha256(), 0)
    stream.seek(start)
    left = place - start
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        sha.update(block)
        left -= len(block)
    sha.update(_ZEROS)
    stream.seek(place + len(_ZEROS))
    while block := stream.read(_BLOCK):
        sha.update(block)
    return sha.hexdigest().encode()


Counts = NDArray[np.integer[Any]]

_OF_PAIRS = ("overlap", "region_area", "argmax", "hit", "degenerate", "sub_pixel")  # what a pair with `area` must have


def fault_in_counts(area: Counts, overlap: Counts, region: Counts, pixels: Counts | int) -> str:
    """Which counts are not possible, in words; empty if all are.

    area, overlap [P, K] at rising thresholds; region [P]; pixels: of the grid, [P] or one number. With a higher
    threshold the map loses pixels inside and outside of the region, and gains none.
    """
    if not len(area):
        return ""
    whole, outside = np.broadcast_to(pixels, len(area)), area - overlap
    rules = (
        ((region < 0) | (region > whole), "a region is larger than the grid"),
        ((overlap[:, -1] < 0) | (overlap[:, 0] > region), "an overlap is not between 0 and the region"),
        ((outside[:, -1] < 0) | (outside[:, 0] > whole - region), "an area does not fit the grid and the region"),
        ((np.diff(overlap, axis=1) > 0).any(axis=1), "an overlap grows with the threshold"),
        ((np.diff(outside, axis=1) > 0).any(axis=1), "an area grows with the threshold"),
    )
    for broken, words in rules:
        if broken.any():
            return f"{words}, in {int(broken.sum())} of {len(area)} pairs"
    return ""


def fault_in_table(schema: pa.Schema, rows: int, entry: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Why a table of this schema and number of rows is not that of a cell, in words; empty if it is.

    columns: those that it must have; entry: of the cell in run.json.
    """
    wanted = result_schema()
    for name in columns:
        if schema.field(name).type != wanted.field(name).type:
            return f"its column '{name}' holds {schema.field(name).type}, not {wanted.field(name).type}"
    findings = len(entry["findings"])
    cases = entry.get("cases", rows // findings)
    if rows != cases * findings:
        return f"it has {rows} rows, not one for each of {cases} cases and {findings} findings"
    return ""


def fault_in_part(table: pa.Table, findings: Sequence[str]) -> str:
    """Why some rows are not valid as those of whole cases, each with all `findings`, in words; empty if they are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Rows are written case by case, each with all findings in this order.
    expected = pa.array([*findings] * (table.num_rows // len(findings)), pa.string())
    if not table["finding"].combine_chunks().equals(expected):
        return "it does not hold one row per case and finding"
    counted = table["area"].is_valid()
    for name in _OF_PAIRS:
        lost = pc.sum(pc.and_(counted, table[name].is_null())).as_py()
        if lost:
            return f"{lost} of {pc.sum(counted).as_py()} pairs have no '{name}'"
    regions = pc.and_(pc.equal(table["status"], "ok"), pc.greater(table["region_area"].fill_null(0), 0))
    lost = pc.sum(pc.and_(regions, pc.invert(counted))).as_py()
    if lost:
        return f"{lost} of {pc.sum(regions).as_py()} regions have no 'area'"
    return fault_in_rows(table, len(findings))


def fault_in_rows(table: pa.Table, findings: int) -> str:
    """Which values of rows are not possible, in words; empty if all are. `findings`: rows of each case."""
    import pyarrow as pa
    import pyarrow.compute as pc

    status = table["status"]
    if not pc.all(pc.is_in(status, pa.array(STATUSES))).as_py():
        return f"a status is none of {', '.join(STATUSES)}"
    labels = table["label"]
    if not pc.all(pc.or_kleene(pc.is_null(labels), pc.is_in(labels, pa.array([0, 1], pa.int8())))).as_py():
        return "a label is neither 0 nor 1"
    for name in ("case_id", "patient_id", "status", *(["image_hash"] if "image_hash" in table.column_names else [])):
        # The first row of each case, once for every row of the case.
        first = table[name].take(np.arange(table.num_rows) // findings * findings)
        if not table[name].combine_chunks().equals(first.combine_chunks()):
            return f"the rows of a case do not have one '{name}'"
    pairs = table.filter(table["area"].is_valid())
    argmax = pairs["argmax"].to_numpy()
    if ((argmax < 0) | (argmax >= GRID * GRID)).any():
        return "an 'argmax' is no pixel of the grid"
    area, overlap = (at_levels(pairs[name]) for name in ("area", "overlap"))
    return fault_in_counts(area, overlap, pairs["region_area"].to_numpy(), GRID * GRID)


def at_levels(column: Any) -> NDArray[np.int32]:
    """int32 [P, 101]: a column of counts at all thresholds."""
    flat: NDArray[np.int32] = column.combine_chunks().flatten().to_numpy()
    return flat.reshape(-1, THRESHOLD_COUNT)
