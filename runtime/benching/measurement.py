"""One measured scenario: its repeats, the limit it is compared with, and its problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .timing import RepeatSpread, percentiles

LEAST_REPEATS: Final = 5  # with fewer a measurement is not valid
LARGEST_SPREAD: Final = 0.25
"""(max - min) / median of the repeats above which the median is not reliable."""


@dataclass(frozen=True)
class Limit:
    """The highest possible `rate`, in units per second, and its source."""

    name: str
    rate: float


@dataclass(frozen=True)
class Measurement:
    """`counts`: units (images, pairs) per repeat, by name, the first one is the default of `rate`; `seconds`: one per
    repeat. `latencies`: seconds of single calls, if the scenario measures them. `problems`: why the result must not
    be used; `notes`: what a reader should know."""

    scenario: str
    subject: str
    runner: str
    batch: int | None
    counts: dict[str, int]
    seconds: Sequence[float]
    limit: Limit | None = None
    latencies: Sequence[float] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return next(iter(self.counts))

    def rate(self, unit: str | None = None) -> RepeatSpread:
        """Units per second over the repeats."""
        count = self.counts[unit or self.unit]
        return RepeatSpread.of([count / max(seconds, 1e-12) for seconds in self.seconds])

    @property
    def fraction(self) -> float | None:
        """Median rate as a fraction of the limit."""
        if self.limit is None or not self.limit.rate > 0:
            return None
        return self.rate().median / self.limit.rate

    def reasons(self) -> list[str]:
        """Why this measurement is not valid; empty when it is."""
        reasons = list(self.problems)
        if len(self.seconds) < LEAST_REPEATS:
            reasons.append(
                f"only {len(self.seconds)} of at least {LEAST_REPEATS} repeats fitted the time; raise --seconds or "
                "lower --images"
            )
        spread = self.rate().relative
        if spread > LARGEST_SPREAD:
            reasons.append(
                f"the repeats spread by {100 * spread:.0f} % of their median (at most {100 * LARGEST_SPREAD:.0f} %)"
            )
        return [f"{self.scenario}, {self.subject}: {reason}" for reason in reasons]

    def to_json(self) -> dict[str, Any]:
        stored = ("scenario", "subject", "runner", "batch", "counts", "seconds")
        data: dict[str, Any] = {
            **{name: getattr(self, name) for name in stored},
            "per_second": {unit: self.rate(unit).to_json() for unit in self.counts},
            "limit": None if self.limit is None else {"name": self.limit.name, "per_second": self.limit.rate},
            "fraction_of_limit": self.fraction,
            "reasons": self.reasons(),
            "notes": list(self.notes),
            **self.facts,
        }
        if self.latencies:
            data["latency_ms"] = {name: 1e3 * value for name, value in percentiles(self.latencies).items()}
            data["calls"] = len(self.latencies)
        return data


@dataclass(frozen=True)
class NotRun:
    """A scenario that could not be measured here, and why."""

    scenario: str
    subject: str
    reason: str
