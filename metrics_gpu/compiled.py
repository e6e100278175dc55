"""Compiles the loops of this package with numba: the options, the cache on disk, and types of arguments."""

from __future__ import annotations

from typing import Any, Final

import numba
from numba import types

OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy"}
"""Options of every compiled function: other threads may run, and division by zero gives NaN or infinity. Without
`fastmath`, so nothing is fused or reordered."""


def compiled(function: Any, signature: Any = None) -> Any:
    """njit with an on-disk cache, or without it where neither the package nor the home directory is writable."""
    try:
        return numba.njit(signature, cache=True, **OPTIONS)(function)
    except RuntimeError:
        return numba.njit(signature, **OPTIONS)(function)


def readonly(dtype: Any, ndim: int) -> Any:
    """Type of a C-contiguous array that the function only reads."""
    return types.Array(dtype, ndim, "C", readonly=True)
