"""TensorRT and TensorRT for RTX: a plan of the bundle's graph, run in one stream, as a CUDA graph where that works."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..base import EngineInfo
from ..errors import EngineError, MissingExtraError
from ..plans.family import load_family
from ..plans.key import Profile, plan_key
from ..plans.store import PlanStore, provide_plan
from .device import SLOTS, DeviceEngine, DeviceScores
from .gpu import current_gpu, gpu_reason, load_cupy
from .out_of_memory import OutOfMemory, is_out_of_memory

_TENSORS = ("pixels", "text", "logits", "saliency")


@dataclass
class _Slot:
    """An execution context, its last batch, queries and addresses, and the CUDA graph captured with them; `memory` that
    it works in, if not its own."""

    context: Any
    bound: tuple[int, ...] = ()
    graph: Any = None
    memory: Any = None


class TensorRtEngine(DeviceEngine):
    """The image graph as a TensorRT plan, in the graph's own types; `options.tf32` lets float32 products use TF32.

    Each slot has its own execution context, since a captured CUDA graph is valid only while nothing changes the context
    it was captured from. A context holds the plan's scratch memory for its largest batch, so two contexts take twice as
    much as one; the weights are stored once.
    """

    backend = "tensorrt"
    _capture = True
    """Whether launches that come again are captured here; one that cannot be captured ends it."""

    def _load(self) -> EngineInfo:
        self._unload()  # releases what a failed attempt left when it ran out of memory
        family = load_family(self.backend)
        gpu = current_gpu(self.options.device)
        key = plan_key(self.bundle, family, gpu, Profile.of(self.bundle, self.max_batch), tf32=self.options.tf32)
        plan = provide_plan(self.bundle, family, key, build=self.options.build, say=self.options.say)
        self._family = family
        self._runtime = family.module.Runtime(family.logger)
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise self._failure(f"cannot load the plan of {self.bundle.name}")
        self._check_interface()
        self._key = key
        self._slots = [self._slot() for _ in range(SLOTS)]
        self._profile = key.profile
        return EngineInfo(self.backend, f"cuda:{self.options.device}", key.precision, f"{family.name} {family.version}")

    def _slot(self) -> _Slot:
        return _Slot(self._started(self._engine.create_execution_context()))

    def _started(self, context: Any) -> Any:
        if context is None or not context.set_optimization_profile_async(0, self.stream.ptr):
            raise self._failure(f"cannot start the plan of {self.bundle.name}")
        return context

    def _enqueue(self, pixels: Any, text: Any, scores: DeviceScores, slot: int) -> None:
        batch, queries = scores.logits.shape
        low, _, high = self._profile.queries
        if not low <= queries <= high:
            raise EngineError(
                f"The plan of {self.bundle.name} takes {low} to {high} queries, not {queries}; add these prompts to "
                "the bundle with xbench-fast prompts encode, and the plan will be built for them."
            )
        state = self._slots[slot]
        arrays = (pixels, text, scores.logits, scores.saliency)
        bound = (batch, queries, *(array.data.ptr for array in arrays))
        if state.bound != bound:
            self._bind(state, bound, arrays)
            self._execute(state)
            return
        # The second equal launch is captured: more are likely, and TensorRT needs one normal launch before a capture.
        if state.graph is None and self._capture:
            self._record(state)
        if state.graph is None:
            self._execute(state)
        else:
            state.graph.launch(self.stream)

    def _bind(self, state: _Slot, bound: tuple[int, ...], arrays: tuple[Any, ...]) -> None:
        if state.graph is not None:
            # The CUDA graph reads the context while it runs, and is invalid once the context has changed.
            self.stream.synchronize()
            state.graph = None
        state.bound = ()
        for name, array in zip(_TENSORS[:2], arrays[:2], strict=True):
            if not state.context.set_input_shape(name, tuple(array.shape)):
                raise self._failure(f"refuses {name} of shape {tuple(array.shape)}")
        for name, array in zip(_TENSORS, arrays, strict=True):
            if not state.context.set_tensor_address(name, array.data.ptr):
                raise self._failure(f"refuses the address of {name}")
        state.bound = bound

    def _execute(self, state: _Slot) -> None:
        if not state.context.execute_async_v3(self.stream.ptr):
            raise self._failure(f"failed on {self.bundle.name}")

    def _record(self, state: _Slot) -> None:
        """Captures a launch without executing it; the CUDA graph is used for this launch and the following ones."""
        runtime_error = self._cupy.cuda.runtime.CUDARuntimeError
        try:
            self.stream.begin_capture()
            started = state.context.execute_async_v3(self.stream.ptr)
            graph = self.stream.end_capture()
        except runtime_error as error:
            self._no_capture(str(error))
            return
        if not started:
            self._no_capture(self._family.explain())
            return
        state.graph = graph

    def _no_capture(self, reason: str) -> None:
        self._capture = False
        self.options.say(f"{self.bundle.name}: runs without CUDA graphs, because capturing one failed ({reason})")

    def _moved(self) -> None:
        for state in self._slots:
            state.bound = ()

    def _check_interface(self) -> None:
        tensors = {self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)}
        if tensors != set(_TENSORS):
            raise EngineError(
                f"The plan of {self.bundle.name} has the tensors {', '.join(sorted(tensors))} instead of "
                f"{', '.join(_TENSORS)}; delete its plans folder."
            )

    def _failure(self, what: str) -> Exception:
        words = self._family.explain()
        if is_out_of_memory(words):
            return OutOfMemory(words)
        return EngineError(f"{self._family.name} {self._family.version} {what}: {words}.")

    def _unload(self) -> None:
        # In this order: a context belongs to its engine, an engine to its runtime.
        for name in ("_slots", "_engine", "_runtime"):
            if hasattr(self, name):
                delattr(self, name)


class TensorRtRtxEngine(TensorRtEngine):
    """As `TensorRtEngine`, with TensorRT for RTX, whose makers do not claim support for data-centre GPUs.

    It compiles kernels for a shape when the shape is first met: before the first launch with it, and kept next to the
    plan for the next run. It captures launches itself. Contexts work in CuPy's memory.
    """

    backend = "tensorrt-rtx"
    _capture = False

    def _slot(self) -> _Slot:
        trt, config = self._family.module, self._engine.create_runtime_config()
        config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
        config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        config.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        if not hasattr(self, "_kernels"):
            self._kernels = config.create_runtime_cache()
            kept = PlanStore.of(self.bundle).kernels(self._key)
            if kept is not None and not self._kernels.deserialize(kept):
                self._family.explain()  # for another driver or version: it starts empty
        config.set_runtime_cache(self._kernels)
        context, size = self._engine.create_execution_context(config), int(self._engine.device_memory_size_v2)
        if context is None:
            raise self._failure(f"cannot start the plan of {self.bundle.name}")
        with self.stream:  # as the buffers
            memory = self._cupy.empty(max(size, 1), np.uint8)
        context.set_device_memory(memory.data.ptr, size)
        return _Slot(self._started(context), memory=memory)

    def _unload(self) -> None:
        if hasattr(self, "_slots"):
            made = self._kernels.serialize()
            if made is not None:
                PlanStore.of(self.bundle).keep_kernels(self._key, bytes(made))
        super()._unload()
        if hasattr(self, "_kernels"):
            del self._kernels


def tensorrt_rtx_doubt(device: int = 0) -> str | None:
    """Why `auto` does not choose TensorRT for RTX: it cannot run, or the library does not list this GPU."""
    reason = tensorrt_rtx_reason(device)
    if reason is not None:
        return reason
    gpu = current_gpu(device)
    named = getattr(load_family("tensorrt-rtx").module, "ComputeCapability", None)
    if hasattr(named, f"SM{gpu.capability.replace('.', '')}"):
        return None
    return f"its makers do not name {gpu.name} (compute capability {gpu.capability}); ask for it to try it"


def _reason(name: str, device: int = 0) -> str | None:
    """None if TensorRT, or TensorRT for RTX, can run on this GPU, else why not."""
    try:
        family = load_family(name)
    except (MissingExtraError, EngineError) as error:
        return str(error)
    reason = gpu_reason(device)
    if reason is not None:
        return reason
    try:
        with load_cupy().cuda.Device(device):
            if family.module.Builder(family.logger) is None:
                return family.explain()
    except (RuntimeError, TypeError) as error:
        return f"it does not start ({error})"
    return None


tensorrt_reason = partial(_reason, "tensorrt")
tensorrt_rtx_reason = partial(_reason, "tensorrt-rtx")
