"""The states of many files at once, asked from the system by compiled code, so that other threads run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ....metrics_gpu.compiled import compiled, readonly

# Linux: statx(2), the same on every processor. The fields are numbered as words of 64 bits of its struct.
_STATX: Final = types.ExternalFunction(
    "statx", types.int32(types.int32, types.uintp, types.int32, types.uint32, types.uintp)
)
_HERE, _FOLLOW, _BASIC = -100, 0, 0x7FF  # relative names; links are followed; the fields of stat(2)
_WORDS: Final = 32  # the struct has 256 bytes
_MODE, _INODE, _SIZE, _CTIME, _MTIME = 3, 4, 5, 12, 14  # a time has seconds and, in the next word, nanoseconds
_KIND, _REGULAR, _SECOND = 0o170000, 0o100000, 1_000_000_000


def _states(names: NDArray[np.uint8], states: NDArray[np.int64]) -> None:
    """Enters the state of each of `names`, of which every one ends with 0; -1 where there is no regular file."""
    data, start = np.zeros(_WORDS, np.int64), 0
    for i in range(len(states)):
        fails = _STATX(_HERE, names.ctypes.data + start, _FOLLOW, _BASIC, data.ctypes.data)
        while names[start]:
            start += 1
        start += 1
        if fails or (data[_MODE] >> 32) & _KIND != _REGULAR:
            states[i] = -1
            continue
        states[i, 0], states[i, 3] = data[_SIZE], data[_INODE]
        for at, field in ((1, _MTIME), (2, _CTIME)):
            states[i, at] = data[field] * _SECOND + (data[field + 1] & 0xFFFFFFFF)


_states_c = compiled(_states, types.void(readonly(types.uint8, 1), types.int64[:, ::1]))


def file_states(paths: Sequence[Path]) -> NDArray[np.int64]:
    """int64 [n, 4]: the current states of image files, as `FileState` has them, -1 of one that is no file or cannot be
    accessed."""
    names = [*map(str, paths), ""]
    text = "\0".join(names)
    if text.count("\0") >= len(names):  # no file has a name with a zero byte
        text = "\0".join("" if "\0" in name else name for name in names)
    states: NDArray[np.int64] = np.empty((len(paths), 4), np.int64)
    _states_c(np.frombuffer(os.fsencode(text), np.uint8), states)
    return states
