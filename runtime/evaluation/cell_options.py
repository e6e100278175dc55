"""The options of a run for computing its cells, and their part of a cell's key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..host.options import EvaluationOptions
from ..results.runs.shards import Shard


@dataclass(frozen=True)
class Options:
    """How cells are computed.

    `chunk`: cases in a part file; a killed run repeats at most one, and the one before it while that is being written.
    `skip_absent`: a dataset whose folder does not exist is skipped with a message instead of failing. `protocol`: one
    of `metrics_gpu.PROTOCOLS`. `shard`: the part of every dataset that is evaluated, None for all of it. `verify`:
    every image file is read again to answer whether a result or a prepared image is of its content.
    """

    engine: str = EvaluationOptions.engine
    batch: int = EvaluationOptions.batch
    threads: int = 1
    limit: int | None = None
    chunk: int = EvaluationOptions.chunk
    skip_absent: bool = False
    protocol: str = EvaluationOptions.protocol
    shard: Shard | None = None
    verify: bool = False

    def ingredients(self, *, batch: bool) -> dict[str, Any]:
        """The options that rows depend on, for a cell's key. `batch`: whether there is an engine; the last bits of its
        outputs depend on the batch size. The shard is included only if there is one, so that merged shards have the
        key of an undivided evaluation.
        """
        parts: dict[str, Any] = {"chunk": self.chunk, "limit": self.limit}
        if batch:
            parts["batch"] = self.batch
        if self.shard is not None:
            parts["shard"] = str(self.shard)
        return parts
