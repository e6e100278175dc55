"""Compiles the loops of this package with numba: the options, the cache on disk, and types of arguments."""

from __future__ import annotations

import logging
import multiprocessing
from typing import Any, Final

import numba
from numba import types
from numba.core import event

OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}
"""Options of every compiled function: other threads may run, and division by zero gives NaN or infinity. Without
`fastmath`, so nothing is fused or reordered."""


class _Announcement(event.Listener):  # type: ignore[misc]  # numba has no types
    """Logs one line before numba compiles a loop of this package for the first time in a process.

    Most compilations are of the first evaluation after an installation, and take about 20 s together on one core; later
    processes read the cache. numba starts this event only if the cache has no compiled loop. A process that another one
    started as its worker is silent, because each of them would log the same line."""

    def __init__(self) -> None:
        self.done = multiprocessing.parent_process() is not None

    def on_start(self, compilation: event.Event) -> None:
        dispatcher = compilation.data["dispatcher"]
        if self.done or not dispatcher.py_func.__module__.startswith(_PACKAGE):
            return
        self.done = True
        kept = dispatcher.stats.cache_path is not None
        logging.getLogger(__name__).warning(COMPILING, KEPT if kept else NOT_KEPT)

    def on_end(self, compilation: event.Event) -> None:
        """Nothing: a user waits for what follows the start."""


COMPILING: Final = "Compiling loops with numba, for up to half a minute: %s."
KEPT: Final = "later commands take them from a cache"
NOT_KEPT: Final = "no folder for a cache can be written, so each command compiles them; NUMBA_CACHE_DIR can name one"
_PACKAGE: Final = __name__.partition(".")[0] + "."
event.register("numba:compile", _Announcement())


def compiled(function: Any, signature: Any = None) -> Any:
    """njit with an on-disk cache, or without it where neither the package nor the home directory is writable.

    signature: of a loop that Python calls; None: a part of such loops, which is put into each of them. Otherwise every
    call of a part with a row of an array counts the references to it, with two locked additions: they took 0.26 of the
    time of the sweep (14 x 14 maps, 31.6 us a pair, 23.6 without, one core of an AMD EPYC).
    """
    options = {**OPTIONS, "forceinline": signature is None}
    try:
        return numba.njit(signature, cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(signature, **options)(function)


def readonly(dtype: Any, ndim: int) -> Any:
    """Type of a C-contiguous array that the function only reads."""
    return types.Array(dtype, ndim, "C", readonly=True)
