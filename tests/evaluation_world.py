"""An evaluation in a folder of its own, with the engine and the sweep of `synthetic`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from synthetic import BlockEngine, reference_sweep
from xbench_fast.engines.bundle import Bundle
from xbench_fast.runtime.data.cache import mask_store as masks
from xbench_fast.runtime.data.datasets.dataset import Case
from xbench_fast.runtime.data.datasets.region_grid import region_masks
from xbench_fast.runtime.data.images.decoders import CPU, Decoder
from xbench_fast.runtime.evaluation.cell_options import Options
from xbench_fast.runtime.evaluation.cell_sources import masks_opener, source_opener
from xbench_fast.runtime.evaluation.measure import Sweep
from xbench_fast.runtime.evaluation.progress import PlainProgress
from xbench_fast.runtime.evaluation.reference.box_models import BoxModel
from xbench_fast.runtime.evaluation.reference.map_files import MapFolder
from xbench_fast.runtime.evaluation.runner import LoopParts, Runner
from xbench_fast.runtime.host.config import DatasetConfig
from xbench_fast.runtime.results.run_directory import RunDirectory
from xbench_fast.runtime.results.run_json import read_run
from xbench_fast.runtime.results.run_outcome import RunOutcome


class World:
    """A run directory and what an evaluation of it said; `engines` are those it opened."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "run"
        self.lines: list[str] = []
        self.engines: list[BlockEngine] = []
        self.interrupt: tuple[int, BaseException] | None = None

    def open(self, bundle: Bundle, name: str, *, threads: int | None = None, **_: Any) -> BlockEngine:
        engine = BlockEngine(bundle, threads=threads)
        if self.interrupt is not None:
            engine.fail_after, engine.error = self.interrupt
        self.engines.append(engine)
        return engine

    def run(
        self,
        bundles: list[Path],
        datasets: list[DatasetConfig],
        cache: Path | None = None,
        baselines: list[str] | None = None,
        decoder: Decoder = CPU,
        files: Sequence[MapFolder | BoxModel] | None = None,
        sweep: Sweep = reference_sweep,
        **options: Any,
    ) -> RunOutcome:
        settings = Options(**{"batch": 3, "chunk": 8, "threads": 2, **options})
        self.engines.clear()
        self.lines.clear()
        with RunDirectory(self.out) as run:
            run.begin({name: str(options[name]) for name in ("shard",) if name in options})
            runner = Runner(
                run,
                settings,
                PlainProgress(self.lines.append),
                LoopParts(
                    open_engine=self.open,
                    open_source=source_opener(cache, self.lines.append, decoder=decoder),
                    sweep=sweep,
                    decoder=decoder,
                    open_masks=masks_opener(cache, self.lines.append),
                ),
            )
            return runner.evaluate(bundles, datasets, baselines or [], files or [])

    @property
    def calls(self) -> list[int]:
        return [call for engine in self.engines for call in engine.calls]

    def entry(self, name: str = "blocks-32--coco") -> dict[str, Any]:
        found: dict[str, Any] = read_run(self.out)["cells"][name]
        return found

    def table(self, name: str = "blocks-32--coco") -> Any:
        return pq.read_table(self.out / self.entry(name)["file"])


def same(one: Any, other: Any) -> bool:
    return bool(one.replace_schema_metadata().equals(other.replace_schema_metadata()))


def drawn_by_stores(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets the cases whose regions a store of masks draws from now on."""
    found: list[str] = []

    def draw(case: Case, *rest: Any) -> Any:
        found.append(case.case_id)
        return region_masks(case, *rest)

    monkeypatch.setattr(masks, "region_masks", draw)
    return found
