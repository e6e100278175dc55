"""Engines and the evaluation on a real GPU: the scores and rows of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluation_world import World, same
from synthetic import GRID, SIZE, make_bundle, make_dataset, save_graph
from xbench_fast.engines.backends.device import DeviceEngine
from xbench_fast.engines.backends.gpu import gpu_reason, load_cupy
from xbench_fast.engines.backends.ort_cuda_session import cuda_reason
from xbench_fast.engines.backends.tensorrt import tensorrt_reason, tensorrt_rtx_reason
from xbench_fast.engines.backends.torch_reasons import torch_cuda_reason
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import open_engine
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.runtime.host.config import DatasetConfig

pytestmark = pytest.mark.gpu

REASONS: dict[str, Callable[[], str | None]] = {
    "tensorrt": tensorrt_reason,
    "tensorrt-rtx": tensorrt_rtx_reason,
    "torch": torch_cuda_reason,
    "onnxruntime-cuda": cuda_reason,
}
TEXT = np.array([[1, 0], [-1, 3], [2, 1]], np.float32)


@pytest.fixture(scope="module")
def cupy() -> Any:
    reason = gpu_reason()
    if reason is not None:
        pytest.skip(f"no GPU can be used here: {reason}")
    return load_cupy()


@pytest.fixture(scope="module", params=list(REASONS))
def name(request: pytest.FixtureRequest, cupy: Any) -> str:
    """Each engine that runs here."""
    reason = REASONS[request.param]()
    if reason is not None:
        pytest.skip(f"{request.param} cannot run here: {reason}")
    return str(request.param)


@pytest.fixture
def blocks(tmp_path: Path) -> Bundle:
    """The exact model of `synthetic`, as a graph."""
    pytest.importorskip("onnx")
    return make_bundle(tmp_path / "blocks-32", several=True, graph=save_graph(tmp_path / "graph.onnx"))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """KAD with a few hundred thousand weights, through the code of the real one."""
    for package in ("torch", "onnx", "onnxscript", "onnxruntime", "tokenizers"):
        pytest.importorskip(package)
    from xbench_fast.export import stand_in_adapter
    from xbench_fast.export.pipeline import BundleOptions, export_adapter

    out = tmp_path_factory.mktemp("demo")
    return export_adapter(stand_in_adapter("kad", "demo"), out, BundleOptions(progress=lambda line: None)).bundle


@pytest.fixture
def little_memory(cupy: Any) -> Iterator[Callable[[int], None]]:
    """Sets how many bytes CuPy may take from now on."""
    pool = cupy.get_default_memory_pool()

    def limit(count: int) -> None:
        pool.free_all_blocks()
        pool.set_limit(size=pool.total_bytes() + count)

    yield limit
    pool.set_limit(size=0)


def pictures(count: int, side: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 1, side, side), dtype=np.uint8)


def test_an_exported_model_scores_as_on_the_cpu(name: str, demo: Bundle) -> None:
    side = demo.manifest.geometry.size
    prompts = demo.prompt_set(sorted(demo.manifest.prompt_sets)[0])
    pixels = pictures(11, side)
    with open_engine(demo, "onnxruntime-cpu", threads=2) as engine:
        expected = engine.run(pixels, prompts.features)
    said: list[str] = []
    with open_engine(demo, name, options=EngineOptions(max_batch=4, say=said.append)) as engine:
        found = engine.run(pixels, prompts.features)
        assert engine.info.backend == name and engine.info.precision == "fp32"
    for have, want in ((found.logits, expected.logits), (found.saliency, expected.saliency)):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))


def test_slots_overlap_and_keep_their_scores(name: str, blocks: Bundle, cupy: Any) -> None:
    with open_engine(blocks, name, options=EngineOptions(max_batch=8)) as engine:
        assert isinstance(engine, DeviceEngine)
        batches = [pictures(count, SIZE, seed) for seed, count in enumerate((8, 8, 3, 8, 1, 8))]
        features = blocks.prompt_set("coco").features
        expected = [engine.run(pixels, features) for pixels in batches]
        for turn, (pixels, wanted) in enumerate(zip(batches, expected, strict=True)):
            other = batches[turn - 1]
            with engine.device:
                buffer = engine.input(turn % 2, len(features))[: len(pixels)]
                buffer.set(pixels, stream=engine.stream)
                scores = engine.submit(buffer, features, turn % 2)
                engine.submit(other, features, 1 - turn % 2)
                engine.stream.synchronize()
                np.testing.assert_array_equal(scores.logits.get(), wanted.logits)
                np.testing.assert_array_equal(scores.saliency.get(), wanted.saliency)
                assert scores.saliency.shape[2:] == (GRID, GRID)


def test_padded_launches_of_onnxruntime_are_captured(blocks: Bundle, cupy: Any) -> None:
    reason = cuda_reason()
    if reason is not None:
        pytest.skip(f"onnxruntime-cuda cannot run here: {reason}")
    said: list[str] = []
    options = EngineOptions(max_batch=8, say=said.append)
    features = [blocks.prompt_set("coco").features, blocks.prompt_set("coco").features + np.float32(1)]
    with (
        open_engine(blocks, "onnxruntime-cuda", options=options) as plain,
        open_engine(blocks, "onnxruntime-cuda", options=replace(options, pad=True)) as engine,
    ):
        for seed in range(6):
            pixels, text = pictures(8 if seed < 5 else 3, SIZE, seed), features[seed // 3]
            np.testing.assert_array_equal(engine.run(pixels, text).saliency, plain.run(pixels, text).saliency)
        captured = bool(engine._captures)  # type: ignore[attr-defined]
        assert captured == engine.info.detail.endswith("CUDA graphs") or any("without CUDA graphs" in s for s in said)


def test_the_last_gpu_has_the_scores_of_the_first(name: str, blocks: Bundle, cupy: Any) -> None:
    last = cupy.cuda.runtime.getDeviceCount() - 1
    features, scores = blocks.prompt_set("coco").features, []
    for device in (0, last):
        with open_engine(blocks, name, options=EngineOptions(max_batch=8, device=device)) as engine:
            assert engine.info.device == f"cuda:{device}"
            scores.append(engine.run(pictures(11, SIZE), features).saliency)
    np.testing.assert_array_equal(*scores)


def test_launches_are_captured_and_replayed(blocks: Bundle, cupy: Any) -> None:
    reason = tensorrt_reason()
    name = "tensorrt" if reason is None else "tensorrt-rtx"
    if reason is not None and tensorrt_rtx_reason() is not None:
        pytest.skip(f"TensorRT cannot run here: {reason}")
    said: list[str] = []
    with open_engine(blocks, name, options=EngineOptions(max_batch=8, say=said.append)) as engine:
        features = blocks.prompt_set("coco").features
        first = engine.run(pictures(8, SIZE), features)
        for _ in range(3):
            again = engine.run(pictures(8, SIZE), features)
            np.testing.assert_array_equal(again.saliency, first.saliency)
        other = engine.run(pictures(8, SIZE, 1), features)
        assert not np.array_equal(other.saliency, first.saliency)
        captured = sum(slot.graph is not None for slot in engine._slots)  # type: ignore[attr-defined]
    # TensorRT for RTX captures launches itself.
    assert captured == (name == "tensorrt") or any("without CUDA graphs" in line for line in said)


class OnGpu(World):
    """A world whose engines are real."""

    def __init__(self, folder: Path, name: str, batch: int = 3) -> None:
        super().__init__(folder)
        self.name, self.batch = name, batch

    def open(self, bundle: Bundle, name: str, *, threads: int | None = None, **_: Any) -> Any:
        return open_engine(bundle, self.name, threads=threads, options=EngineOptions(self.batch, say=self.lines.append))


def compared(folder: Path, name: str, bundle: Bundle, images: int = 60, **options: Any) -> OnGpu:
    """An evaluation on the GPU whose rows are those of the CPU."""
    (folder / "host").mkdir()
    (folder / "device").mkdir()
    host, device = World(folder / "host"), OnGpu(folder / "device", name, options.get("batch", 3))
    data = DatasetConfig("coco", make_dataset(folder / "data", images, missing=(4, 5, images - 1)), "coco")
    (data.root / "images" / "case0007.png").write_bytes(b"no picture")
    host.run([bundle.path], [data], sweep=sweep, **options)
    failed = device.run([bundle.path], [data], sweep=sweep, **options).failed
    assert not failed, failed
    assert same(host.table(), device.table())
    return device


@pytest.mark.parametrize("options", [{}, {"batch": 16, "chunk": 64}, {"batch": 5, "protocol": "chexlocalize"}])
def test_rows_are_those_of_the_cpu(name: str, blocks: Bundle, tmp_path: Path, options: dict[str, Any]) -> None:
    """The model is exact in float32, so engine, means over prompts and sweep must agree to the last bit."""
    compared(tmp_path, name, blocks, **options)


def test_too_little_memory_halves_the_batch(
    name: str, blocks: Bundle, tmp_path: Path, little_memory: Callable[[int], None]
) -> None:
    little_memory(600_000)  # less than 512 images of 1 kB in two slots, enough for some
    device = compared(tmp_path, name, blocks, batch=512, chunk=1024)
    assert any("out of GPU memory, going on with batches of" in line for line in device.lines)
    little_memory(600)
    with (
        pytest.raises(EngineError, match="not even one image at a time"),
        open_engine(blocks, name, options=EngineOptions(2)) as engine,
    ):
        engine.run(pictures(2, SIZE), TEXT)
