"""The onnxruntime CUDA engine, over a module that checks its calls and a device made of arrays."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

import device_on_cpu
import fake_onnxruntime
import numpy as np
import pytest
import synthetic
from xbench_fast.engines.backends import cuda_libraries, gpu, ort_cuda, ort_cuda_session
from xbench_fast.engines.backends.cuda_libraries import lacking_libraries
from xbench_fast.engines.backends.device import DeviceEngine
from xbench_fast.engines.backends.gpu import gpu_reason
from xbench_fast.engines.backends.ort_cuda_session import cuda_reason
from xbench_fast.engines.backends.ort_session import IDENTITY, open_session
from xbench_fast.engines.base import EngineOptions, Neighbour
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import backend_status, choose, open_engine

TEXT = np.array([[1, 0], [-1, 3], [2, 1]], np.float32)
FULL = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer of size 939524096"


class World:
    def __init__(self, folder, patch):
        self.bundle = synthetic.make_bundle(folder / "blocks")
        self.patch, self.said = patch, []
        self.cupy = device_on_cpu.fake_device()
        patch.setitem(sys.modules, "cupy", self.cupy)
        for name in ("tensorrt", "tensorrt_rtx"):
            patch.setitem(sys.modules, name, None)
        self.install()

    def install(self, **behaviour):
        self.ort = fake_onnxruntime.make(self.cupy.streams, **behaviour)
        self.patch.setitem(sys.modules, "onnxruntime", self.ort)

    def open(self, **options):
        return open_engine(
            self.bundle, "onnxruntime-cuda", threads=2, options=EngineOptions(say=self.said.append, **options)
        )


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def check(engine, count, seed=0, text=TEXT):
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 1, 32, 32), dtype=np.uint8)
    scores = engine.run(pixels, text)
    logits, saliency = synthetic.model(pixels, text)
    np.testing.assert_array_equal(scores.logits, logits)
    np.testing.assert_array_equal(scores.saliency, saliency)


def test_scores_are_the_models_and_nothing_is_copied(world):
    with world.open(max_batch=4) as engine:
        assert isinstance(engine, DeviceEngine)
        for count in (1, 4, 3, 11):
            check(engine, count, seed=count)
        check(engine, 2, text=TEXT[:1])
        info = engine.info
    assert (info.backend, info.device, info.precision) == ("onnxruntime-cuda", "cuda:0", "fp32")
    assert info.detail == "onnxruntime 1.31.1" and not world.said and not world.ort.log["host_runs"]
    settings = world.ort.log["sessions"][-1].settings
    assert settings["use_tf32"] == "0" and settings["device_id"] == "0"
    assert settings["user_compute_stream"] == str(engine.stream.ptr)
    assert (settings["cudnn_conv_algo_search"], settings["prefer_nhwc"]) == ("HEURISTIC", "0")
    with world.open(tf32=True) as engine:
        assert engine.info.precision == "tf32" and world.ort.log["sessions"][-1].settings["use_tf32"] == "1"


def test_pointers_are_bound_once_per_slot_and_shape(world):
    with world.open(max_batch=4) as engine:
        for seed in range(4):
            check(engine, 4, seed)
        assert world.ort.log["bound"] == 4, "two inputs and two outputs, once"
        check(engine, 4, text=TEXT.copy() + 1)  # other features live elsewhere
        assert world.ort.log["bound"] == 8
        pixels = np.full((3, 1, 32, 32), 7, np.uint8)
        for slot in (0, 1):
            buffer = engine.input(slot, len(TEXT))
            buffer[:3].set(pixels, stream=engine.stream)
            scores = engine.submit(buffer[:3], TEXT, slot)
            engine.submit(world.cupy.asarray(pixels[:2]), TEXT, 1 - slot)
            np.testing.assert_array_equal(scores.saliency.get(), synthetic.model(pixels, TEXT)[1])


def test_buffers_belong_to_the_stream_that_uses_them(world, monkeypatch):
    """CuPy gives memory that is released back to its stream at once: another stream's work may still use it."""
    streams, waits = [], []
    empty, current = world.cupy.empty, world.cupy.cuda.get_current_stream
    monkeypatch.setattr(world.cupy, "empty", lambda *given: streams.append(current()) or empty(*given))
    with world.open(max_batch=4) as engine:
        wait = engine.stream.synchronize
        monkeypatch.setattr(engine.stream, "synchronize", lambda: waits.append(len(streams)) or wait())
        for queries in (1, 3, 2):
            engine.input(0, queries)
        assert len(streams) == 12 and set(map(id, streams)) == {id(engine.stream)}
        assert waits == [6, 12], "before another stream fills them"


