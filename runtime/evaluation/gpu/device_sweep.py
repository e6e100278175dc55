"""Scores on the GPU -> counts on the host: the maps of the pairs are gathered and swept on the GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....engines.backends.device import DeviceEngine, DeviceScores
from ....engines.backends.gpu import load_cupy
from ....metrics_gpu.sweep.counts import Counts
from ....metrics_gpu.sweep.gpu import mean_maps
from ..drawn import DrawnPairs
from ..queries import Queries
from ..scoring import Scored
from .feeding import pinned

if TYPE_CHECKING:
    from ..measure import Measure


@dataclass(frozen=True)
class Started:
    """A running submission: host arrays that are filled once the event `done` is reached. `kept`: its inputs in use.

    pairs: of its B readable cases; image_of: intp [B], the image of each case; logits: float32 [images, Q]; maps:
    float32 [P, h, w]; swept: what `Measure.launch` returned.
    """

    pairs: DrawnPairs
    image_of: NDArray[np.intp]
    logits: NDArray[np.float32]
    maps: NDArray[np.float32]
    swept: tuple[Counts, ...]
    done: Any
    kept: tuple[Any, ...]

    def scored(self, queries: Queries, measure: Measure) -> Scored:
        """What the engine says of the cases; only after `done`."""
        counts, native = measure.counted(self.pairs, self.maps, self.swept or (Counts.empty(),))
        logits = queries.logits(self.logits[self.image_of])
        return Scored(self.pairs, counts, logits, self.maps, native)


@dataclass(frozen=True, eq=False)
class AskedRegions:
    """The regions that a prompt set, or several with the same findings, asks for, on the GPU.

    pairs: of B readable cases; image_of: intp [B], the image of each case among the scores; masks: cupy, those of the
    pairs.
    """

    pairs: DrawnPairs
    image_of: NDArray[np.intp]
    masks: Any


def start(
    engine: DeviceEngine, scores: DeviceScores, regions: AskedRegions, queries: Queries, measure: Measure
) -> Started:
    """Enqueues in the engine's stream all steps after `scores` of the images of the cases; does not wait."""
    cupy, pairs, image_of = load_cupy(), regions.pairs, regions.image_of
    swept: tuple[Counts, ...] = ()
    kept: list[Any] = []
    with engine.stream:
        logits = _to_host(cupy, engine.stream, scores.logits)
        maps: NDArray[np.float32] = np.empty((0, *scores.saliency.shape[2:]), np.float32)
        if len(pairs):
            gathered = pair_maps(scores.saliency, replace(pairs, of_case=image_of[pairs.of_case]), queries)
            on_device = measure.launch(gathered, regions.masks, pairs.frames)
            maps = _to_host(cupy, engine.stream, gathered)
            swept = tuple(counts.copied(partial(_to_host, cupy, engine.stream)) for counts in on_device)
            kept = [gathered, regions.masks, *on_device]
        done = engine.stream.record(cupy.cuda.Event(disable_timing=True))
    return Started(pairs, image_of, logits, maps, swept, done, tuple(kept))


def pair_maps(saliency: Any, pairs: DrawnPairs, queries: Queries) -> Any:
    """The map of each pair, cupy float32 [P, h, w], of saliency [B, Q, h, w]: the mean over its positive prompts, as
    `Queries.maps` takes it on the host, to the last bit."""
    lists = [queries.positive[finding] for finding in pairs.of_finding.tolist()]
    lengths = [len(group) for group in lists]
    places = np.concatenate(lists) + np.repeat(pairs.of_case * saliency.shape[1], lengths)
    return mean_maps(saliency.reshape(-1, *saliency.shape[2:]), np.cumsum([0, *lengths]), places)


def _to_host(cupy: Any, stream: Any, array: Any) -> NDArray[Any]:
    """A copy on the host, complete when the stream has reached it."""
    out = pinned(cupy, array.shape, array.dtype)
    array.get(stream=stream, out=out, blocking=False)
    return out
