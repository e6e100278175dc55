"""The engine torch: every model against ONNX Runtime, the device loop over a device made of arrays, refusals.

About half a minute without the exports, which other files share.
"""

from __future__ import annotations

import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import device_on_cpu
import numpy as np
import pytest
import synthetic

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
torch_on_cpu = pytest.importorskip("torch_on_cpu")

from xbench_fast.engines import select  # noqa: E402
from xbench_fast.engines.backends import torch_engine, torch_reasons  # noqa: E402
from xbench_fast.engines.backends.device import DeviceEngine  # noqa: E402
from xbench_fast.engines.backends.ort_session import CPU_PROVIDER, graph_for_cpu, open_session  # noqa: E402
from xbench_fast.engines.backends.out_of_memory import OutOfMemory  # noqa: E402
from xbench_fast.engines.backends.torch_graph.cuda import exact_products, translated  # noqa: E402
from xbench_fast.engines.backends.torch_graph.graph import read_graph  # noqa: E402
from xbench_fast.engines.backends.torch_graph.kernels import PlainKernels  # noqa: E402
from xbench_fast.engines.backends.torch_graph.program import Program, prepared  # noqa: E402
from xbench_fast.engines.base import EngineOptions  # noqa: E402
from xbench_fast.engines.bundle import Bundle  # noqa: E402
from xbench_fast.engines.errors import EngineError  # noqa: E402
from xbench_fast.engines.manifest import MODEL_ORDER  # noqa: E402
from xbench_fast.engines.select import choose, open_engine  # noqa: E402

TEXT = np.array([[1, 0], [-1, 3], [2, 1]], np.float32)
MAKE = onnx.helper.make_node


def images(count: int, side: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 1, side, side), dtype=np.uint8)


def close(have: Any, want: Any, bound: float) -> None:
    assert have.shape == want.shape and have.dtype == want.dtype
    assert np.abs(have - want).max() <= bound * np.abs(want).max()


@pytest.mark.parametrize("name", MODEL_ORDER)
def test_models_score_as_with_onnxruntime(small_bundles: dict[str, Bundle], name: str) -> None:
    """Also a batch that is cut unevenly, another number of queries, and the images computed once for both."""
    bundle = small_bundles[name]
    pixels = images(5, bundle.manifest.geometry.size)
    with (
        open_engine(bundle, "onnxruntime-cpu", threads=1) as reference,
        open_engine(bundle, "torch", threads=1, options=EngineOptions(max_batch=3)) as engine,
    ):
        assert (engine.info.backend, engine.info.device, engine.info.precision) == ("torch", "cpu", "fp32")
        texts = [bundle.prompt_set(name).features for name in ("coco", "single")]
        runs = [one.run(pixels, text) for one in (reference, engine) for text in texts]
        for want, have in zip(runs[:2], runs[2:], strict=True):
            close(have.logits, want.logits, 1e-5)
            close(have.saliency, want.saliency, 1e-5)
        again = [(one, one.encode(pixels)) for one in (reference, engine)]
        assert all(features.parts is not None for _, features in again), "its graph falls apart"
        asked = [one.ask(features, text) for one, features in again for text in texts]
        for want, have in zip(runs, asked, strict=True):
            np.testing.assert_array_equal(have.logits, want.logits)
            np.testing.assert_array_equal(have.saliency, want.saliency)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", ["kad", "clip", "carzero"])
