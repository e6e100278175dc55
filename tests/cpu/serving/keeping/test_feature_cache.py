"""A further question about an image: what is computed again, what is kept, and that answers are those without it."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from PIL import Image
from xbench_fast.engines.backends import ort_parts
from xbench_fast.engines.base import EngineOptions, Scores
from xbench_fast.engines.bundle import Bundle
from xbench_fast.engines.select import open_engine
from xbench_fast.runtime.serving.inference import request_images, service
from xbench_fast.runtime.serving.inference.feature_cache import FeatureCache, KeptFeatures
from xbench_fast.runtime.serving.inference.request_images import WHOLE, Prepared
from xbench_fast.runtime.serving.inference.served_models import Catalogue
from xbench_fast.runtime.serving.inference.service import Service
from xbench_fast.runtime.serving.prometheus_metrics import Metrics
from xbench_fast.runtime.serving.protocol.requests import Answer, Request
from xbench_fast.runtime.serving.settings import ServiceSettings

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("prometheus_client")

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 1, synthetic.SIZE, synthetic.SIZE), np.uint8)
TEXTS = [np.array(rows, np.float32) for rows in ([[1, 0], [-1, 3]], [[2, 1]], [[0, 1], [1, 1], [3, -2]])]
FEATURES = 4 * synthetic.GRID**2
"""Bytes of the features of an image: the sums of the blocks."""


@pytest.fixture
def blocks(tmp_path: Path) -> Bundle:
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    return synthetic.make_bundle(tmp_path / "blocks-32", graph=graph, several=True, sets=("coco", "other"))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images that each run of the image part gets, an odd one as a pair."""
    runs, encode = list[int](), ort_parts.OrtParts.encode

    def counted(self: Any, pixels: Any) -> Any:
        runs.append(len(pixels))
        return encode(self, pixels)

    monkeypatch.setattr(ort_parts.OrtParts, "encode", counted)
    return runs


def counted(metrics: Metrics) -> dict[str, float]:
    """The values of the cache's metrics."""
    lines = (line.rsplit(" ", 1) for line in metrics.render()[0].decode().splitlines())
    return {name.removeprefix("xbench_cache_"): float(value) for name, value in lines
            if name.startswith("xbench_cache_") and "_created" not in name}  # fmt: skip


def expect(scores: Scores, pixels: Any, text: Any) -> None:
    logits, saliency = synthetic.model(pixels, text)
    np.testing.assert_array_equal(scores.logits, logits)
    np.testing.assert_array_equal(scores.saliency, saliency)


def test_the_image_part_runs_once_for_an_image(blocks: Bundle, computed: list[int]) -> None:
    """A batch may hold known images, new ones, and the same one twice; the bundle limits the parts of a batch."""
    metrics = Metrics()
    cache = FeatureCache(1 << 20, metrics)
    with open_engine(blocks, "onnxruntime-cpu", threads=1) as engine:
        kept = KeptFeatures(cache, engine)
        expect(kept.run(PIXELS[:2], TEXTS[0]), PIXELS[:2], TEXTS[0])
        assert not len(cache) and computed == [2], "the first call compares"
        computed.clear()
        for text in TEXTS:
            expect(kept.run(PIXELS[:2], text), PIXELS[:2], text)
        assert computed == [2] and counted(metrics)['hits_total{part="features"}'] == 4
        for text in TEXTS:
            mixed = PIXELS[[3, 1, 3, 2, 0]]
            expect(kept.run(mixed, text), mixed, text)
        assert computed == [2, 2], "two new images"
        expect(kept.run(PIXELS[4:], TEXTS[0]), PIXELS[4:], TEXTS[0])
        expect(kept.run(PIXELS, TEXTS[1]), PIXELS, TEXTS[1])
        assert computed == [2, 2, 2] and len(cache) == 5
    values = counted(metrics)
    assert values["bytes"] == cache.bytes == 5 * FEATURES and values["evictions_total"] == 0
    assert values['misses_total{part="features"}'] == 6, "one of them twice in its batch"


def test_a_batch_larger_than_the_bundle_states(tmp_path: Path, computed: list[int]) -> None:
    graph = synthetic.save_graph(tmp_path / "graph.onnx")
    made = synthetic.make_bundle(tmp_path / "blocks-32", graph=graph, largest_batch=3)
    with open_engine(made, "onnxruntime-cpu", threads=1) as engine:
        kept = KeptFeatures(FeatureCache(1 << 20, Metrics()), engine)
        kept.run(PIXELS, TEXTS[0])
        computed.clear()
        for text in TEXTS:
            expect(kept.run(PIXELS, text), PIXELS, text)
        assert computed == [2, 2, 2]


