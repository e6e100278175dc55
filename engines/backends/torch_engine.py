"""PyTorch's operators as an engine, without TensorRT and onnxruntime-gpu. On a GPU it uses CUDA graphs and copies no
scores to the host; on the CPU it is for tests. Torch is imported inside functions."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, EngineOptions, Scores, chosen_precision
from ..bundle import Bundle
from ..errors import EngineError
from ..precisions import LOW_TYPES
from .copying import CopyingEngine
from .device import DeviceEngine, DeviceFeatures, DeviceScores
from .gpu import gpu_reason, gpu_seen, no_such_gpu
from .graph_cut import WHOLE, too_large
from .out_of_memory import OutOfMemory
from .torch_reader import GraphReader
from .torch_reasons import torch_cuda_reason

if TYPE_CHECKING:
    from torch import Tensor

    from .torch_graph.device import Device

_MOST_GRAPHS: Final = 16
"""CUDA graphs that are kept: a run has one shape and two slots, a server as many as it meets sizes of batches."""


def torch_engine(bundle: Bundle, *, threads: int | None = None, options: EngineOptions | None = None) -> Engine:
    """A `TorchEngine`, or a `CopyingTorchEngine` where CuPy or the GPU cannot be used."""
    device = (options or EngineOptions()).device
    by_cupy = gpu_reason(device)  # raises for a number that no GPU has
    reason = torch_cuda_reason(device)
    if reason is None and by_cupy is None:
        return TorchEngine(bundle, threads=threads, options=options)
    return CopyingTorchEngine(bundle, threads=threads, options=options, reason=reason)


class TorchEngine(GraphReader, DeviceEngine):
    """The image graph in PyTorch's operators, in its own types; `options.tf32` lets float32 products use TF32.

    A launch from the slot's own buffer that comes a second time is captured as a CUDA graph: the first lets the
    libraries load their kernels, which no capture can hold.
    """

    _capture = True

    def _device_part(self) -> Device:
        from .torch_graph.cuda import CudaDevice

        low = self.bundle.manifest.precision in LOW_TYPES
        return CudaDevice(
            self.options.device,
            self.stream.ptr,
            channels_last=low or self.options.tf32,
            tf32=self.options.tf32,
            say=lambda line: self.options.say(f"{self.bundle.name}: {line}"),
        )

    def _load(self) -> EngineInfo:
        import torch

        from .torch_graph.program import Program

        precision = chosen_precision(self.bundle, tf32=self.options.tf32)
        self._part = self._device_part()
        self._program = Program(self._read(), self._part.where, self._part.kernels)
        self._replays: OrderedDict[tuple[int, ...], Any] = OrderedDict()
        self._met: set[tuple[int, ...]] = set()
        return EngineInfo(self.backend, f"cuda:{self.options.device}", precision, f"torch {torch.__version__}")

    def _enqueue(self, pixels: Any, text: Any, scores: DeviceScores, slot: int) -> None:
        arrays = (pixels, text, scores.logits, scores.saliency)
        key = (*(int(array.data.ptr) for array in arrays), *scores.logits.shape)
        with self._running():
            if key in self._replays:
                self._replays.move_to_end(key)
                self._replays[key]()
            else:
                self._run_new(key, arrays, own_buffer=pixels.data.ptr == self._buffers[slot][0].data.ptr)

    def _enqueue_image(self, pixels: Any) -> list[Tensor] | str:
        if self._program.cut is None:
            return WHOLE
        features: list[Tensor] = []
        with self._running():
            plan, images = self._program.image_plan(tuple(pixels.shape)), self._part.tensor(pixels)
            self._part.launch(lambda: features.extend(plan([images])))
        return too_large(sum(tensor.nbytes for tensor in features) // len(pixels)) or features

    def _enqueue_text(self, features: DeviceFeatures, text: Any, scores: DeviceScores) -> None:
        with self._running():
            plan = self._program.text_plan(tuple(features.pixels.shape), tuple(text.shape))
            asked, *targets = (self._part.tensor(array) for array in (text, scores.logits, scores.saliency))
            self._part.launch(lambda: _copy(plan([*features.values, asked]), targets))

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Releases what it can when memory runs out; names the bundle in an error."""
        try:
            yield
        except OutOfMemory:
            self._moved()
            self._program.forget()
            self._part.release()
            raise
        except EngineError as error:
            raise EngineError(f"{self.bundle.name} failed on {self.backend}: {error}.") from error

    def _run_new(self, key: tuple[int, ...], arrays: tuple[Any, ...], *, own_buffer: bool) -> None:
        pixels, text, *targets = (self._part.tensor(array) for array in arrays)

        def work() -> None:
            plan = self._program.plan(tuple(pixels.shape), tuple(text.shape))
            _copy(plan((pixels, text)), targets)

        if key in self._met and self._capture:
            try:
                replay = self._part.capture(work)
            except EngineError as error:
                self._capture = False
                self.options.say(
                    f"{self.bundle.name}: runs without CUDA graphs, because capturing one failed ({error})"
                )
            else:
                self._keep(key, replay)
                replay()
                return
        self._part.launch(work)
        if own_buffer:
            self._met.add(key)

    def _keep(self, key: tuple[int, ...], replay: Any) -> None:
        if len(self._replays) >= _MOST_GRAPHS:
            self.stream.synchronize()  # it may run now
            self._replays.popitem(last=False)
        self._replays[key] = replay

    def _moved(self) -> None:
        if self._replays:
            self.stream.synchronize()
        self._replays.clear()
        self._met.clear()

    def _unload(self) -> None:
        for name in ("_replays", "_program"):
            if hasattr(self, name):
                delattr(self, name)
        self._graph = None
        if hasattr(self, "_part"):
            self._part.release()
            del self._part


