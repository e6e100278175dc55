"""The checksum of what a store keeps, and many entries read and compared with theirs; compiled on import.

A checksum is the upper half of a sum of products (NH, of UMAC) over blocks of 4 kB, which are chained by a product:
another content has the same one with a chance of about 2**-32, and it takes a third of the time of CRC-32.

A library's hash cannot replace it: the stores that users kept have these checksums, and a block of images is compared
within the compiled loop that copies it, not by one call of Python for each image.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ....metrics_gpu.compiled import compiled, readonly

Words = NDArray[np.uint32]

_HALF: Final = 512  # words; a block has two halves
_KEYS: Final = np.frombuffer(hashlib.shake_256(b"prepared images").digest(8 * _HALF), "<u4").copy()
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)  # odd
_CHECK: Final = 3  # the word of a record that is its checksum
_PREAD: Final = types.ExternalFunction("pread", types.intp(types.int32, types.uintp, types.uintp, types.int64))


def _digest(words: Words, begun: Any) -> Any:
    """Chains an even number of words to `begun`."""
    chained = begun
    for start in range(0, len(words), 2 * _HALF):
        half = min(2 * _HALF, len(words) - start) // 2
        first, second = words[start : start + half], words[start + half : start + 2 * half]
        total = np.uint64(0)
        for i in range(half):
            total += np.uint64(np.uint32(first[i] + _KEYS[i])) * np.uint64(np.uint32(second[i] + _KEYS[_HALF + i]))
        chained = chained * _STEP + total
    return chained


_digest_c = compiled(_digest)


def _end(record: Words, digest: Any) -> Any:
    """The checksum of a record and the digest of its content."""
    facts = record.copy()
    facts[_CHECK] = 0
    return np.uint32((_digest_c(facts, digest) * _STEP) >> np.uint64(32))


_end_c = compiled(_end)


def _checksum(record: Words, content: Words) -> Any:
    return _end_c(record, _digest_c(content, np.uint64(len(content))))


def _read_pixels(file: int, records: Words, slots: NDArray[np.int64], out: Words, intact: NDArray[np.bool_]) -> None:
    size = 4 * out.shape[1]
    for i in range(len(slots)):
        # A map of the file would be faulted in by 16 pages, and unmapped: 7 us of system time a 224 x 224 image.
        intact[i] = intact[i] and _PREAD(file, out.ctypes.data + i * size, size, slots[i] * size) == size
        if intact[i]:
            digest = _digest_c(out[i], np.uint64(out.shape[1]))
            intact[i] = _end_c(records[i], digest) == records[i, _CHECK]


def _copy_masks(
    source: Words,
    records: Words,
    spans: NDArray[np.int64],
    rows: NDArray[np.int64],
    out: Words,
    intact: NDArray[np.bool_],
) -> None:
    for i in range(len(spans)):
        if intact[i]:
            content = source[spans[i, 0] : spans[i, 1]].reshape(-1)
            intact[i] = _end_c(records[i], _digest_c(content, np.uint64(len(content)))) == records[i, _CHECK]
    for i in range(len(rows)):
        out[i] = source[rows[i], : out.shape[1]]


_ONE, _TWO, _FLAGS = readonly(types.uint32, 1), readonly(types.uint32, 2), types.boolean[::1]
checksum = compiled(_checksum, types.uint32(_ONE, _ONE))
"""Of a record, 16 words, and its content, an even number of words; the record's own checksum does not count."""

read_pixels = compiled(
    _read_pixels, types.void(types.int32, _TWO, readonly(types.int64, 1), types.uint32[:, ::1], _FLAGS)
)
"""Reads the rows `slots` of an open file to `out`, where `intact` is true, and sets it to whether row and record,
[n, 16], are those that were written; false for a row that cannot be read. Needs no lock."""

copy_masks = compiled(
    _copy_masks,
    types.void(_TWO, _TWO, *[readonly(types.int64, n) for n in (2, 1)], types.uint32[:, ::1], _FLAGS),
)
"""As `read_pixels`, of a map of the file, `source`, and for entries of several rows: spans [n, 2] are the rows of an
entry, the first and the one behind the last. The beginnings of the rows `rows` are copied to `out`, whether they are
whole or not."""
