"""Decodes the two run-length codings of the seven datasets to integers (docs/published-datasets.md §2, §5)."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError

MAX_SIDE, MAX_PIXELS = 32_768, 80_000_000  # as for images: far above any radiograph, still safe to allocate

_PAIRS = re.compile(r"[0-9]{1,10}(?:[ \t]+[0-9]{1,10})*")


def check_grid(height: int, width: int) -> None:
    """Raises DataError unless the size is plausible for a radiograph; a wrong size must not fill the memory."""
    if min(height, width) < 1 or max(height, width) > MAX_SIDE or height * width > MAX_PIXELS:
        raise DataError(f"A region cannot be drawn on a grid of {height} x {width} pixels; check the stated size.")


def check_runs(counts: NDArray[np.int64], size: tuple[int, int]) -> None:
    """Raises DataError unless the runs are not negative and end inside a grid of `size` (height, width)."""
    check_grid(*size)
    if counts.size and (counts.min() < 0 or counts.max() > MAX_PIXELS or counts.sum() > size[0] * size[1]):
        raise DataError(f"A run-length mask does not fit its grid of {size[0]} x {size[1]}; check its counts.")


def check_filled(counts: NDArray[np.int64], size: tuple[int, int]) -> None:
    """Raises DataError unless the runs cover every pixel of a grid of `size` (height, width), as COCO's are.

    COCO's own encoder (rleEncode of pycocotools) writes the last run too, also of pixels outside. A list or a string
    that ends earlier was cut off, and the rest of the mask with it. SIIM's pairs leave the last gap out by definition.
    """
    check_runs(counts, size)
    if (filled := int(counts.sum())) != size[0] * size[1]:
        raise DataError(
            f"A run-length mask has runs of {filled} pixels, its grid of {size[0]} x {size[1]} has "
            f"{size[0] * size[1]}: it is cut off or of another size."
        )


def decode_pairs(text: str) -> NDArray[np.int64]:
    """Decodes SIIM's coding: (gap, length) pairs, each gap starts at the end of the previous run. Raises DataError."""
    if not _PAIRS.fullmatch(text):
        raise DataError("A run-length mask holds something other than whole numbers of at most 10 digits.")
    counts = np.array(text.split(), np.int64)
    if counts.size % 2:
        raise DataError(f"A run-length mask has {counts.size} numbers; it needs pairs of gap and length.")
    return counts


def decode_coco(text: str) -> NDArray[np.int64]:
    """Decodes COCO's compressed string: 5 bits per character; from the fourth run on, difference to the run two before.

    Raises DataError for an invalid character and for a truncated string.
    """
    try:
        codes = np.frombuffer(text.encode("ascii"), np.uint8).astype(np.int64) - 48
    except UnicodeEncodeError:
        codes = np.array([-1])
    last = np.flatnonzero(codes & 32 == 0)  # the characters that end a number
    if codes.size and (codes.min() < 0 or codes.max() >= 64):
        raise DataError("A compressed run-length string holds a character that does not belong there.")
    if codes.size and (last.size == 0 or last[-1] != codes.size - 1):
        raise DataError("A compressed run-length string ends in the middle of a number.")
    if not codes.size:
        return codes
    first = np.concatenate(([0], last[:-1] + 1))
    digits = last - first + 1
    if digits.max() > 7:
        raise DataError("A compressed run-length string holds a number of more than 35 bits.")
    digit = np.arange(codes.size) - np.repeat(first, digits)
    values = np.add.reduceat((codes & 31) << (5 * digit), first)
    values -= np.where(codes[last] & 16, np.int64(1) << (5 * digits), 0)
    # Runs 1, 3, 5, ... and 2, 4, 6, ... are two chains of differences; run 0 belongs to neither.
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def paint(counts: NDArray[np.int64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """bool [height, width] of column-major runs; pixels after the last run are 0."""
    height, width = size
    flat = np.zeros(height * width, np.bool_)
    ends = np.cumsum(counts)
    for start, stop in zip(ends[0::2].tolist(), ends[1::2].tolist(), strict=False):
        flat[start:stop] = True
    return flat.reshape(width, height).T
