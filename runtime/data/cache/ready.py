"""Reads many prepared images at once: one compiled loop that compares checksums, without an object for an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..datasets.pixels import ReadyImages
from ..images.contents import Contents
from .store_files import READY, RECORD, StoreFiles

_WORDS = RECORD.itemsize // 4
_STATE, _SIZE, _FILE, _CONTENT = 0, slice(1, 3), slice(4, 12), slice(12, 16)  # words of a record


def read_ready(
    files: StoreFiles, slots: NDArray[np.int64], paths: Sequence[Path], contents: Contents, target: NDArray[np.uint8]
) -> ReadyImages:
    """Copies those images of `slots` to `target` uint8 [n, ...] that are whole and whose files, `paths`, are unchanged.

    Enters them in `contents`. The others must be read one by one.
    """
    count = len(slots)
    pixels = target.reshape(count, -1)
    if pixels.shape[1] % 8:
        return ReadyImages.none(count)
    from ..images.file_states import file_states  # compiles, as the next one
    from .checksums import read_pixels

    all_records = files.records.view(np.uint32).reshape(-1, _WORDS)
    records = all_records[slots]
    states = file_states(paths)
    intact = (records[:, _STATE] == READY) & (records[:, _FILE].copy().view(np.int64) == states).all(axis=1)
    read_pixels(files.pixel_file, records, slots, pixels.view(np.uint32), intact)
    if not files.writes:  # another process may have written meanwhile
        intact &= (all_records[slots] == records).all(axis=1)
    images = records[:, _CONTENT].copy().view(np.uint8)
    sizes = records[:, _SIZE].astype(np.int32)
    if intact.all():
        contents.note_all(paths, states, images)
    else:
        some = np.flatnonzero(intact)
        contents.note_all([paths[at] for at in some.tolist()], states[some], images[some])
        sizes[~intact] = 0
    return ReadyImages(intact, sizes, images)