def test_half_precision_prefers_the_channels_last(world):
    world.bundle.manifest = dataclasses.replace(world.bundle.manifest, precision="fp16")
    with world.open():
        assert world.ort.log["sessions"][-1].settings["prefer_nhwc"] == "1"


def test_padded_batches_have_one_shape_and_the_scores_of_what_was_given(world, monkeypatch):
    """From the host, from the engine's own buffer and from elsewhere on the device; also where CuPy is absent."""
    with world.open(max_batch=4, pad=True) as engine:
        for count in (4, 3, 1, 4, 6):
            check(engine, count, seed=count)
        assert world.ort.log["bound"] == 4, "one shape, so the pointers are bound once"
        assert all(shapes["pixels"][0] == 4 for shapes in world.ort.log["shapes"])
        pixels = np.full((3, 1, 32, 32), 7, np.uint8)
        buffer = engine.input(1, len(TEXT))
        buffer[:3].set(pixels, stream=engine.stream)
        own, other = engine.submit(buffer[:3], TEXT, 1), engine.submit(world.cupy.asarray(pixels[:2]), TEXT, 0)
        for scores, count in ((own, 3), (other, 2)):
            logits, saliency = synthetic.model(pixels[:count], TEXT)
            np.testing.assert_array_equal(scores.logits.get(), logits)
            np.testing.assert_array_equal(scores.saliency.get(), saliency)
        assert all(shapes["pixels"][0] == 4 for shapes in world.ort.log["shapes"])
    monkeypatch.setitem(sys.modules, "cupy", None)
    world.install()
    with world.open(max_batch=4, pad=True) as engine:
        check(engine, 6)
    assert world.ort.log["host_runs"] == [4, 4]


class Opening(Neighbour):
    busy = False


def graphs(world):
    numbers = list(world.ort.log["graphs"])
    world.ort.log["graphs"].clear()
    return numbers


def test_a_launch_that_comes_again_is_captured_and_replayed(world):
    with world.open(max_batch=4, pad=True) as engine:
        assert engine.info.detail == "onnxruntime 1.31.1, CUDA graphs" and not world.said
        assert world.ort.log["sessions"][-1].settings["enable_cuda_graph"] == "1"
        check(engine, 14)
        assert graphs(world) == [-1, 1, 1, 1], "with unused images every batch is full"
        pixels = np.random.default_rng(2).integers(0, 256, (4, 1, 32, 32), dtype=np.uint8)
        for slot in (1, 1, 0, 1):
            buffer = engine.input(slot, len(TEXT))
            buffer[:4].set(pixels, stream=engine.stream)
            scores = engine.submit(buffer[:4], TEXT, slot)
            np.testing.assert_array_equal(scores.saliency.get(), synthetic.model(pixels, TEXT)[1])
        assert graphs(world) == [-1, 2, 1, 2]


def test_another_address_is_another_capture_and_no_more_than_are_kept(world):
    with world.open(max_batch=4, pad=True) as engine:
        for turn in range(20):
            text = TEXT + np.float32(turn)  # elsewhere
            check(engine, 8, seed=turn, text=text)
            check(engine, 4, seed=turn, text=text)
            number = turn + 1 if turn < 16 else -1
            assert graphs(world) == [-1, number, number]


def test_a_smaller_batch_is_captured_anew(world):
    with world.open(max_batch=4, pad=True) as engine:
        check(engine, 8)
        world.ort.errors[:] = [FULL]
        check(engine, 8, seed=1)
        assert engine.max_batch == 2 and graphs(world) == [-1, 1, -1, 2, 2, 2]


def test_nothing_is_captured_while_another_engine_is_opened(world):
    neighbour = Opening()
    with world.open(max_batch=4, pad=True, neighbour=neighbour) as engine:
        neighbour.busy = True
        check(engine, 12)
        neighbour.busy = False
        check(engine, 4)
        neighbour.busy = True
        check(engine, 4)
        assert graphs(world) == [-1, -1, -1, 1, 1]