def test_models_do_not_share_features(tmp_path: Path, blocks: Bundle) -> None:
    """Bundles of equal geometry see the same pixels."""

    model = onnx.load(synthetic.save_graph(tmp_path / "graph.onnx"))
    (kernel,) = (item for item in model.graph.initializer if item.name == "kernel")
    kernel.CopyFrom(onnx.numpy_helper.from_array(2 * onnx.numpy_helper.to_array(kernel), "kernel"))
    onnx.save(model, tmp_path / "graph.onnx")
    other = synthetic.make_bundle(tmp_path / "other-32", graph=tmp_path / "graph.onnx")
    cache, text = FeatureCache(1 << 20, Metrics()), np.array([[3, 0]], np.float32)
    with open_engine(blocks, "onnxruntime-cpu", threads=1) as one, open_engine(other, "onnxruntime-cpu") as two:
        first, second = KeptFeatures(cache, one), KeptFeatures(cache, two)
        for _ in range(3):
            expect(first.run(PIXELS, text), PIXELS, text)
            expect(second.run(PIXELS, text), PIXELS, 2 * text)


def test_the_least_recently_used_go_by_their_bytes() -> None:
    metrics = Metrics()
    cache = FeatureCache(100, metrics)
    array = np.zeros(40, np.uint8)
    for key in "ab":
        cache.put(key, (array,))
    assert cache.get("a") and cache.bytes == 80
    cache.put("c", (array[:20], array[:10]))
    assert cache.get("b") is None and cache.get("a") and cache.get("c") and cache.bytes == 70
    cache.put("c", (array,))
    assert cache.bytes == 80 and len(cache) == 2, "in place of the former"
    cache.put("d", (np.zeros(101, np.uint8),))
    assert cache.get("d") is None and len(cache) == 2
    square = array[:36].reshape(6, 6)
    cache.put("e", Prepared(square, (6, 6), WHOLE, np.zeros((8, 8), np.uint8)))
    assert cache.bytes == 100 and cache.get("e") and len(cache) == 1
    assert counted(metrics)["evictions_total"] == 3 and counted(metrics)["bytes"] == 100
    cache.clear()
    assert cache.bytes == len(cache) == 0


def test_many_threads_use_one_cache() -> None:
    cache, start, wrong = FeatureCache(64, Metrics()), threading.Barrier(8), list[Any]()

    def use(seed: int) -> None:
        start.wait()
        for key in np.random.default_rng(seed).integers(0, 12, 500).tolist():
            item = cache.get(key)
            if isinstance(item, tuple) and (item[0] != key).any():
                wrong.append(key)
            cache.put(key, (np.full(1 + key, key, np.uint8),))
            if cache.bytes > 64 + 12:
                wrong.append(cache.bytes)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [cache.get(key) for key in range(12)]
    assert not wrong and cache.bytes == sum(item[0].nbytes for item in kept if isinstance(item, tuple)) <= 64


@pytest.mark.parametrize("why", ["off", "whole", "bits", "engine", "not by image"])
def test_nothing_is_kept_where_it_would_not_help(
    blocks: Bundle, computed: list[int], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    cache = FeatureCache(0 if why == "off" else 1 << 20, Metrics())
    if why == "whole":
        monkeypatch.setattr(ort_parts.OrtParts, "of", staticmethod(lambda *_: "its graph does not fall apart"))
    if why == "bits":
        ask = ort_parts.OrtParts.ask

        def rounded(self: Any, features: Any, text: Any) -> Scores:
            scores = ask(self, features, text)
            return Scores(scores.logits, np.nextafter(scores.saliency, np.float32(9e9)))

        monkeypatch.setattr(ort_parts.OrtParts, "ask", rounded)
    if why == "not by image":
        monkeypatch.setattr(ort_parts.OrtParts, "joined", lambda *_: None)
    options = EngineOptions(say=lambda line: None)
    made = synthetic.BlockEngine(blocks) if why == "engine" else None
    with made or open_engine(blocks, "onnxruntime-cpu", threads=1, options=options) as engine:
        kept = KeptFeatures(cache, engine)
        for text in TEXTS:
            expect(kept.run(PIXELS, text), PIXELS, text)
    assert not len(cache) and len(computed) == (3 if why in ("bits", "not by image") else 0), "only to compare"


def film(seed: int) -> bytes:
    """A PNG file of 40 x 56 pixels."""
    import io

    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 56), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def serve(bundle: Bundle, test: Callable[[Service], Awaitable[None]], **settings: Any) -> None:
    async def body() -> None:
        with Catalogue([bundle.path], engine="onnxruntime-cpu", threads=1) as opened:
            async with Service(opened, ServiceSettings(**settings), Metrics()) as running:
                await asyncio.wait_for(test(running), 60)

    asyncio.run(body())