def test_half_precision_is_that_of_the_graph(
    small_bundles: dict[str, Bundle], tmp_path: Path, name: str, precision: str
) -> None:
    """Against float32 operations whose results are rounded; the difference is the order of sums."""
    from xbench_fast.export.half_precision import lower

    bundle = small_bundles[name]
    model = onnx.load(bundle.file("image"))
    if precision == "bf16":
        model.opset_import[0].version = 22
    path = tmp_path / "image.onnx"
    onnx.save(model, path)
    lower(path, path, precision)
    inputs = {"pixels": images(2, bundle.manifest.geometry.size), "text": bundle.prompt_set("coco").features}
    wanted = open_session(graph_for_cpu(path, precision), [CPU_PROVIDER], 1).run(["logits", "saliency"], inputs)
    program = Program(prepared(read_graph(path)), torch.device("cpu"), PlainKernels())
    tensors = [torch.tensor(value) for value in inputs.values()]
    with torch.inference_mode():
        made = program.plan(*(tuple(t.shape) for t in tensors))(tensors)
    for have, want in zip(made, wanted, strict=True):
        close(have.numpy(), want, 3e-3 if precision == "fp16" else 3e-2)


def test_weights_outside_the_file_are_read(small_bundles: dict[str, Bundle], tmp_path: Path) -> None:
    bundle = small_bundles["medklip"]
    model = onnx.load(bundle.file("image"))
    whole = read_graph(bundle.file("image"))
    onnx.save(model, tmp_path / "image.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size > 10_000
    apart = read_graph(tmp_path / "image.onnx")
    assert apart.constants.keys() == whole.constants.keys()
    assert all(torch.equal(value, whole.constants[name]) for name, value in apart.constants.items())


def test_values_are_released_after_their_last_use(small_bundles: dict[str, Bundle]) -> None:
    bundle = small_bundles["kad"]
    program = Program(prepared(read_graph(bundle.file("image"))), torch.device("cpu"), PlainKernels())
    text = bundle.prompt_set("coco").features
    plan = program.plan((2, 1, 224, 224), text.shape)
    freed = [place for step in plan.steps for place in step.frees]
    results = {place for step in plan.steps for place in step.outputs}
    assert len(freed) == len(set(freed)) and not set(freed) & {*plan.outputs, *range(len(plan.constants))}
    assert results - set(freed) == set(plan.outputs)
    for number, step in enumerate(plan.steps):
        assert all(place not in later.inputs for later in plan.steps[number + 1 :] for place in step.frees)
    assert program.plan((2, 1, 224, 224), text.shape) is plan
    for batch in range(3, 20):
        program.plan((batch, 1, 224, 224), text.shape)
    again = program.plan((2, 1, 224, 224), text.shape)
    assert again is not plan, "only the last plans are kept"
    assert any(mine is other for mine in plan.constants for other in again.constants), "they share their weights"


class World:
    """The exact model of `synthetic`, on a device made of arrays."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.bundle = synthetic.make_bundle(folder / "blocks", graph=synthetic.save_graph(folder / "graph.onnx"))
        self.cupy = device_on_cpu.fake_device()
        patch.setitem(sys.modules, "cupy", self.cupy)
        torch_on_cpu.install(patch)
        self.lines: list[str] = []

    def open(self, **options: Any) -> Any:
        return open_engine(self.bundle, "torch", options=EngineOptions(say=self.lines.append, **options))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def check(engine: Any, count: int, seed: int = 0, text: Any = TEXT) -> None:
    pixels = images(count, 32, seed)
    scores = engine.run(pixels, text)
    for have, want in zip((scores.logits, scores.saliency), synthetic.model(pixels, text), strict=True):
        np.testing.assert_array_equal(have, want)


def test_the_device_loop_captures_what_comes_again(world: World) -> None:
    with world.open(max_batch=4) as engine:
        assert isinstance(engine, DeviceEngine) and engine.info.device == "cuda:0"
        part = engine._part
        for seed in range(4):
            check(engine, 4, seed)
        assert (part.launches, part.captures) == (1, 1), "once as it is, then captured and replayed"
        check(engine, 3)
        check(engine, 11)
        assert (part.launches, part.captures) == (2, 2)
        check(engine, 4, text=TEXT + 1)  # other features live elsewhere
        assert part.launches == 3
        pixels = images(3, 32)
        for _ in range(3):  # an array of the caller is never captured: the next one lives elsewhere
            scores = engine.submit(world.cupy.asarray(pixels), TEXT, 1)
            np.testing.assert_array_equal(scores.saliency.get(), synthetic.model(pixels, TEXT)[1])
        assert (part.launches, part.captures) == (6, 2) and not world.lines


def test_captures_that_fail_are_told_once(world: World) -> None:
    with world.open(max_batch=4) as engine:
        engine.stream.captures_fail = True
        for seed in range(4):
            check(engine, 4, seed)
        assert engine._part.captures == 1
    assert len(world.lines) == 1 and world.lines[0].startswith("blocks: runs without CUDA graphs, because capturing")


def test_too_many_shapes_drop_the_oldest_capture(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_engine, "_MOST_GRAPHS", 2)
    with world.open(max_batch=4) as engine:
        for count in (1, 2, 3, 1, 2, 3, 1, 2, 3, 1):
            check(engine, count, seed=count)
        assert len(engine._replays) == 2 and engine._part.captures > 3


def test_too_little_memory_halves_the_batch_and_is_said(world: World) -> None:
    with world.open(max_batch=4) as engine:
        check(engine, 4)
        engine._part.failures = [OutOfMemory("CUDA out of memory")]
        check(engine, 3)
        assert engine.max_batch == 2 and engine._part.releases == 1 and not engine._replays
        check(engine, 7)
        engine._part.failures = [OutOfMemory("")] * 3
        with pytest.raises(EngineError, match="blocks does not fit the memory of the GPU"):
            check(engine, 1, text=TEXT + 1)
    assert world.lines[0] == "blocks: out of GPU memory, going on with batches of 2"


def test_an_error_of_the_library_names_the_model(world: World) -> None:
    with world.open() as engine:
        engine._part.failures = [EngineError("CUDNN_STATUS_INTERNAL_ERROR")]
        with pytest.raises(EngineError, match=r"^blocks failed on torch: CUDNN_STATUS_INTERNAL_ERROR\.$"):
            check(engine, 1)


def test_an_unknown_number_of_a_gpu_is_one_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for reason in (None, "CUDA error: invalid device ordinal"):
        monkeypatch.setattr(torch_engine, "torch_cuda_reason", lambda device, reason=reason: reason)
        with pytest.raises(EngineError, match=r"There is no GPU 3: this machine has one, number 0\."):
            world.open(device=3).__enter__()


def test_copied_batches_are_padded_and_halved(tmp_path: Path) -> None:
    """The CPU stands for a GPU without CuPy."""
    bundle = synthetic.make_bundle(tmp_path / "blocks", graph=synthetic.save_graph(tmp_path / "graph.onnx"))
    lines: list[str] = []
    with open_engine(bundle, "torch", options=EngineOptions(4, pad=True, say=lines.append)) as engine:
        plan, sizes, failures = engine._program.plan, list[int](), [False, True]  # type: ignore[attr-defined]

        def watched(pixels: Any, text: Any) -> Any:
            if failures and failures.pop(0):
                raise torch.OutOfMemoryError("CUDA out of memory")
            sizes.append(pixels[0])
            return plan(pixels, text)

        engine._program.plan = watched  # type: ignore[attr-defined]
        check(engine, 7)
        check(engine, 3)
        assert sizes == [4, 2, 2, 2, 2]
        failures = [True] * 2
        with pytest.raises(EngineError, match="blocks does not fit the memory of the GPU"):
            check(engine, 1)
    assert lines[0] == "blocks: out of GPU memory, going on with batches of 2"


def test_a_gpu_that_only_torch_lacks_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_engine, "torch_cuda_reason", lambda device=0: "the installed torch is the CPU build")
    monkeypatch.setattr(torch_engine, "gpu_seen", lambda: True)
    with world.open() as engine:
        assert engine.info.device == "cpu"
        check(engine, 3)
    assert world.lines == ["blocks: torch runs on the CPU, because the installed torch is the CPU build"]
    monkeypatch.setattr(torch_engine, "torch_cuda_reason", lambda device=0: None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(EngineError, match=r"There is no GPU 2: this machine has none\."):
        world.open(device=2).__enter__()


def graph_of(folder: Path, nodes: list[Any], **constants: Any) -> Path:
    """A graph with the interface of `synthetic` that computes nothing else."""
    given = onnx.load(synthetic.save_graph(folder / "whole.onnx"))
    stored = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    given.graph.node.extend(nodes)
    given.graph.initializer.extend(stored)
    onnx.save(given, folder / "changed.onnx")
    return folder / "changed.onnx"


def test_an_operator_that_lacks_is_one_sentence_and_auto_takes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [MAKE("NonZero", ["saliency"], ["places"], name="find"), MAKE("Size", ["places"], ["count"])]
    bundle = synthetic.make_bundle(tmp_path / "blocks", graph=graph_of(tmp_path, nodes))
    sentence = "blocks does not run on the engine torch: its operator NonZero (node find) is not supported"
    with pytest.raises(EngineError) as raised, open_engine(bundle, "torch"):
        pass
    assert str(raised.value) == f"{sentence}; use --engine onnxruntime-cuda or onnxruntime-cpu."
    for name in ("tensorrt", "tensorrt-rtx", "onnxruntime-cuda"):
        monkeypatch.setitem(select._REASONS._entries, name, f"{__name__}:refused")
    monkeypatch.setitem(select._DOUBTS._entries, "tensorrt-rtx", f"{__name__}:refused")
    monkeypatch.setitem(select._DOUBTS._entries, "torch", f"{__name__}:usable")
    assert choose()[0] == "torch"
    for name, more in (("auto", {}), ("torch", {"auto": True})):
        lines: list[str] = []
        with open_engine(bundle, name, threads=1, options=EngineOptions(say=lines.append), **more) as engine:
            assert engine.info.backend == "onnxruntime-cpu"
        assert len(lines) == 1
        assert lines[0].startswith(f"blocks: engine onnxruntime-cpu instead of torch, because {sentence}")
    good = synthetic.make_bundle(tmp_path / "good", graph=synthetic.save_graph(tmp_path / "good.onnx"))
    with open_engine(good, threads=1, options=EngineOptions(say=lines.append)) as engine:
        assert engine.info.backend == "torch"
    assert len(lines) == 1


def refused(device: int) -> str:
    return "it is not installed"


def usable(device: int) -> None:
    return None


def test_other_results_than_promised_are_refused(tmp_path: Path) -> None:
    whole = onnx.load(synthetic.save_graph(tmp_path / "whole.onnx"))
    whole.graph.node[-1].output[0] = "raw"
    whole.graph.node.append(MAKE("Identity", ["saliency"], ["logits"]))
    onnx.save(whole, tmp_path / "changed.onnx")
    bundle = synthetic.make_bundle(tmp_path / "blocks", graph=tmp_path / "changed.onnx")
    with pytest.raises(EngineError, match=r"bundle\.json promises .*; export it again"), open_engine(bundle, "torch"):
        pass
    whole.graph.output[1].name = "maps"
    whole.graph.node[8].output[0] = "maps"
    for node in whole.graph.node[9:]:
        node.input[0] = node.input[0].replace("saliency", "maps")
    onnx.save(whole, tmp_path / "named.onnx")
    bundle = synthetic.make_bundle(tmp_path / "named", graph=tmp_path / "named.onnx")
    with pytest.raises(EngineError, match=r"has the outputs logits, maps, bundle\.json promises logits, saliency"):
        open_engine(bundle, "torch").__enter__()
    (tmp_path / "text").write_bytes(b"no graph at all")
    bundle = synthetic.make_bundle(tmp_path / "none", graph=tmp_path / "text")
    with pytest.raises(EngineError, match=r"torch cannot load .*image\.onnx"):
        open_engine(bundle, "torch").__enter__()


def test_int8_and_tf32_on_the_cpu_are_refused(tmp_path: Path) -> None:
    bundle = synthetic.make_bundle(tmp_path / "blocks", graph=synthetic.save_graph(tmp_path / "graph.onnx"))
    with pytest.raises(EngineError, match="TF32 is for GPUs, and torch runs blocks on the CPU: there is no NVIDIA GPU"):
        open_engine(bundle, "torch", options=EngineOptions(tf32=True)).__enter__()
    bundle.manifest = dataclasses.replace(bundle.manifest, precision="int8")
    with pytest.raises(EngineError, match="blocks holds int8, whose byte products the engine torch does not have"):
        open_engine(bundle, "torch").__enter__()


def test_why_torch_is_not_used_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_reasons.torch_reason() is None
    assert torch_reasons.torch_cuda_reason() == "there is no NVIDIA GPU"
    monkeypatch.setattr(torch_reasons, "gpu_seen", lambda: True)
    old = "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver"

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError(old)

    with monkeypatch.context() as patch:
        patch.setattr(torch.version, "cuda", None)
        assert "is the CPU build; install torch with CUDA" in str(torch_reasons.torch_cuda_reason())
        patch.setattr(torch.version, "cuda", "13.0")
        patch.setattr(torch, "zeros", lambda *n, device="cpu": fails() if device == "cuda:0" else torch.ones(*n))
        reason = str(torch_reasons.torch_cuda_reason())
        assert "cannot use the GPU (The NVIDIA driver on your system is too old (found version 11040)); " in reason
        assert reason.endswith("update the driver, or install an older torch")
    monkeypatch.setattr(torch_reasons, "find_spec", lambda name: None if name == "onnx" else SimpleNamespace())
    assert torch_reasons.torch_reason() == (
        "The engine torch needs onnx, which is not installed; install xbench-fast[torch]."
    )


def test_settings_of_the_process_are_put_back() -> None:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = (matmul.fp32_precision, conv.fp32_precision, matmul.allow_fp16_reduced_precision_reduction)
    for tf32, wanted in ((False, "ieee"), (True, "tf32")):
        with exact_products(tf32):
            assert (matmul.fp32_precision, conv.fp32_precision) == (wanted, wanted)
            assert not matmul.allow_fp16_reduced_precision_reduction
        assert (matmul.fp32_precision, conv.fp32_precision, matmul.allow_fp16_reduced_precision_reduction) == before


def test_settings_of_the_process_outlive_another_thread_that_needs_them() -> None:
    """The first to begin ends first; whoever needs other products waits for both, and an error changes nothing."""
    conv = torch.backends.cudnn.conv
    before, limited = (conv.fp32_precision, torch.get_num_threads()), torch_engine._THREADS.limited

    def precision(tf32: bool) -> str:
        with exact_products(tf32):
            return str(conv.fp32_precision)

    def own_threads() -> int:
        with ThreadPoolExecutor(1) as fresh:
            return fresh.submit(torch.get_num_threads).result()

    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as others, ThreadPoolExecutor(1) as late:
        first, last = ExitStack(), ExitStack()
        for context in (exact_products(False), limited(1)):
            pool.submit(first.enter_context, context).result()
        with pytest.raises(ZeroDivisionError), exact_products(False), limited(1):
            late.submit(last.enter_context, limited(1)).result()  # a thread that begins with the number of the others
            assert own_threads() == 1
            waiting = others.submit(precision, True)
            assert precision(False) == "ieee"
            pool.submit(first.close).result()
            assert conv.fp32_precision == "ieee" and not waiting.done() and torch.get_num_threads() == 1
            raise ZeroDivisionError
        assert waiting.result() == "tf32"
        late.submit(last.close).result()
    assert (conv.fp32_precision, torch.get_num_threads()) == before and own_threads() == before[1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemory),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), OutOfMemory),
        (RuntimeError("CUDA error: an illegal memory access"), EngineError),
    ],
)
def test_errors_of_the_library_are_translated(error: Exception, expected: type[Exception]) -> None:
    with pytest.raises(expected), translated():
        raise error
