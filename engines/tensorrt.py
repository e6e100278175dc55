"""TensorRT and TensorRT for RTX: a plan of the bundle's graph, run in one stream, as a CUDA graph where that works."""

from __future__ import annotations

import re
from typing import Any

from .base import EngineInfo
from .device import DeviceEngine, DeviceScores, OutOfMemory, current_gpu, gpu_reason
from .errors import EngineError, MissingExtraError
from .plans.family import Family, load_family
from .plans.key import Profile
from .plans.provide import plan_key, provide_plan

__all__ = ["TensorRtEngine", "TensorRtRtxEngine", "tensorrt_reason", "tensorrt_rtx_reason"]

_TENSORS = ("pixels", "text", "logits", "saliency")


class TensorRtEngine(DeviceEngine):
    """The image graph as a TensorRT plan, in the graph's own types; `options.tf32` lets float32 products use TF32."""

    backend = "tensorrt"

    def _load(self) -> EngineInfo:
        family = load_family(self.backend)
        gpu = current_gpu(self.options.device)
        key = plan_key(self.bundle, family, gpu, Profile.of(self.bundle, self.max_batch), tf32=self.options.tf32)
        plan = provide_plan(self.bundle, family, key, build=self.options.build, say=self.options.say)
        self._family = family
        self._runtime = family.module.Runtime(family.logger)
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise self._failure(f"cannot load the plan of {self.bundle.name}")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise self._failure(f"cannot start the plan of {self.bundle.name}")
        self._check_interface()
        self._profile = key.profile
        self._graphs: dict[tuple[int, int, int, int], Any] = {}
        self._capture = True
        self._shape: tuple[int, int] | None = None
        self._context.set_optimization_profile_async(0, self.stream.ptr)
        return EngineInfo(self.backend, f"cuda:{self.options.device}", key.precision, f"{family.name} {family.version}")

    def _enqueue(self, pixels: Any, text: Any, scores: DeviceScores, slot: int) -> None:
        batch, queries = scores.logits.shape
        low, _, high = self._profile.queries
        if not low <= queries <= high:
            raise EngineError(
                f"The plan of {self.bundle.name} takes {low} to {high} queries, not {queries}; add these prompts to "
                "the bundle with xbench-fast prompts encode, and the plan will be built for them."
            )
        # A captured graph holds addresses and shapes; pixels of the caller's own come from a new address each time.
        captured = (slot, batch, queries, pixels.data.ptr)
        graph = self._graphs.get(captured)
        if graph is not None:
            graph.launch(self.stream)
            return
        self._bind(pixels, text, scores)
        self._execute()
        if self._capture and pixels.data.ptr == self._buffers[slot][0].data.ptr:
            self._record(captured)

    def _bind(self, pixels: Any, text: Any, scores: DeviceScores) -> None:
        context = self._context
        shape = scores.logits.shape
        if shape != self._shape:
            for name, array in (("pixels", pixels), ("text", text)):
                if not context.set_input_shape(name, tuple(array.shape)):
                    raise self._failure(f"refuses {name} of shape {tuple(array.shape)}")
            self._shape = shape
        for name, array in zip(_TENSORS, (pixels, text, scores.logits, scores.saliency), strict=True):
            if not context.set_tensor_address(name, array.data.ptr):
                raise self._failure(f"refuses the address of {name}")

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self.stream.ptr):
            raise self._failure(f"failed on {self.bundle.name}")

    def _record(self, captured: tuple[int, int, int, int]) -> None:
        """Captures the launch that was just made (TensorRT wants one before a capture); later ones replay it."""
        runtime_error = self._cupy.cuda.runtime.CUDARuntimeError
        try:
            self.stream.begin_capture()
            started = self._context.execute_async_v3(self.stream.ptr)
            graph = self.stream.end_capture()
        except runtime_error as error:
            self._no_capture(str(error))
            return
        if not started:
            self._no_capture(self._family.explain())
            return
        self._graphs[captured] = graph

    def _no_capture(self, reason: str) -> None:
        self._capture = False
        self.options.say(f"{self.bundle.name}: runs without CUDA graphs, because capturing one failed ({reason})")

    def _moved(self) -> None:
        self._graphs.clear()

    def _check_interface(self) -> None:
        found = {self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)}
        if found != set(_TENSORS):
            raise EngineError(
                f"The plan of {self.bundle.name} has the tensors {', '.join(sorted(found))} instead of "
                f"{', '.join(_TENSORS)}; delete its plans folder."
            )

    def _failure(self, what: str) -> Exception:
        words = self._family.explain()
        if re.search("out ?of ?memory", words, re.IGNORECASE):
            return OutOfMemory(words)
        return EngineError(f"{self._family.name} {self._family.version} {what}: {words}.")

    def _unload(self) -> None:
        self._graphs.clear()
        # In this order: a context belongs to its engine, an engine to its runtime.
        for name in ("_context", "_engine", "_runtime"):
            if hasattr(self, name):
                delattr(self, name)


class TensorRtRtxEngine(TensorRtEngine):
    """As `TensorRtEngine`, by TensorRT for RTX, whose makers promise nothing for data-centre GPUs."""

    backend = "tensorrt-rtx"


def tensorrt_reason() -> str | None:
    """None if TensorRT can run here, else why not."""
    return _reason("tensorrt")


def tensorrt_rtx_reason() -> str | None:
    """None if TensorRT for RTX can run here, else why not."""
    return _reason("tensorrt-rtx")


def _reason(name: str) -> str | None:
    try:
        family: Family = load_family(name)
    except (MissingExtraError, EngineError) as error:
        return str(error)
    reason = gpu_reason()
    if reason is not None:
        return reason
    try:
        if family.module.Builder(family.logger) is None:
            return family.explain()
    except (RuntimeError, TypeError) as error:
        return f"it does not start ({error})"
    return None
