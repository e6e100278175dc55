"""`encode` and `ask` of engines that keep scores on a GPU, over a device made of arrays; their loop:
tests/cpu/evaluation/test_device_sets.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import device_on_cpu
import fake_onnxruntime
import fake_tensorrt
import numpy as np
import pytest
import synthetic
from xbench_fast.engines.backends import graph_cut
from xbench_fast.engines.backends.device import DeviceEngine
from xbench_fast.engines.backends.out_of_memory import OutOfMemory
from xbench_fast.engines.base import EngineOptions
from xbench_fast.engines.errors import EngineError
from xbench_fast.engines.select import open_engine

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 1, synthetic.SIZE, synthetic.SIZE), np.uint8)
TEXTS = [np.array(rows, np.float32) for rows in ([[1, 0], [-1, 3]], [[2, 1]], [[0, 1], [1, 1], [3, -2]])]
FULL = "Failed to allocate memory for requested buffer of size 939524096"


class World:
    """The exact model of `synthetic` on a device made of arrays; `lines` are what its engines said."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        graph = synthetic.save_graph(folder / "graph.onnx")
        self.patch, self.lines = patch, list[str]()
        self.bundle = synthetic.make_bundle(folder / "blocks", graph=graph)
        self.cupy = device_on_cpu.fake_device()
        patch.setitem(sys.modules, "cupy", self.cupy)

    def open(self, name: str, ort: dict[str, Any] | None = None, **options: Any) -> Any:
        if name == "torch":
            pytest.importorskip("torch_on_cpu").install(self.patch)
        if name == "tensorrt":
            self.patch.setitem(sys.modules, name, fake_tensorrt.make("11.4.0.106", self.cupy.streams))
        if name == "onnxruntime-cuda":
            self.ort = fake_onnxruntime.make(self.cupy.streams, **(ort or {}))
            self.patch.setitem(sys.modules, "onnxruntime", self.ort)
        engine = open_engine(self.bundle, name, threads=1, options=EngineOptions(say=self.lines.append, **options))
        assert isinstance(engine, DeviceEngine)
        return engine

    @property
    def whole(self) -> list[str]:
        return [line for line in self.lines if "computes the images again" in line]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def check(engine: Any, features: Any) -> None:
    for text in TEXTS:
        for have, want in zip(vars(engine.ask(features, text)).values(), synthetic.model(PIXELS, text), strict=True):
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "torch", "tensorrt"])
@pytest.mark.parametrize("options", [{"max_batch": 4}, {"max_batch": 4, "pad": True}])
def test_several_texts_of_images_computed_once(world: World, name: str, options: dict[str, Any]) -> None:
    """Features outlive other batches in the slots' buffers, and more texts than there was room for."""
    with world.open(name, **options) as engine:
        features = engine.encode(PIXELS)
        assert (features.parts is None) == (name == "tensorrt")
        other = np.zeros_like(PIXELS)
        np.testing.assert_array_equal(engine.run(other, TEXTS[0]).logits, synthetic.model(other, TEXTS[0])[0])
        engine.encode(other)
        check(engine, features)
        check(engine, engine.encode(PIXELS))
        with pytest.raises(EngineError, match=r"a logit that is not finite \(image 0 of the batch, query 1\)"):
            engine.ask(features, np.array([[1, 0], [np.inf, 0]], np.float32))
    why = "blocks: each prompt set computes the images again, because tensorrt runs graphs whole"
    assert world.whole == ([why] if name == "tensorrt" else [])


def test_onnxruntime_binds_features_on_the_device(world: World) -> None:
    """Three images of four and four: the image part runs twice, the rest twice for each text, and no graph whole."""
    with world.open("onnxruntime-cuda", max_batch=4, pad=True) as engine:
        check(engine, engine.encode(PIXELS))
        assert world.ort.log["parts"] == [["pixels"]] * 2 + [["blocks", "text"]] * 6 and not world.ort.log["shapes"]
        whole, image, text = world.ort.log["sessions"][-3:]
        assert image.settings == text.settings and image.settings["user_compute_stream"] == str(engine.stream.ptr)
        assert whole.settings == {**image.settings, "enable_cuda_graph": "1"}, "parts are not captured"


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "torch"])
def test_features_that_are_too_large_are_not_kept(world: World, name: str) -> None:
    size = 4 * synthetic.GRID**2
    world.patch.setattr(graph_cut, "LARGEST_FEATURES", size)
    with world.open(name) as engine:
        assert engine.encode(PIXELS).parts is not None
        world.patch.setattr(graph_cut, "LARGEST_FEATURES", size - 1)
        for _ in range(2):
            features = engine.encode(PIXELS)
            assert features.parts is None
            check(engine, features)
    assert len(world.whole) == 1 and "0 MiB of features" in world.whole[0]


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "torch"])
def test_too_little_memory_halves_the_batch(world: World, name: str) -> None:
    with world.open(name, max_batch=4) as engine:
        check(engine, engine.encode(PIXELS))
        fail = engine._part.failures if name == "torch" else world.ort.errors
        fail.append(OutOfMemory(FULL) if name == "torch" else FULL)
        features = engine.encode(PIXELS)
        assert engine.max_batch == 2 and [part.images for part in features.parts[0]] == [2, 2, 2, 1]
        check(engine, features)
        fail.append(OutOfMemory(FULL) if name == "torch" else FULL)
        with pytest.raises(EngineError, match="blocks does not fit the memory of the GPU"):
            engine.ask(features, TEXTS[0])
        check(engine, features)
        fail.append(EngineError("ILLEGAL_ADDRESS") if name == "torch" else "ILLEGAL_ADDRESS")
        with pytest.raises(EngineError, match=r"^blocks failed on .*: ILLEGAL_ADDRESS\.$"):
            engine.encode(PIXELS)
    assert [line for line in world.lines if "memory" in line] == [
        "blocks: out of GPU memory, going on with batches of 2"
    ]


def test_parts_that_do_not_fit_beside_the_graph(world: World) -> None:
    with world.open("onnxruntime-cuda", {"create_errors": [None, None, FULL]}) as engine:
        check(engine, engine.encode(PIXELS))
        assert engine.max_batch == 64
    assert world.whole == [
        "blocks: each prompt set computes the images again, because the GPU has no memory for its parts too"
    ]