@pytest.mark.parametrize(
    ("behaviour", "pad"),
    [
        ({"graph_refusal": "This session cannot use the graph capture feature as requested by the user"}, True),
        ({"version": "1.27.3"}, True),
        ({}, False),
    ],
)
def test_without_graphs_nothing_is_said(world, behaviour, pad):
    world.install(**behaviour)
    with world.open(max_batch=4, pad=pad) as engine:
        check(engine, 12)
        assert engine.info.detail == f"onnxruntime {behaviour.get('version', '1.31.1')}"
    assert graphs(world) == [-1] * 3 and not world.said
    assert "enable_cuda_graph" not in world.ort.log["sessions"][-1].settings
    world.install(version="1.28.0")
    with world.open(pad=True) as engine:
        assert engine.info.detail == "onnxruntime 1.28.0, CUDA graphs"


def test_a_capture_that_fails_ends_them_in_a_line(world):
    world.install(capture_errors=["CUDA failure 900: operation not permitted\nwhen stream is capturing", "again"])
    with world.open(max_batch=4, pad=True) as engine:
        check(engine, 16)
        check(engine, 4, seed=3)
        assert graphs(world) == [-1, 1, -1, -1, -1, -1]
    assert world.said == [
        "blocks: runs without CUDA graphs, because capturing one failed (CUDA failure 900: operation not permitted "
        "when stream is capturing)"
    ]
    world.install(run_errors=[None, None, "CUDA failure 719: unspecified launch failure"])
    with (
        pytest.raises(EngineError, match="blocks failed on onnxruntime-cuda: CUDA failure 719"),
        world.open(max_batch=4, pad=True) as engine,
    ):
        check(engine, 16)


def test_a_capture_without_room_halves_the_batch(world):
    world.install(capture_errors=[FULL])
    with world.open(max_batch=4, pad=True) as engine:
        check(engine, 8)
        assert engine.max_batch == 2 and graphs(world) == [-1, 1, -1, 2]
    assert world.said == ["blocks: out of GPU memory, going on with batches of 2"]


def test_a_model_without_room_is_not_tried_without_graphs(world):
    world.install(create_errors=[None, FULL])
    with world.open(max_batch=8, pad=True) as engine:
        assert engine.max_batch == 4 and engine.info.detail.endswith("CUDA graphs")
    assert world.said == ["blocks: out of GPU memory, going on with batches of 4"]


def test_memory_that_cupy_keeps_is_given_back_before_a_model_is_loaded(world, monkeypatch):
    events = []
    pool = SimpleNamespace(free_all_blocks=lambda: events.append(("free", len(world.ort.log["sessions"]))))
    monkeypatch.setattr(world.cupy, "get_default_memory_pool", lambda: pool)
    with world.open():
        assert events == [("free", 0)] and len(world.ort.log["sessions"]) == 2  # the probe, the model


class DynamicLibNotFoundError(RuntimeError):
    """As cuda-pathfinder raises through CuPy."""


def compiler(refusal="", **functions):
    made = device_on_cpu.Nvrtc(refusal)
    for name, function in functions.items():
        setattr(made, name, function)
    return made


def test_a_compiler_is_tried_once_and_told_the_gpu(world, monkeypatch):
    nvrtc = world.cupy.cuda.nvrtc
    assert gpu_reason() is None and gpu_reason() is None
    assert nvrtc.options == [("--gpu-architecture=sm_90",)]
    monkeypatch.setattr(world.cupy.cuda.Device(), "compute_capability", "100")
    assert gpu_reason() is None and nvrtc.options[1:] == [("--gpu-architecture=sm_100",)]


