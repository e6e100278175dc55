"""The plan of a benchmark: scenarios, batch sizes, images, and time limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...engines.registry import did_you_mean
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
    repeats: int = LEAST_REPEATS
    seconds: float = 60.0
    seed: int = 0
    threads: int = 1
    folder: Path | None = None
    side: int = 1024
    against: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if unknown := [name for name in self.scenarios if name not in SCENARIOS]:
            raise ValueError(f"unknown scenario {unknown[0]!r}: {did_you_mean(unknown[0], SCENARIOS)}")
        if min((self.images, self.pairs, self.repeats, self.side, *self.batches), default=0) < 1:
            raise ValueError("batches, images, pairs, repeats and side must be at least 1")
