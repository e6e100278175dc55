"""The device part of the engine torch over the device made of arrays: PyTorch on the CPU, in order with its stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from xbench_fast.engines.backends import torch_engine, torch_reasons
from xbench_fast.engines.backends.torch_graph.kernels import PlainKernels


class HostDevice:
    """`launches` and `captures` count what was asked for; `failures` are what the next launches raise, or None."""

    def __init__(self, stream: Any) -> None:
        self.where, self.kernels, self._stream = torch.device("cpu"), PlainKernels(), stream
        self.launches = self.captures = self.releases = 0
        self.failures: list[Exception | None] = []

    def tensor(self, array: Any) -> torch.Tensor:
        tensor = torch.from_numpy(array.view(np.ndarray))
        assert tensor.data_ptr() == array.data.ptr, "no copy"
        return tensor

    def launch(self, work: Callable[[], None]) -> None:
        self.launches += 1
        error = self.failures.pop(0) if self.failures else None
        if error is not None:
            raise error
        self._stream.enqueue(self._quietly(work))

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        from xbench_fast.engines.errors import EngineError

        self.captures += 1
        try:
            self._stream.begin_capture()
        except RuntimeError as error:
            raise EngineError(str(error)) from error
        self._stream.enqueue(self._quietly(work))
        graph = self._stream.end_capture()
        return lambda: graph.launch(self._stream)

    def release(self) -> None:
        self.releases += 1

    def _quietly(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with torch.inference_mode():
                work()

        return run


def install(patch: pytest.MonkeyPatch) -> None:
    """The engine torch takes the device made of arrays for a GPU."""
    for module in (torch_engine, torch_reasons):
        patch.setattr(module, "torch_cuda_reason", lambda device=0: None)
    patch.setattr(torch_engine.TorchEngine, "_device_part", lambda engine: HostDevice(engine.stream))
