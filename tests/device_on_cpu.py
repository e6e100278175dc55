"""As much of CuPy as the GPU engines and the evaluation on them use, over NumPy arrays: memory with addresses, streams,
captures, a device, and the sweep's kernels run from their own CUDA source where a library of them is given.

Kernels run at once, in order. Copies between host and device do not: one from pinned memory happens when another stream
waits for it, one to pinned memory when the host does, and whoever waits too little reads what was there before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import cupy_on_cpu
import numpy as np


class ndarray(cupy_on_cpu.ndarray):
    """An array of the device: it has an address, is copied explicitly and does not mix with arrays of the host."""

    def __array_finalize__(self, source):
        self.place = getattr(source, "place", None)

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self):
        return self.place

    def get(self, stream=None, order="C", out=None, blocking=True):
        if stream is not None:
            stream.upload()
        values = np.array(self.view(np.ndarray))
        if out is None:
            return values
        assert type(out) is np.ndarray and out.shape == self.shape and out.dtype == self.dtype
        out.view(np.uint8 if out.dtype == bool else out.dtype)[...] = 99
        job = Job(lambda: np.copyto(out, values))
        if blocking:
            job.run()
        else:
            stream.downloads.append(job)
        return out

    def set(self, values, stream=None):
        assert type(values) is np.ndarray and values.shape == self.shape and values.dtype == self.dtype
        assert values.flags.c_contiguous
        job = Job(lambda: np.copyto(self.view(np.ndarray), values))
        if stream is None:
            job.run()
        else:
            stream.uploads.append(job)

    def __setitem__(self, place, values):
        assert not on_host(values)
        super().__setitem__(place, values)


ndarray.__module__ = "cupy"


def on_host(value: Any) -> bool:
    return type(value) is np.ndarray and value.ndim > 0


class CUDARuntimeError(RuntimeError):
    """Whatever the runtime refuses."""


class OutOfMemoryError(MemoryError):
    """An allocation that does not fit."""


class Job:
    """A copy that is done once."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work: Callable[[], None] | None = work

    def run(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            work()


class Device:
    """A GPU, and which of them is current: the one entered last."""

    entered: ClassVar[list[Device]]

    def __init__(self, number: int, capability: str) -> None:
        self.id, self.compute_capability = number, capability

    def __enter__(self):
        type(self).entered.append(self)
        return self

    def __exit__(self, *_):
        type(self).entered.pop()


class Event:
    """Remembers what was enqueued before it."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.uploads: list[Job] | None = None
        self.downloads: list[Job] = []

    def arrive(self):
        """In the order of the device: copies to it have happened."""
        assert self.uploads is not None, "an event that was never recorded"
        for job in self.uploads:
            job.run()

    def synchronize(self):
        self.arrive()
        for job in self.downloads:
            job.run()


class Graph:
    """Launches that were captured."""

    def __init__(self, work: list[Callable[[], None]]) -> None:
        self.work, self.launches = work, 0

    def launch(self, stream):
        stream.upload()
        self.launches += 1
        for job in self.work:
            job()


class Stream:
    """Runs what is enqueued, or keeps it while a capture is under way."""

    made: ClassVar[list[Stream]]
    entered: ClassVar[list[Stream]]

    def __init__(self, non_blocking=False):
        self.ptr = id(self)
        self.capturing: list[Callable[[], None]] | None = None
        self.captures_fail = False
        self.graphs: list[Graph] = []
        self.uploads: list[Job] = []
        self.downloads: list[Job] = []
        type(self).made.append(self)

    def __enter__(self):
        type(self).entered.append(self)
        return self

    def __exit__(self, *_):
        type(self).entered.pop()

    def upload(self):
        for job in self.uploads:
            job.run()
        self.uploads.clear()

    def synchronize(self):
        assert self.capturing is None
        self.upload()
        for job in self.downloads:
            job.run()
        self.downloads.clear()

    def wait_event(self, event):
        event.arrive()

    def record(self, event=None):
        event = event or Event()
        event.uploads, event.downloads = list(self.uploads), list(self.downloads)
        return event

    def begin_capture(self, mode=None):
        if self.captures_fail:
            raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted")
        self.capturing = []

    def end_capture(self):
        self.graphs.append(Graph(self.capturing or []))
        self.capturing = None
        return self.graphs[-1]

    def enqueue(self, job: Callable[[], None]) -> None:
        if self.capturing is None:
            self.upload()
            job()
        else:
            self.capturing.append(job)


class Nvrtc:
    """A compiler that takes everything, or whose compilations end with the log `refusal`."""

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        self.options: list[Any] = []

    def getVersion(self):
        return (13, 2)

    def createProgram(self, src, name, headers, include_names):
        return 1

    def compileProgram(self, prog, options):
        self.options.append(options)
        if self.refusal:
            raise RuntimeError("NVRTC_ERROR_COMPILATION (6)")

    def getProgramLog(self, prog):
        return self.refusal

    def destroyProgram(self, prog):
        assert prog == 1


def fake_device(
    memory: int = 1 << 40,
    name: str = "NVIDIA H200",
    capability: tuple[int, int] = (9, 0),
    library: ctypes.CDLL | None = None,
    count: int = 1,
) -> Any:
    """A module for `sys.modules["cupy"]`: GPUs that refuse a single allocation above `module.memory` bytes.

    library: the sweep's kernels, as `cupy_on_cpu.build` makes them. `module.used` are the numbers of the GPUs with
    arrays; one after the first has its number in its name.
    """

    def current():
        return OwnDevice.entered[-1] if OwnDevice.entered else devices[0]

    def placed(values):
        array = values.view(ndarray)
        array.place = current()
        module.used.add(array.place.id)
        return array

    def empty(shape, dtype):
        array = placed(np.empty(shape, dtype))
        if array.nbytes > module.memory:
            raise OutOfMemoryError(f"out of memory allocating {array.nbytes} bytes")
        array.view(np.ndarray).view(np.uint8)[...] = 99
        return array

    class OwnStream(Stream):
        made: ClassVar[list[Stream]] = []
        entered: ClassVar[list[Stream]] = []

    class OwnDevice(Device):
        entered: ClassVar[list[Device]] = []

    devices = [OwnDevice(number, "".join(map(str, capability))) for number in range(count)]
    sweeping = cupy_on_cpu.fake_cupy(library) if library is not None else None
    default = OwnStream()
    module = SimpleNamespace(
        memory=memory,
        used=set(),
        ndarray=ndarray,
        empty=empty,
        zeros=lambda shape, dtype: placed(np.zeros(shape, dtype)),
        asarray=lambda values, dtype=None: placed(np.array(values, dtype)),
        ascontiguousarray=lambda values: np.ascontiguousarray(values).view(ndarray),
        get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
        launches=sweeping.launches if sweeping else [],
        cuda=SimpleNamespace(
            Device=lambda number=None: current() if number is None else devices[number],
            Stream=OwnStream,
            Event=Event,
            get_current_stream=lambda: OwnStream.entered[-1] if OwnStream.entered else default,
            alloc_pinned_memory=lambda count: bytearray(b"\x63" * count),
            function=sweeping.cuda.function if sweeping else None,
            nvrtc=Nvrtc(),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            runtime=SimpleNamespace(
                CUDARuntimeError=CUDARuntimeError,
                runtimeGetVersion=lambda: 13020,
                memcpyDeviceToDevice=3,
                memcpy2DAsync=cupy_on_cpu.Runtime().memcpy2DAsync,
                getDeviceCount=lambda: count,
                getDeviceProperties=lambda number: {
                    "name": f"{name} {number or ''}".strip().encode(),
                    "major": capability[0],
                    "minor": capability[1],
                },
            ),
        ),
    )
    module.streams = OwnStream.made
    return module
