"""Timing of repeated calls, and statistics over the repeats."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

import numpy as np

PERCENTILES = (50, 90, 99)
T = TypeVar("T")


@dataclass(frozen=True)
class RepeatSpread:
    """Median, least and greatest of several values."""

    median: float
    least: float
    greatest: float

    @staticmethod
    def of(values: Sequence[float]) -> RepeatSpread:
        """Raises ValueError for no values."""
        if not values:
            raise ValueError("there is no value to take the median of")
        return RepeatSpread(float(median(values)), float(min(values)), float(max(values)))

    @property
    def relative(self) -> float:
        """(greatest - least) / median; infinite where the median is 0."""
        return (self.greatest - self.least) / self.median if self.median > 0 else math.inf

    def to_json(self) -> dict[str, float]:
        return {"median": self.median, "min": self.least, "max": self.greatest}


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90 and p99, interpolated linearly between the two nearest values. Raises ValueError for no values."""
    if not len(values):
        raise ValueError("there is no value to take a percentile of")
    return {f"p{percent}": float(np.percentile(values, percent)) for percent in PERCENTILES}


@dataclass(frozen=True)
class Clocked(Generic[T]):
    """Wall-clock seconds, processor seconds of the process and of this thread, and the returned value."""

    wall: float
    cpu: float
    thread: float
    result: T


def clocked(work: Callable[[], T]) -> Clocked[T]:
    """One call of `work`, timed."""
    wall, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
    result = work()
    return Clocked(time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - thread, result)


def median_ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Median over rounds of `slow / fast` within a round, so that a machine that slows down changes both sides.

    Raises ValueError for no rounds or for sides of different length.
    """
    if not slow:
        raise ValueError("there is no round to take a ratio of")
    return float(median(a / b for a, b in zip(slow, fast, strict=True)))


def timed(
    work: Callable[[int], object], repeats: int, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Seconds of `work(0)`, `work(1)`, .. after one warm-up, `work(-1)`, that is not counted.

    Stops after `repeats`, or when `seconds` have passed and at least one repeat is done.
    """
    work(-1)
    times: list[float] = []
    begun = clock()
    while len(times) < repeats and (not times or clock() - begun < seconds):
        start = clock()
        work(len(times))
        times.append(clock() - start)
    return times
