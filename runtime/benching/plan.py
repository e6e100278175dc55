"""The plan of a benchmark: scenarios, batch sizes, images, and time limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from ...engines.registry import did_you_mean
from ...metrics_gpu.statistics.bootstrap import SEED
from ..host.declaring import Limits, described
from .measurement import LEAST_REPEATS

SCENARIOS: Final = ("offline", "single-stream", "prepared", "files", "sweep", "decode")


@dataclass(frozen=True)
class RepeatSizes:
    """Default sizes of one repeat: batch sizes to try, images, pairs of the sweep."""

    batches: tuple[int, ...]
    images: int
    pairs: int


ON_CPU: Final = RepeatSizes((16,), 64, 2048)
ON_GPU: Final = RepeatSizes((8, 32, 64, 128, 256), 4096, 262_144)


@dataclass(frozen=True)
class Plan:
    """scenarios: some of `SCENARIOS`. batches: sizes the offline scenario tries, the best of which the end-to-end ones
    use. images, pairs: of one repeat. seconds: limit of one measurement. folder: image files to use instead of
    generated ones of `side` x `side` pixels. against: other runners of the models, by name."""

    scenarios: tuple[str, ...]
    batches: tuple[int, ...]
    images: int
    pairs: int
    repeats: Annotated[int, Limits(1)] = field(default=LEAST_REPEATS, metadata=described("Repeats after one warm-up."))
    seconds: Annotated[float, Limits(0)] = field(
        default=60.0, metadata=described("Time in seconds after which no further repeat of a measurement begins.")
    )
    seed: Annotated[int, Limits(0)] = field(default=SEED, metadata=described("Seed of all random inputs."))
    threads: int = 1
    folder: Path | None = field(
        default=None, metadata=described("Folder of images to decode.", shown="generated images", metavar="DIR")
    )
    side: Annotated[int, Limits(8)] = field(default=1024, metadata=described("Side of generated images in pixels."))
    against: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [name for name in self.scenarios if name not in SCENARIOS]:
            raise ValueError(f"unknown scenario {unknown[0]!r}: {did_you_mean(unknown[0], SCENARIOS)}")
        if min((self.images, self.pairs, self.repeats, self.side, *self.batches), default=0) < 1:
            raise ValueError("batches, images, pairs, repeats and side must be at least 1")