@pytest.mark.parametrize(
    ("version", "log", "words"),
    [
        (
            13020,
            "nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure that libnvrtc-builtins.so.13.0 is "
            "installed correctly.\n",
            "libnvrtc.so.13, does not find its part libnvrtc-builtins.so.13.0; reinstall nvidia-cuda-nvrtc, which "
            "xbench-fast[gpu-cuda13] includes",
        ),
        (
            12090,
            "nvrtc: error: invalid value for --gpu-architecture (-arch)\n",
            "libnvrtc.so.12 (13.2), does not know compute capability 9.0; install a newer nvidia-cuda-nvrtc-cu12, "
            "which xbench-fast[gpu] includes",
        ),
        (14000, "probe.cu(1): error:\nnone", "libnvrtc.so.14 (13.2), fails (probe.cu(1): error: none); reinstall "
                                            "nvidia-cuda-nvrtc"),
    ],
)  # fmt: skip
def test_a_compiler_that_does_not_compile_is_named_with_what_to_install(world, monkeypatch, version, log, words):
    """Its version it tells all the same, as NVRTC 13.0 without its builtins."""
    monkeypatch.setattr(world.cupy.cuda, "nvrtc", compiler(log))
    monkeypatch.setattr(world.cupy.cuda.runtime, "runtimeGetVersion", lambda: version)
    assert gpu_reason() == f"the compiler of CuPy's kernels, {words}"


def test_a_library_that_is_missing_is_named_and_auto_goes_on(world, monkeypatch, capsys):
    for seen, words in (
        (False, "there is no NVIDIA driver"),
        (True, "libcurand.so.10 and libcudnn.so.9 are not found; install xbench-fast[gpu-cuda13]"),
    ):
        monkeypatch.setattr(ort_cuda_session, "gpu_seen", lambda seen=seen: seen)
        monkeypatch.setattr(
            cuda_libraries, "load_library", lambda name: name not in ("libcurand.so.10", "libcudnn.so.9")
        )
        world.install(providers=["CPUExecutionProvider"], cuda_version="13.0")
        assert cuda_reason() == f"its CUDA provider does not start: {words}"
        assert world.ort.log["severities"] == [4, 2], "quiet while it is tried, and then as before"
    world.install(providers=["CPUExecutionProvider"], cuda_version="12.9")
    assert str(cuda_reason()).endswith("install xbench-fast[gpu]")
    assert choose("auto")[0] == "onnxruntime-cpu"

    def absent(*_):
        raise DynamicLibNotFoundError('Failure finding "libnvrtc.so.13":\n  No such file')

    monkeypatch.setattr(world.cupy.cuda, "nvrtc", compiler(createProgram=absent))
    words = (
        "CuPy finds no compiler for its kernels, libnvrtc.so.13; install nvidia-cuda-nvrtc, which "
        "xbench-fast[gpu-cuda13] includes"
    )
    assert gpu_reason() == words
    world.install()
    with world.open() as engine:  # without CuPy, and it says why
        assert not isinstance(engine, DeviceEngine)
    assert world.said[-1].endswith(f"CuPy cannot be used: {words}")

    def broken():
        raise world.cupy.cuda.runtime.CUDARuntimeError("cudaErrorInitializationError:\ninitialization error")

    monkeypatch.setattr(world.cupy.cuda.runtime, "getDeviceCount", broken)
    assert gpu_reason() == "CUDA does not start (cudaErrorInitializationError: initialization error)"
    assert not capsys.readouterr().out


