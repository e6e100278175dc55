"""How a run computes its cells, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..results.shards import Shard

__all__ = ["Options", "Outcome"]


@dataclass(frozen=True)
class Options:
    """How cells are computed.

    `chunk`: cases in a part file, what a killed run may have to repeat at most. `skip_absent`: a dataset whose folder
    does not exist is skipped with a line instead of failing. `protocol`: one of `metrics_gpu.PROTOCOLS`. `shard`: the
    part of every dataset that is evaluated, None for all of it.
    """

    engine: str = "auto"
    batch: int = 16
    threads: int = 1
    limit: int | None = None
    chunk: int = 256
    skip_absent: bool = False
    protocol: str = "default"
    shard: Shard | None = None

    def ingredients(self, *, batch: bool) -> dict[str, Any]:
        """What of these decides rows, for a cell's key; `batch`: whether there is an engine, whose last bits depend on
        the shapes it meets. A shard is named only where there is one, so that merged shards have the key of a whole.
        """
        found: dict[str, Any] = {"chunk": self.chunk, "limit": self.limit}
        if batch:
            found["batch"] = self.batch
        if self.shard is not None:
            found["shard"] = str(self.shard)
        return found


@dataclass
class Outcome:
    """What became of the cells, as (model, dataset, sentence) where something is to be said."""

    computed: int = 0
    reused: int = 0
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)

    @property
    def finished(self) -> int:
        """Cells that have a result now."""
        return self.computed + self.reused

    @property
    def summary(self) -> str:
        """The line that ends a run."""
        return (
            f"{self.finished} cell{'' if self.finished == 1 else 's'} finished ({self.reused} of them before), "
            f"{len(self.skipped)} skipped, {len(self.failed)} failed"
        )
