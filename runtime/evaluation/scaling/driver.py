"""The driver: plans cells as a local run does, sends their chunks to workers, and writes the run directory.

A part file on disk is a finished chunk, whichever process computed it: a run can be started on one machine and
continued on another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Engine, EngineInfo, Scores
from ....engines.bundle import Bundle
from ....engines.errors import ConfigError, EngineError, RunError, XBenchError
from ....engines.geometry import Geometry
from ....metrics_gpu.sweep.sweep import sweep
from ...data.images.decoders import Decoder
from ...host.config import DatasetConfig
from ...results.cell_key import annotation_digest, cases_digest
from ...results.run_directory import RunDirectory
from ...results.run_outcome import RunOutcome
from ...results.schema import result_schema
from ...results.storage import KEY_FIELD
from ..cell_sources import source_opener
from ..finishing import PlannedCell
from ..pairing import AskedSet
from ..progress import Progress
from ..reference.box_models import BoxModel
from ..reference.map_files import MapFolder
from ..runner import LoopParts, Runner
from .jobs import Backend, ChunkJob, Described, JobCell, Part, WorkPlan


@dataclass
class _Waiting:
    """A cell whose chunks `missing` must still be computed; `computed`: number of cases computed so far."""

    planned: PlannedCell
    bundle: Bundle
    prompts: str
    findings: Mapping[str, str]
    missing: set[int]
    view: str
    computed: int = 0
    failed: bool = False


@dataclass(frozen=True)
class _WorkersDecoder(Decoder):
    """Describes the decoder of the workers, for the keys of cells."""

    described: Mapping[str, str] = field(default_factory=dict)

    def describe(self, geometry: Geometry) -> str:
        return self.described[geometry.key]


class _WorkersEngine(Engine):
    """Describes the engine of the workers: it has an info and computes nothing here."""

    def __init__(self, bundle: Bundle, description: EngineInfo | str) -> None:
        super().__init__(bundle)
        self._description = description

    def _open(self) -> EngineInfo:
        if isinstance(self._description, str):
            raise EngineError(self._description)
        return self._description

    def _run(self, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
        raise EngineError(f"{self.bundle.name} runs on the workers, not here.")

    def _close(self) -> None:
        pass


class ClusterRunner(Runner):
    """A `Runner` whose bundles run on the workers of `backend`; baselines and files are computed here.

    `described`: what `backend.describe(plan)` said. Cells, keys, resuming and run.json are as with a `Runner`.
    """

    def __init__(
        self, run: RunDirectory, plan: WorkPlan, progress: Progress, backend: Backend, described: Described
    ) -> None:
        infos, decoders = described.infos or {}, described.decoders or {}

        def open_workers_engine(bundle: Bundle, name: str, **_: Any) -> Engine:
            return _WorkersEngine(bundle, infos[bundle.name])

        super().__init__(
            run,
            plan.options,
            progress,
            LoopParts(
                open_engine=open_workers_engine,
                open_source=source_opener(None, progress.say),
                sweep=sweep,
                decoder=_WorkersDecoder("cpu", described=decoders),
            ),
        )
        self._work = plan
        self._progress = progress
        self._backend = backend
        self._waiting: list[_Waiting] = []
        self._said = described.said
        self._heard = set[str]()

    def evaluate(
        self,
        bundles: Sequence[Path],
        datasets: Sequence[DatasetConfig],
        baselines: Sequence[str] = (),
        files: Sequence[MapFolder | BoxModel] = (),
    ) -> RunOutcome:
        self._hear(self._said)
        outcome = super().evaluate(bundles, datasets, baselines, files)
        try:
            self._compute()
        except (KeyboardInterrupt, RunError):
            for cell in self._unfinished():
                self._cells.interrupted(cell.planned)
            raise
        except XBenchError as error:
            for cell in self._unfinished():
                self._fail(cell, str(error))
        return outcome

    def _evaluate_sets(self, bundle: Bundle, engine: Engine, pairs: Sequence[AskedSet]) -> None:
        for asked in pairs:
            self._cells.guarded(asked.model, asked.loaded.name, partial(self._send, bundle, engine, asked))

    def _send(self, bundle: Bundle, engine: Engine, asked: AskedSet) -> None:
        loaded = asked.loaded
        if loaded.dataset.asks_phrases:
            raise ConfigError(
                f"The phrases of '{loaded.name}' are not asked by the workers of a cluster; leave --cluster out, or "
                "divide the evaluation with --shard."
            )
        planned = self._planning.of_bundle(bundle, engine, asked)
        if self._cells.taken_over(planned):
            return
        self._cells.begin(planned)
        files, chunks = self._cells.files(planned), -(-len(loaded.cases) // self._options.chunk)
        missing = {index for index in range(chunks) if not files.has_part(index)}
        view = "" if asked.view is None else asked.view.text
        self._waiting.append(_Waiting(planned, bundle, asked.prompts.name, asked.findings, missing, view))

    def _compute(self) -> None:
        """Computes all missing chunks of all cells as one stream, so that no worker waits for the end of a cell."""
        clock = _Clock()
        self._finish_whole(list(self._waiting), clock)
        work = list(self._jobs())
        if not work:
            return
        cells = len(self._waiting)
        title = f"{cells} cell{'' if cells == 1 else 's'} on the workers"
        total = sum(job.stop - job.start for _, job in work)
        clock.restart()
        with self._progress.cell(title, total) as advance:
            for part in self._backend.compute(self._work, [job for _, job in work]):
                asked, job = work[part.job]
                self._hear(part.said.splitlines())
                self._take(asked[part.cell], job, part)
                if part.cell == len(asked) - 1:
                    advance(job.stop - job.start)
                    self._finish_whole(asked, clock)
        for cell in self._unfinished():
            self._fail(cell, "the workers did not compute all of its chunks; run the same command again")

    def _hear(self, lines: Iterable[str]) -> None:
        """Says what engines said on the workers: what several say, once."""
        for line in lines:
            if line not in self._heard:
                self._heard.add(line)
                self._progress.say(line)

    def _jobs(self) -> Iterator[tuple[list[_Waiting], ChunkJob]]:
        """Each chunk with the cells of a bundle and a dataset that miss it: its images are computed once for them."""
        together: dict[tuple[str, str, str], list[_Waiting]] = {}
        for cell in self._waiting:
            together.setdefault((cell.bundle.name, cell.planned.loaded.name, cell.view), []).append(cell)
        for cells in together.values():
            first, loaded, chunk = cells[0], cells[0].planned.loaded, self._options.chunk
            annotations = annotation_digest(loaded.dataset)
            for index in sorted({index for cell in cells for index in cell.missing}):
                start, stop = index * chunk, min((index + 1) * chunk, len(loaded.cases))
                asked = [cell for cell in cells if index in cell.missing]
                yield (
                    asked,
                    ChunkJob(
                        cells=tuple(
                            JobCell(
                                cell.planned.model, self._cells.files(cell.planned).key, cell.prompts, cell.findings
                            )
                            for cell in asked
                        ),
                        bundle_name=first.bundle.name,
                        dataset=loaded.name,
                        chunk=index,
                        start=start,
                        stop=stop,
                        view=first.view,
                        bundle=first.bundle.digest,
                        annotations=annotations,
                        cases=cases_digest(loaded.cases[start:stop], loaded.config.root),
                        engine=str(first.planned.ingredients["engine"]),
                        decoder=str(first.planned.ingredients["decoder"]),
                    ),
                )

    def _take(self, cell: _Waiting, job: ChunkJob, part: Part) -> None:
        """Stores a part, also of a failed cell, so that it is not computed again."""
        if not part.error:
            self._cells.files(cell.planned).take_part(job.chunk, part.content)
            cell.missing.discard(job.chunk)
            cell.computed += job.stop - job.start
        elif not cell.failed:
            cell.failed = True
            self._cells.guarded(cell.planned.model, job.dataset, partial(_raise, part))

    def _finish_whole(self, cells: Sequence[_Waiting], clock: _Clock) -> None:
        whole = [cell for cell in cells if not (cell.missing or cell.failed)]
        seconds = clock.lap() / len(whole) if whole else 0.0  # they share their images
        for cell in whole:

            def finish(cell: _Waiting = cell) -> None:
                files = self._cells.files(cell.planned)
                chunks = -(-len(cell.planned.loaded.cases) // self._options.chunk)
                files.merge(chunks, result_schema({KEY_FIELD: files.key}))
                self._cells.done(cell.planned, cell.computed, seconds + clock.lap())

            self._cells.guarded(cell.planned.model, cell.planned.loaded.name, finish)
            self._waiting.remove(cell)

    def _unfinished(self) -> list[_Waiting]:
        return [cell for cell in self._waiting if not cell.failed]

    def _fail(self, cell: _Waiting, reason: str) -> None:
        cell.failed = True
        self._cells.fail(cell.planned.model, cell.planned.loaded.name, reason)


class _Clock:
    """Seconds between the ends of cells: chunks of two cells overlap, and each second must count once."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._last = time.monotonic()

    def lap(self) -> float:
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        return seconds


class _WorkerFault(Exception):
    """A program error on a worker."""


def _raise(part: Part) -> None:
    """Raises the error that a worker reported, as if it had occurred here."""
    if not part.trace:
        raise EngineError(part.error)
    fault: Any = _WorkerFault(part.error)
    fault.add_note(f"On the worker:\n{part.trace}")
    raise fault
