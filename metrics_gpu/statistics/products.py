"""Products of small matrices, on one thread of the BLAS of NumPy and SciPy.

The threads of OpenBLAS wait for the next product in a loop that uses a core each. The products of a table are small and
follow each other closely, so that the waiting costs more than the threads save. A command has one thread from its start
(`engines.commands.limit_blas`); this is for a process in which NumPy was loaded before.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


def product(weights: NDArray[np.floating], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`weights` [R, N] @ `values` [N, K] or [N]; all are float64. Raises ValueError if they do not fit together."""
    with one_blas_thread():
        summed: NDArray[np.float64] = weights @ values
    return summed


def one_blas_thread() -> Any:
    """A context in which the BLAS of NumPy, and of SciPy where it is loaded, uses one thread; it costs 0.01 ms."""
    return _libraries("scipy.linalg" in sys.modules).limit(limits=1)


@cache
def _libraries(with_scipy: bool) -> Any:
    """The libraries that are loaded, looked for once, and once more when SciPy has loaded its own."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
