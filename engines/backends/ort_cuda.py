"""ONNX Runtime's CUDA provider: inputs and outputs bound by device pointer, all work in the engine's own stream.

The library copies nothing. CuPy owns the buffers and the stream; where CuPy cannot be used, a plain session that copies
from and to the host is used instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import Engine, EngineInfo, EngineOptions, Scores
from ..bundle import Bundle
from ..errors import EngineError
from .copying import CopyingEngine
from .device import DeviceEngine, DeviceFeatures, DeviceScores
from .gpu import gpu_reason
from .graph_cut import PIXELS, TEXT, too_large
from .ort_cuda_session import cuda_info, cuda_session, failure
from .ort_parts import OrtParts, PartFeatures
from .ort_session import load_onnxruntime
from .out_of_memory import OutOfMemory
from .torch_reasons import one_line

_NONE = -1  # the library's number for a run that neither captures nor replays
_MOST_CAPTURES = 16  # of a session, which keeps them all: two slots, and again after the buffers or features moved
# Earlier versions wait for the GPU after each replay (onnxruntime pull request 28686 of May 2026). Then the host could
# not prepare the next batch meanwhile, which costs more than launches do.
_REPLAYS_WITHOUT_WAITING = (1, 28)


def cuda_engine(bundle: Bundle, *, threads: int | None = None, options: EngineOptions | None = None) -> Engine:
    """An `OrtCudaEngine`, or a `HostCudaEngine` where CuPy cannot be used."""
    reason = gpu_reason((options or EngineOptions()).device)
    if reason is None:
        return OrtCudaEngine(bundle, threads=threads, options=options)
    return HostCudaEngine(bundle, threads=threads, options=options, reason=reason)


class OrtCudaEngine(DeviceEngine):
    """The image graph on ONNX Runtime's CUDA provider, in its own types; `options.tf32` lets float32 products use
    TF32.

    Where `options.pad` gives all batches one shape, the provider captures a launch that comes a second time, and
    replays it. It does so for graphs without control flow of which it runs everything but arithmetic on shapes, and
    refuses others when it loads them. A capture is valid for its addresses and has a number; others need another one.
    The parts of a graph that falls apart are not captured: the library allocates the features.
    Unproven on hardware: it was written against the library's documentation, on a machine without a GPU.
    """

    backend = "onnxruntime-cuda"

    def _load(self) -> EngineInfo:
        info = cuda_info(self, self.backend)
        release = tuple(int(part) for part in load_onnxruntime().__version__.split(".")[:2])
        self._open_session(capture=self.options.pad and release >= _REPLAYS_WITHOUT_WAITING)
        return replace(info, detail=f"{info.detail}, CUDA graphs") if self._capture else info

    def _open_session(self, *, capture: bool) -> None:
        self._unload()
        self._capture = capture
        self._stream = {"user_compute_stream": str(self.stream.ptr)}
        if capture:
            try:
                self._session = cuda_session(self, provider={**self._stream, "enable_cuda_graph": "1"})
            except EngineError:
                self._capture = False
        if not self._capture:
            self._session = cuda_session(self, provider=self._stream)
        self._divided: OrtParts | None = None
        self._bindings: dict[tuple[int, ...], Any] = {}
        self._captures: dict[tuple[int, ...], int] = {}
        self._numbers = iter(range(1, _MOST_CAPTURES + 1))
        self._how = {number: self._run_options(number) for number in range(-1, _MOST_CAPTURES + 1)}

    def _run_options(self, capture: int) -> Any:
        how = load_onnxruntime().RunOptions()
        how.log_severity_level = 4
        # Without this every run waits for the GPU.
        how.add_run_config_entry("disable_synchronize_execution_providers", "1")
        if self._capture:
            how.add_run_config_entry("gpu_graph_id", str(capture))
        return how

    def _enqueue(self, pixels: Any, text: Any, scores: DeviceScores, slot: int) -> None:
        key = (slot, *scores.logits.shape, int(text.data.ptr))
        own_buffer = pixels.data.ptr == self._buffers[slot][0].data.ptr
        binding = self._bindings.get(key) if own_buffer else None
        captures = len(self._captures)
        capture = _NONE if binding is None else self._capture_of(key)
        try:
            if binding is None:
                binding = self._bind(self._session, {PIXELS: pixels, TEXT: text}, vars(scores))
                if own_buffer:
                    self._bindings[key] = binding
            self._session.run_with_iobinding(binding, self._how[capture])
        except Exception as error:  # see open_session
            translated = failure(self.bundle, self.backend, error)
            if len(self._captures) == captures or isinstance(translated, OutOfMemory):
                raise translated from error
            self.options.say(
                f"{self.bundle.name}: runs without CUDA graphs, because capturing one failed ({one_line(error)})"
            )
            self._open_session(capture=False)
            self._enqueue(pixels, text, scores, slot)

    def _capture_of(self, key: tuple[int, ...]) -> int:
        """The number of the capture for a launch that was made before; _NONE for a launch without one.

        While the next engine is opened in another thread, nothing is captured: what it allocates would end the capture.
        """
        if self._capture and key not in self._captures and not self.options.neighbour.busy:
            number = next(self._numbers, _NONE)
            if number != _NONE:
                self._captures[key] = number
        return self._captures.get(key, _NONE)

    def _enqueue_image(self, pixels: Any) -> PartFeatures | str:
        if self._divided is None:
            try:
                divided = OrtParts.of(self.bundle.file("image"), lambda part: cuda_session(self, part, self._stream))
            except OutOfMemory:
                return "the GPU has no memory for its parts too"
            if isinstance(divided, str):
                return divided
            self._divided = divided
        with self._running():
            binding = self._bind(self._divided.image, {PIXELS: pixels}, {})
            for name in self._divided.names:
                binding.bind_output(name, "cuda", self.options.device)
            self._divided.image.run_with_iobinding(binding, self._how[_NONE])
            features = PartFeatures(pixels, binding.get_outputs())
        return too_large(features.size) or features

    def _enqueue_text(self, features: DeviceFeatures, text: Any, scores: DeviceScores) -> None:
        divided = self._divided
        assert divided is not None
        with self._running():
            # The library reads the shape of the pixels alone: their buffer may hold another batch by now.
            given = {name: array for name, array in ((PIXELS, features.pixels), (TEXT, text)) if name in divided.read}
            binding = self._bind(divided.text, given, vars(scores))
            for name, value in zip(divided.names, features.values.values, strict=True):
                if name in divided.read:
                    binding.bind_ortvalue_input(name, value)
            divided.text.run_with_iobinding(binding, self._how[_NONE])

    @contextmanager
    def _running(self) -> Iterator[None]:
        """Translates the library's errors."""
        try:
            yield
        except Exception as error:  # see open_session
            raise failure(self.bundle, self.backend, error) from error

    def _bind(self, session: Any, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
        binding, number = session.io_binding(), self.options.device
        for name, array in inputs.items():
            dtype = np.uint8 if name == PIXELS else np.float32
            binding.bind_input(name, "cuda", number, dtype, tuple(array.shape), array.data.ptr)
        for name, array in outputs.items():
            binding.bind_output(name, "cuda", number, np.float32, tuple(array.shape), array.data.ptr)
        return binding

    def _moved(self) -> None:
        self._bindings.clear()
        self._captures.clear()

    def _unload(self) -> None:
        # In this order: a binding belongs to its session.
        for name in ("_bindings", "_session", "_divided"):
            if hasattr(self, name):
                delattr(self, name)


class HostCudaEngine(CopyingEngine):
    """The same graph where CuPy cannot be used, for `reason`: every batch is copied to the GPU and back."""

    backend = "onnxruntime-cuda"

    def __init__(
        self,
        bundle: Bundle,
        *,
        threads: int | None = None,
        options: EngineOptions | None = None,
        reason: str = "it is not asked for",
    ) -> None:
        super().__init__(bundle, threads=threads, options=options)
        self._reason = reason

    def _load(self) -> EngineInfo:
        info = cuda_info(self, self.backend)
        self._session = cuda_session(self)
        self._divided: OrtParts | None = None
        self.options.say(
            f"{self.bundle.name}: batches are copied to the GPU and back, because CuPy cannot be used: {self._reason}"
        )
        return info

    def _compute(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        try:
            return Scores(*self._session.run(["logits", "saliency"], {"pixels": pixels, "text": text}))
        except Exception as error:  # see open_session
            raise failure(self.bundle, self.backend, error) from error

    def _compute_features(self, pixels: NDArray[np.uint8]) -> Any:
        if self._divided is None:
            divided = OrtParts.of(self.bundle.file("image"), lambda part: cuda_session(self, part))
            if isinstance(divided, str):
                return divided
            self._divided = divided
        try:
            features = self._divided.encode(pixels)
        except Exception as error:  # see open_session
            raise failure(self.bundle, self.backend, error) from error
        return too_large(features.size) or features

    def _compute_scores(self, features: Any, text: NDArray[np.float32]) -> Scores:
        assert self._divided is not None
        try:
            return self._divided.ask(features, text)
        except Exception as error:  # see open_session
            raise failure(self.bundle, self.backend, error) from error

    def _close(self) -> None:
        del self._session
        self._divided = None
