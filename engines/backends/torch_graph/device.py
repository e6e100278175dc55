"""What an engine needs of a device: work in its stream, views of its arrays, launches that are captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from .kernels import Kernels


class Device(Protocol):
    """A device with one stream."""

    @property
    def where(self) -> torch.device:
        """As PyTorch names it."""
        ...

    @property
    def kernels(self) -> Kernels:
        """How it computes convolutions."""
        ...

    def tensor(self, array: Any) -> Tensor:
        """An array of the device as a tensor of the same memory."""
        ...

    def launch(self, work: Callable[[], None]) -> None:
        """Enqueues `work` in the stream. Raises OutOfMemory or EngineError."""
        ...

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """A function that enqueues again what `work` enqueues; now nothing is computed. Raises OutOfMemory, or
        EngineError where the work cannot be captured."""
        ...

    def release(self) -> None:
        """Gives memory back that no tensor uses."""
        ...
