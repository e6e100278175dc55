"""The options of a run for computing its cells, and their part of a cell's key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...engines.base import CPU_BATCH
from ...engines.select import default_batch, runs_on_gpu
from ..data.images.tiles import Tiling
from ..host.options import EvaluationOptions
from ..results.runs.shards import Shard


@dataclass(frozen=True)
class Options:
    """How cells are computed.

    `chunk`: cases in a part file; a killed run repeats one, and those before it that were still being written.
    `skip_absent`: a dataset whose folder does not exist is skipped with a message instead of failing. `protocol`: one
    of `metrics_gpu.PROTOCOLS`. `shard`: the part of every dataset that is evaluated, None for all of it. `verify`:
    every image file is read again to answer whether a result or a prepared image is of its content. `gpu`: number of
    the GPU, which no row depends on. `tiles`: how images are divided; None: not at all.
    """

    engine: str = EvaluationOptions.engine
    batch: int = CPU_BATCH
    threads: int = 1
    limit: int | None = None
    chunk: int = EvaluationOptions.chunk
    skip_absent: bool = False
    protocol: str = EvaluationOptions.protocol
    shard: Shard | None = None
    verify: bool = False
    gpu: int = 0
    tiles: Tiling | None = None

    def for_engine(self, name: str, batch: int | None) -> Options:
        """These options with the engine `name`, in batches of `batch` images; None: of as many as the engine's default.

        An engine on a GPU computes every batch at its full size, with unused images. Its chunks are whole batches, so
        that only the last batch of a dataset has any: in chunks of 512, batches of 384 would compute 1.5 times as many
        images as there are.
        """
        usual = default_batch(name, self.gpu)
        if not runs_on_gpu(name, self.gpu):
            return replace(self, engine=name, batch=batch or usual)
        size = batch or min(usual, self.chunk)
        return replace(self, engine=name, batch=size, chunk=-(-self.chunk // size) * size)

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
