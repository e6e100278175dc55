"""The part that only a machine with CUDA can run: cuDNN's fused convolutions, the stream, CUDA graphs.

Unproven on hardware: it was written against PyTorch's documentation, on a machine without a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from ...errors import EngineError
from ..out_of_memory import OutOfMemory, is_out_of_memory
from .kernels import Convolution, PlainKernels


class CudnnKernels:
    """Convolution, bias, sum and ReLU in one call of cuDNN, where it has one; else as `PlainKernels`.

    say: receives the reason when cuDNN refuses a fused call; none is tried again then.
    """

    def __init__(self, channels_last: bool, say: Callable[[str], None]) -> None:
        self.channels_last = channels_last
        self._plain, self._say, self._works = PlainKernels(channels_last), say, True

    def convolve(self, asked: Convolution) -> Tensor:
        if not (self._works and asked.relu and asked.image.is_cuda and len(asked.window.size) == 2):
            return self._plain.convolve(asked)
        window = asked.window
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        image = asked.image.contiguous(memory_format=layout)
        how = (asked.bias, window.strides, window.before, window.dilations, asked.groups)
        try:
            if asked.addend is None:
                return torch.cudnn_convolution_relu(image, asked.weight, *how)
            addend = asked.addend.contiguous(memory_format=layout)
            return torch.cudnn_convolution_add_relu(image, asked.weight, addend, 1.0, *how)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if is_out_of_memory(str(error)):
                raise
            self._works = False
            self._say(f"convolutions run without fusion, because cuDNN refuses one ({_words(error)})")
            return self._plain.convolve(asked)


class CudaDevice:
    """GPU `number`, in the stream with the address `stream`; see `device.Device`.

    channels_last: the layout of images, which tensor cores need. tf32: whether float32 products round their inputs.
    """

    def __init__(
        self, number: int, stream: int, *, channels_last: bool, tf32: bool, say: Callable[[str], None]
    ) -> None:
        self.where = torch.device("cuda", number)
        self.kernels = CudnnKernels(channels_last, say)
        self._tf32 = tf32
        self._stream: torch.cuda.Stream = torch.cuda.ExternalStream(stream, self.where)  # type: ignore[no-untyped-call]
        # One pool of memory for all captures. A capture leaves nothing in it for another one: its results are copied
        # out before it ends, and two never run at once in one stream.
        self._pool = torch.cuda.graph_pool_handle()

    def tensor(self, array: Any) -> Tensor:
        return torch.as_tensor(array, device=self.where)

    def launch(self, work: Callable[[], None]) -> None:
        with translated(), torch.cuda.stream(self._stream), torch.inference_mode(), exact_products(self._tf32):
            work()

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # Only this thread's calls can spoil the capture: another one may allocate while it feeds the next batch.
        capturing = torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local")
        with translated(), torch.inference_mode(), exact_products(self._tf32), capturing:
            work()

        def replay() -> None:
            with translated(), torch.cuda.stream(self._stream):
                graph.replay()

        return replay

    def release(self) -> None:
        with torch.cuda.device(self.where):
            torch.cuda.empty_cache()


class _Products:
    """The settings of products in this process, and how many threads need them now: the first sets them, the last puts
    back those before. A thread that needs the others waits. Each for itself, one would compute with the settings that
    another has put back."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside, self._tf32 = 0, False
        self._before: list[tuple[Any, str, Any]] = []

    @contextmanager
    def during(self, tf32: bool) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._inside or self._tf32 == tf32)
            if not self._inside:
                self._tf32 = tf32
                self._before = [(holder, name, getattr(holder, name)) for holder, name, _ in _settings(tf32)]
                _set(_settings(tf32))
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                if not self._inside:
                    _set(self._before)
                    self._changed.notify_all()


def _settings(tf32: bool) -> list[tuple[Any, str, Any]]:
    matmul: Any = torch.backends.cuda.matmul
    cudnn: Any = torch.backends.cudnn
    precision = "tf32" if tf32 else "ieee"
    return [
        (matmul, "fp32_precision", precision),
        (cudnn.conv, "fp32_precision", precision),
        (matmul, "allow_fp16_reduced_precision_reduction", False),
        (matmul, "allow_bf16_reduced_precision_reduction", False),
        (cudnn, "benchmark", False),
    ]


def _set(settings: Sequence[tuple[Any, str, Any]]) -> None:
    for holder, name, value in settings:
        setattr(holder, name, value)


_PRODUCTS: Final = _Products()


def exact_products(tf32: bool) -> AbstractContextManager[None]:
    """Products in the types of the graph, with sums in float32; PyTorch's settings are put back afterwards.

    They belong to the whole process. By default cuDNN rounds float32 images to TF32, and sums of half-precision
    products may be rounded in between. Algorithms are not timed: another run may choose others, whose sums have other
    last bits.
    """
    return _PRODUCTS.during(tf32)


@contextmanager
def translated() -> Iterator[None]:
    """PyTorch's errors as OutOfMemory or EngineError."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(_words(error)) from error
    except RuntimeError as error:
        if is_out_of_memory(str(error)):
            raise OutOfMemory(_words(error)) from error
        raise EngineError(_words(error)) from error


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:600]
