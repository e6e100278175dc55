"""A device that has too little memory, in the words of several libraries."""

from __future__ import annotations

import re
from typing import Final

from ..bundle import Bundle
from ..errors import EngineError

_OUT_OF_MEMORY: Final = re.compile(
    r"failed to allocate memory|out ?of ?memory|smaller than requested bytes|_ALLOC_FAILED|cudaErrorMemoryAllocation",
    re.I,
)


class OutOfMemory(Exception):
    """The device has too little memory for this batch size; internal to this package."""


def is_out_of_memory(words: str) -> bool:
    """Whether a library's message says that the device has too little memory."""
    return _OUT_OF_MEMORY.search(words) is not None


def does_not_fit(bundle: Bundle) -> EngineError:
    """The error for a model that runs out of memory even with the smallest batch."""
    return EngineError(
        f"{bundle.name} does not fit the memory of the GPU, not even one image at a time; free the GPU, or use "
        "--engine onnxruntime-cpu."
    )