def test_a_cupy_that_does_not_load_is_named(monkeypatch, tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('libcublas.so.13: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    assert gpu_reason() == (
        "CuPy is installed but does not load (libcublas.so.13: cannot open shared object file); install it again."
    )


def test_libraries_are_found_in_any_folder_of_packages(monkeypatch, tmp_path):
    """Where packages were installed with pip's --target. Any library does for the test."""
    real = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so" in line)
    folder = tmp_path / "nvidia/cu99/lib"
    folder.mkdir(parents=True)
    names = [f"lib{name}" for name in ("cudart.so.99", "nvrtc.so.99", "cublasLt.so.99", "cublas.so.99", "cufft.so.98")]
    for name in (*names, "libcurand.so.10", "libcudnn.so.9"):
        (folder / name).symlink_to(real)
    assert str(lacking_libraries(99)).startswith("libcudart.so.99, libnvrtc.so.99, ")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert lacking_libraries(99) is None


@pytest.mark.parametrize(("version", "name"), [(12090, "libnvrtc.so.12"), (13020, "libnvrtc.so.13")])
def test_the_compiler_of_cupys_own_cuda_is_loaded_with_it(world, monkeypatch, version, name):
    """Beside PyTorch's, CuPy would take that of CUDA 13; and none where packages were installed with pip's --target."""
    loaded = []
    monkeypatch.setattr(gpu, "load_library", lambda name: loaded.append(name) or False)
    monkeypatch.setattr(world.cupy.cuda.runtime, "runtimeGetVersion", lambda: version)
    assert gpu.load_cupy() is world.cupy and loaded == [name]


@pytest.mark.parametrize("words", [FULL, "CUDA failure 2: out of memory ; GPU=0", "CUBLAS_STATUS_ALLOC_FAILED"])
def test_too_little_memory_halves_the_batch(world, words):
    world.install(run_errors=[None, words, words])
    with world.open(max_batch=8) as engine:
        check(engine, 8)
        check(engine, 8, seed=1)
        assert engine.max_batch == 2
    assert world.said[-1] == "blocks: out of GPU memory, going on with batches of 2"


class GivesWayOnce(Neighbour):
    def __init__(self):
        self.asked = 0

    def give_way(self):
        self.asked += 1
        return self.asked == 1


@pytest.mark.parametrize("cupy", [True, False])
def test_an_engine_in_advance_gives_way_before_a_batch_is_halved(world, monkeypatch, cupy):
    if not cupy:
        monkeypatch.setitem(sys.modules, "cupy", None)
    for behaviour, size in (
        ({"run_errors": [FULL]}, 8),
        ({"run_errors": [FULL, FULL]}, 4),
        ({"create_errors": [None, FULL, None]}, 8),
    ):
        neighbour = GivesWayOnce()
        world.install(**behaviour)
        world.said.clear()
        with world.open(max_batch=8, neighbour=neighbour) as engine:
            check(engine, 8)
            assert (engine.max_batch if cupy else engine._batch) == size
        halved = int(size < 8)
        assert neighbour.asked == 1 + halved and sum("out of GPU memory" in line for line in world.said) == halved


def test_an_engine_that_is_not_opened_releases_what_it_took(world, monkeypatch):
    released = []
    monkeypatch.setattr(ort_cuda.OrtCudaEngine, "_unload", lambda engine: released.append(True))
    world.install(create_errors=[None, "no kernel"])
    with pytest.raises(EngineError, match="no kernel"), world.open():
        pass
    assert released == [True, True], "before and after"


def test_another_failure_is_one_sentence(world):
    world.install(run_errors=["Non-zero status code\nreturned while running Conv node"])
    with (
        pytest.raises(EngineError, match=r"blocks failed on onnxruntime-cuda: Non-zero status code returned") as raised,
        world.open() as engine,
    ):
        check(engine, 1)
    assert "\n" not in str(raised.value)


def test_a_session_without_cuda_is_refused_and_operations_on_the_cpu_are_named(world):
    world.install(left=["Shape", "Gather", "MatMul", "NonZero", "MatMul"])
    with world.open() as engine:
        check(engine, 2)
    assert world.said == [
        "blocks: not all of it runs on the GPU, ONNX Runtime leaves to the CPU: 2 MatMul, 1 NonZero",
    ]
    world.install(providers=["CPUExecutionProvider"])
    with pytest.raises(EngineError, match="its CUDA provider does not start"), world.open():
        pass
    world.install(available=["CPUExecutionProvider"])
    status = {s.name: s for s in backend_status()}
    assert "CPU build" in status["onnxruntime-cuda"].reason
    world.install()
    assert choose("auto")[0] == "onnxruntime-cuda"


@pytest.mark.parametrize("cupy", [True, False])
def test_a_provider_that_fails_is_an_error_and_never_the_cpu(world, monkeypatch, capsys, cupy):
    """By itself the library goes on on the CPU, and the engine's name would be a lie."""
    if not cupy:
        monkeypatch.setitem(sys.modules, "cupy", None)
    world.install(run_errors=["[ONNXRuntimeError] : 11 : EP_FAIL : CUDNN_STATUS_INTERNAL_ERROR"])
    with (
        pytest.raises(EngineError, match=r"failed on onnxruntime-cuda: .*CUDNN_STATUS_INTERNAL_ERROR"),
        world.open() as engine,
    ):
        check(engine, 1)
    assert world.ort.log["sessions"][-1].providers[0] == "CUDAExecutionProvider"
    world.install(create_errors=[None, "Could not find an implementation\nfor Foo"])
    with pytest.raises(EngineError, match=r"failed on onnxruntime-cuda: .*an implementation for Foo"), world.open():
        pass
    world.install(create_errors=["CUBLAS_STATUS_NOT_INITIALIZED"])
    assert "CUBLAS_STATUS_NOT_INITIALIZED" in {s.name: s.reason for s in backend_status()}["onnxruntime-cuda"]
    assert not capsys.readouterr().out, "nothing is printed by the library"


def test_a_model_too_large_for_the_gpu_is_said_and_tried_again(world, monkeypatch):
    full = [None, FULL]  # the probe, and the session of the model
    world.install(create_errors=[*full, *full])
    with world.open(max_batch=8) as engine:
        assert engine.max_batch == 2 and engine.info.backend == "onnxruntime-cuda"
        check(engine, 4)
    world.install(create_errors=[*full, *full])
    with pytest.raises(EngineError, match="blocks does not fit the memory of the GPU"), world.open(max_batch=2):
        pass
    monkeypatch.setitem(sys.modules, "cupy", None)
    world.install(create_errors=full)
    with pytest.raises(EngineError, match="blocks does not fit the memory of the GPU"), world.open(max_batch=2):
        pass


def test_a_version_that_falls_back_when_it_starts_is_refused(world):
    world.install(keyword=False, create_errors=[None, FULL])
    with pytest.raises(EngineError, match="loaded blocks without CUDA"), world.open():
        pass
    world.install(keyword=False)
    with world.open() as engine:
        assert not world.ort.log["sessions"][-1].fallback
        check(engine, 2)


def test_a_library_that_cannot_tell_where_nodes_run_is_fine(world):
    del world.ort.InferenceSession.get_provider_graph_assignment_info
    with world.open() as engine:
        check(engine, 2)
    assert not world.said


def test_without_cupy_batches_are_copied_and_that_is_said(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    world.install(run_errors=[None, FULL])
    with world.open(max_batch=4) as engine:
        assert not isinstance(engine, DeviceEngine)
        check(engine, 6)
        check(engine, 3)
        assert engine.info.backend == "onnxruntime-cuda"
    assert world.ort.log["host_runs"] == [4, 2, 2, 1]
    assert len(world.said) == 2 and "CuPy cannot be used: CuPy is not installed" in world.said[0]
    world.install(run_errors=[FULL, FULL])
    with pytest.raises(EngineError, match="does not fit the memory of the GPU"), world.open(max_batch=2) as engine:
        check(engine, 2)


def test_tf32_needs_a_float32_graph(world):
    world.bundle.manifest = dataclasses.replace(world.bundle.manifest, precision="bf16")
    with pytest.raises(EngineError, match="TF32 is for float32 graphs, blocks holds bf16"), world.open(tf32=True):
        pass


def fails_once_with(words):
    real = pytest.importorskip("onnxruntime").InferenceSession._create_inference_session
    left = [words]

    def create(self, *arguments):
        self._fallback_providers = ["CPUExecutionProvider"]
        if left:
            raise RuntimeError(left.pop())
        return real(self, *arguments)

    return create


def test_the_calls_are_those_of_the_library(monkeypatch, capsys):
    real = pytest.importorskip("onnxruntime")
    fake = fake_onnxruntime.make([])
    of_binding = ["bind_input", "bind_output", "bind_ortvalue_input", "get_outputs"]
    of_session = ["io_binding", "run", "run_with_iobinding"]
    for owner, names in {"IOBinding": of_binding, "InferenceSession": of_session}.items():
        for name in names:
            ours, theirs = (inspect.signature(getattr(getattr(m, owner), name)) for m in (fake, real))
            assert list(ours.parameters) == list(theirs.parameters), name
    with pytest.raises(EngineError, match="out of memory"), monkeypatch.context() as patch:
        patch.setattr(
            real.InferenceSession, "_create_inference_session", fails_once_with("CUDA failure 2: out of memory")
        )
        open_session(IDENTITY, ["CPUExecutionProvider"], 1)
    assert not capsys.readouterr().out
    for owner, name in (("SessionOptions", "add_session_config_entry"), ("RunOptions", "add_run_config_entry")):
        assert hasattr(getattr(real, owner)(), name)
    assert hasattr(real.InferenceSession, "get_provider_graph_assignment_info") or real.__version__ < "1.24"
