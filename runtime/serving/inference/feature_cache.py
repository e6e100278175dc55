"""What the server keeps of recent images, in memory alone: prepared pixels, and the features of an engine.

A further question about an image then costs no decoding, and of the graph only the part behind the text (docs/serve.md,
"Several questions about one image").
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Engine, ImageFeatures, Scores
from ....engines.geometry import Geometry
from ..prometheus_metrics import Metrics
from ..protocol.requests import Request
from .request_images import Prepared, shown_side

IMAGE: Final = "image"
FEATURES: Final = "features"


class FeatureCache:
    """Prepared images and features, of all models at most `limit` bytes of their arrays; the least recently used ones
    are removed. 0 keeps none. Safe to call from several threads."""

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: OrderedDict[Hashable, tuple[Prepared | ImageFeatures, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._metrics = metrics
        metrics.cache_bytes.set_function(lambda: self.bytes)

    def get(self, key: Hashable) -> Prepared | ImageFeatures | None:
        """What is kept under `key`."""
        with self._lock:
            item = self._kept.get(key)
            if item is None:
                return None
            self._kept.move_to_end(key)
            return item[0]

    def put(self, key: Hashable, value: Prepared | ImageFeatures) -> None:
        """Keeps `value` if it fits at all."""
        arrays = (value.pixels, value.display) if isinstance(value, Prepared) else value
        size = sum(array.nbytes for array in arrays if array is not None)
        with self._lock:
            self._remove(key)
            if size > self.limit:
                return
            self._kept[key] = value, size
            self.bytes += size
            while self.bytes > self.limit:
                self._remove(next(iter(self._kept)))
                self._metrics.cache_evictions.inc()

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def count(self, part: str, hits: int, misses: int) -> None:
        """Counts images in the metrics; `part`: IMAGE or FEATURES."""
        self._metrics.cache_hits.labels(part).inc(hits)
        self._metrics.cache_misses.labels(part).inc(misses)

    def __len__(self) -> int:
        return len(self._kept)

    def _remove(self, key: Hashable) -> None:
        self.bytes -= self._kept.pop(key, (None, 0))[1]


class KeptImages:
    """The prepared images of one request: a file prepared before, in the same geometry, is not decoded again."""

    def __init__(self, cache: FeatureCache, request: Request, geometry: Geometry) -> None:
        self._cache = cache
        self._side = shown_side(request.outputs)
        self._keys = [(IMAGE, hashlib.sha256(data).digest(), geometry.key) for data in request.images]

    def get(self) -> list[Prepared] | None:
        """All images of the request, or None: its errors name images by their place, so it is prepared as a whole."""
        found = [item for key in self._keys if isinstance(item := self._cache.get(key), Prepared)]
        complete = len(found) == len(self._keys) and all(map(self._is_shown, found))
        self._cache.count(IMAGE, len(found) if complete else 0, 0 if complete else len(self._keys))
        return found if complete else None

    def _is_shown(self, image: Prepared) -> bool:
        """Whether an image is kept as large as the request needs it."""
        kept = 0 if image.display is None else max(image.display.shape)
        return kept >= min(self._side, max(image.size))

    def put(self, images: Sequence[Prepared]) -> None:
        """Keeps what was prepared; its pixels may be a view of a larger array, which is not kept."""
        for key, image in zip(self._keys, images, strict=True):
            self._cache.put(key, replace(image, pixels=image.pixels.copy()))


class KeptFeatures:
    """Runs an engine as `Engine.run` does, with the features that are kept. `run` is called by one thread at a time.

    The first call only compares: where a graph does not fall apart, or its parts give other bits than the whole graph,
    nothing is kept.
    """

    def __init__(self, cache: FeatureCache, engine: Engine) -> None:
        self._cache = cache
        self._engine = engine
        self._digest = engine.bundle.digest
        self._keeps: bool | None = None if engine.splits and cache.limit else False

    def run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        """Scores of a batch, some of whose images may be known. Raises EngineError as `Engine.run`."""
        engine, cache = self._engine, self._cache
        if not self._keeps:
            scores = engine.run(pixels, text)
            if self._keeps is None:
                self._keeps = self._parts_equal(scores, pixels, text)
            return scores
        keys = [(FEATURES, self._digest, hashlib.sha256(image).digest()) for image in pixels]
        features = {key: item for key in set(keys) if isinstance(item := cache.get(key), tuple)}
        cache.count(FEATURES, sum(key in features for key in keys), sum(key not in features for key in keys))
        missing = {key: n for n, key in enumerate(keys) if key not in features}
        if missing:
            encoded = engine.encode(pixels[list(missing.values())])
            computed = engine.split(encoded)
            assert computed is not None
            features |= zip(missing, computed, strict=True)
            for key, item in zip(missing, computed, strict=True):
                cache.put(key, item)
            if len(missing) == len(keys):  # in their order
                return engine.ask(encoded, text)
        return engine.ask(engine.join(pixels, [features[key] for key in keys]), text)

    def _parts_equal(self, scores: Scores, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> bool:
        images = self._engine.split(self._engine.encode(pixels))
        if images is None:
            return False
        # In another order, which also shows that the features of each image are its own.
        joined = self._engine.ask(self._engine.join(pixels[::-1], images[::-1]), text)
        pairs = ((joined.logits[::-1], scores.logits), (joined.saliency[::-1], scores.saliency))
        return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)