class CopyingTorchEngine(GraphReader, CopyingEngine):
    """The same graph on the CPU, or on a GPU without CuPy: every batch is copied there and back.

    reason: why no GPU can be used; None on a GPU.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        options: EngineOptions | None = None,
        reason: str | None = "it is not asked for",
    ) -> None:
        super().__init__(bundle, threads=threads, options=options)
        self._reason = reason

    def _load(self) -> EngineInfo:
        import torch

        from .torch_graph.kernels import PlainKernels
        from .torch_graph.program import Program

        precision, device, say = chosen_precision(self.bundle, tf32=self.options.tf32), "cpu", self.options.say
        if self._reason is None:
            if (number := self.options.device) >= (count := torch.cuda.device_count()):
                raise no_such_gpu(number, count)
            device = f"cuda:{number}"
            why = gpu_reason(number)
            say(f"{self.bundle.name}: batches are copied to the GPU and back, because CuPy cannot be used: {why}")
        elif self.options.tf32:
            raise EngineError(f"TF32 is for GPUs, and torch runs {self.bundle.name} on the CPU: {self._reason}.")
        elif gpu_seen():
            say(f"{self.bundle.name}: torch runs on the CPU, because {self._reason}")
        # The CPU takes convolutions with the channels last in 0.85 of the time (ResNet-50, batches of 8, AVX2).
        low = self.bundle.manifest.precision in LOW_TYPES
        kernels = PlainKernels(channels_last=self._reason is not None or low or self.options.tf32)
        self._program = Program(self._read(), torch.device(device), kernels)
        return EngineInfo(self.backend, device, precision, f"torch {torch.__version__}")

    def _compute(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        with self._computing():
            inputs = [self._tensor(array) for array in (pixels, text)]
            return _on_host(self._program.plan(pixels.shape, text.shape)(inputs))

    def _compute_features(self, pixels: NDArray[np.uint8]) -> tuple[tuple[int, ...], list[Tensor]] | str:
        if self._program.cut is None:
            return WHOLE
        with self._computing():
            features = self._program.image_plan(pixels.shape)([self._tensor(pixels)])
        return too_large(sum(tensor.nbytes for tensor in features) // len(pixels)) or (pixels.shape, features)

    def _compute_scores(self, features: tuple[tuple[int, ...], list[Tensor]], text: NDArray[np.float32]) -> Scores:
        shape, tensors = features
        with self._computing():
            return _on_host(self._program.text_plan(shape, text.shape)([*tensors, self._tensor(text)]))

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        import torch

        return torch.tensor(array, device=self._program.where)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Computes with the engine's settings. Raises OutOfMemory, and EngineError with the bundle's name."""
        import torch

        from .torch_graph.cuda import exact_products, translated

        try:
            with (
                translated(),
                torch.inference_mode(),
                exact_products(self.options.tf32),
                _THREADS.limited(self.threads),
            ):
                yield
        except EngineError as error:
            raise EngineError(f"{self.bundle.name} failed on {self.backend}: {error}.") from error

    def _close(self) -> None:
        del self._program
        self._graph = None


def _copy(made: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for target, tensor in zip(targets, made, strict=True):
        if target.shape != tensor.shape:
            raise EngineError(f"the graph gave {tuple(tensor.shape)} instead of {tuple(target.shape)}")
        target.copy_(tensor)


def _on_host(made: list[Tensor]) -> Scores:
    return Scores(*(tensor.cpu().numpy().copy() for tensor in made))


class _Threads:
    """PyTorch's number of threads, which a thread has for itself and hands to those that begin after it. The number
    before is that of the first of the threads inside: the others may have begun with one that is not to last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = self._before = 0

    @contextmanager
    def limited(self, count: int | None) -> Iterator[None]:
        """PyTorch with this number of threads; None: as many as it has."""
        import torch

        with self._lock:
            if not self._inside:
                self._before = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(self._before if count is None else count)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                torch.set_num_threads(self._before)


_THREADS: Final = _Threads()
