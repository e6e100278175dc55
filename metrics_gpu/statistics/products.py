"""Products of small matrices, on one thread of the BLAS of NumPy and SciPy.

The threads of OpenBLAS wait for the next product in a loop that uses a core each. The products of a table are small and
follow each other closely, so that the waiting costs more than the threads save. A command has one thread from its start
(`engines.commands.limit_blas`); this is for a process in which NumPy was loaded before.
"""

from __future__ import annotations

import sys
import threading
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray


def product(weights: NDArray[np.floating], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`weights` [R, N] @ `values` [N, K] or [N]; all are float64. Raises ValueError if they do not fit together."""
    with one_blas_thread():
        summed: NDArray[np.float64] = weights @ values
    return summed


class _OneThread:
    """The context of `one_blas_thread`. The number of threads belongs to the whole process: the first of the threads
    that are inside sets it, and the last one gives it back. A context of each would take that of another for the
    number before, and leave it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                libraries = _libraries("scipy.linalg" in sys.modules)
                # One thread may be the limit of somebody else, who gives back what was before.
                several = any(library["num_threads"] > 1 for library in libraries.info())
                self._limit = libraries.limit(limits=1) if several else None
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._limit is not None:
                _let_any_thread_set()  # not only the one that was first
                self._limit.restore_original_limits()
                _let_any_thread_set()


def _let_any_thread_set() -> None:
    """threadpoolctl 3.8 heeds only the thread that set OpenBLAS first, as long as it lives."""
    import threadpoolctl

    release = getattr(getattr(threadpoolctl, "OpenBLASController", None), "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


_ONE_THREAD: Final = _OneThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """A context in which the BLAS of NumPy, and of SciPy where it is loaded, uses one thread; it costs 0.01 ms. Several
    threads may be inside, and one may enter it again."""
    return _ONE_THREAD


@cache
def _libraries(with_scipy: bool) -> Any:
    """The libraries that are loaded, looked for once, and once more when SciPy has loaded its own."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