def same(one: Answer, other: Answer) -> None:
    assert one.findings == other.findings and one.outputs.keys() == other.outputs.keys()
    for name, array in one.outputs.items():
        np.testing.assert_array_equal(array, other.outputs[name])


def test_a_service_decodes_and_encodes_an_image_once(
    blocks: Bundle, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many requests at once, of files and of pixels, sets in turns: each answer is the one without a cache."""
    decoded, prepare = list[str](), request_images.prepare_file

    def watched(data: bytes, geometry: Any, name: str, *, side: int = 0) -> Prepared:
        decoded.append(name)
        return prepare(data, geometry, name, side=side)

    monkeypatch.setattr(request_images, "prepare_file", watched)
    wide = frozenset({"logits", "logits_negative", "saliency", "boxes", "sizes", "frames"})
    requests = [
        Request("blocks-32", images=(film(1),), prompt_set="coco", outputs=wide),
        Request("blocks-32", images=(film(2), film(1)), prompt_set="other", outputs=wide),
        Request("blocks-32", images=(film(1),), findings=("Mass",), outputs=wide),
        Request("blocks-32", images=(film(1),), outputs=frozenset({"preview", "overlay", "logits"})),
        Request("blocks-32", pixels=PIXELS[:1], outputs=wide),
        Request("blocks-32", pixels=PIXELS[:1], prompt_set="other", outputs=frozenset({"preview", "saliency"})),
    ]
    plain, images, again = list[Answer](), list[int](), list[int]()

    async def without(running: Service) -> None:
        plain.extend([await running.infer(request) for request in requests])

    async def with_cache(running: Service) -> None:
        for request, answer in zip(requests, plain, strict=True):
            same(await running.infer(request), answer)
        images.append(len(decoded))
        again.append(sum(computed))
        answers = await asyncio.gather(*(running.infer(request) for request in requests * 8))
        for number, answer in enumerate(answers):
            same(answer, plain[number % len(requests)])
        # What was drawn once serves requests that draw nothing, and a damaged file is named by its own place.
        known = counted(running.metrics)['hits_total{part="image"}']
        damaged = dataclasses.replace(requests[1], images=(film(1), film(3)[:90]))
        for _ in range(2):
            with pytest.raises(Exception, match="Image 1"):
                await running.infer(damaged)
        assert counted(running.metrics)['hits_total{part="image"}'] == known > 30
        assert running._cache.bytes
        await running.close()
        assert not running._cache.bytes, "nothing outlives the models"

    serve(blocks, without, feature_cache=0)
    assert not computed
    decoded.clear()
    serve(blocks, with_cache)
    assert images == [4], "a request whose files are not all known, and one that draws, decode again"
    assert again[0] == sum(computed) and len(decoded) == 4 + 4


def test_files_of_a_process_are_kept_too(blocks: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    class Decoders:
        """Decodes here, where calls can be counted."""

        def __init__(self, most: int) -> None:
            pass

        async def prepare(self, request: Request, geometry: Any, seconds: float) -> list[Prepared]:
            asked.append(request.count)
            return request_images.prepare_request(request, geometry)

        async def close(self) -> None:
            pass

    monkeypatch.setattr(service, "Decoders", Decoders)
    monkeypatch.setattr(service, "prepare_quick", lambda *_: None)

    async def test(running: Service) -> None:
        request = Request("blocks-32", images=(film(1), film(2)))
        one, other = [await running.infer(request) for _ in range(2)]
        same(one, other)
        assert asked == [2]
        await running.infer(dataclasses.replace(request, images=(film(2),), prompt_set="other"))
        assert asked == [2] and counted(running.metrics)['misses_total{part="image"}'] == 2

    serve(blocks, test)
