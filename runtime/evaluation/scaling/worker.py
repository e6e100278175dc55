"""One worker: it holds an engine, and turns chunks of cases into the bytes of their part files."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ....engines.base import Engine, EngineInfo, EngineOptions
from ....engines.bundle import Bundle
from ....engines.errors import BundleError, DataError, EngineError, XBenchError
from ....engines.select import choose, open_engine
from ....metrics_gpu.sweep.sweep import sweep
from ...data.datasets.pixels import PixelSource
from ...data.datasets.region_grid import DrawRegions
from ...data.images.decoders import choose_decoder
from ...data.images.views import View
from ...host.machine_record import code_version
from ...host.protocols import find_protocol
from ...results.cell_key import annotation_digest, cases_digest
from ...results.loaded_dataset import LoadedDataset, load_dataset
from ...results.storage import CellFiles
from ..cell import CellWork
from ..cell_sources import masks_opener, source_opener
from ..computing import compute_anywhere
from ..measure import Measure
from ..pairing import input_geometry, is_one_of_several, needed_geometries
from .jobs import ChunkJob, Described, Part, WorkPlan

_SAME = "every worker must see the same bundles and datasets under the same paths"


class ChunkWorker:
    """Computes chunks, one at a time. The engine of the last one stays open, and so does its source of pixels."""

    def __init__(self, plan: WorkPlan) -> None:
        self._plan = plan
        self._measure = Measure(find_protocol(plan.options.protocol), sweep)
        self._loaded: dict[str, LoadedDataset] = {}
        self._annotations: dict[str, str] = {}
        self._said: list[str] = []
        self._engine: Engine | None = None
        self._engines = ExitStack()
        self._source: tuple[str, str, PixelSource, DrawRegions] | None = None
        self._sources = ExitStack()

    def __call__(self, number: int, job: ChunkJob) -> list[Part]:
        """The parts of job `number`, whose cells are tried alone after an error of all. Raises nothing: an error is
        stored in the part."""
        made = self._tried(job)
        if len(made) > 1 and (error := made[0][1]):
            self._said.append(f"{job.dataset}: each prompt set is computed alone, because of all: {error}")
            made = [self._tried(replace(job, cells=(cell,)))[0] for cell in job.cells]
        said, self._said[:] = "\n".join(self._said), []
        return [Part(number, cell, *result, os.getpid(), said) for cell, result in enumerate(made)]

    def close(self) -> None:
        """Closes the engine and the source."""
        self._sources.close()
        self._engines.close()

    def _tried(self, job: ChunkJob) -> list[tuple[bytes, str, str]]:
        """For each cell the content of its part, or the error and its trace."""
        error, trace = "", ""
        try:
            return [(content, error, trace) for content in self._compute(job)]
        except XBenchError as problem:
            error = str(problem)
        # A reader or engine of a third party can raise any exception, and must not end the worker.
        except Exception as problem:
            error, trace = f"unexpected {type(problem).__name__}: {problem}", traceback.format_exc()
        return [(b"", error, trace)] * len(job.cells)

    def _compute(self, job: ChunkJob) -> list[bytes]:
        loaded = self._dataset(job)
        cases = loaded.cases[job.start : job.stop]
        if cases_digest(cases, loaded.config.root) != job.cases:
            raise DataError(
                f"A worker sees other images than the one who asks in {loaded.config.root}, between the cases "
                f"{job.start + 1} and {job.stop} of '{job.dataset}'; {_SAME}."
            )
        engine = self._open(job)
        source, draw = self._pixels(loaded, engine, job.decoder)
        options = self._plan.options
        with TemporaryDirectory(prefix="xbench-chunk-") as folder:
            work = [
                CellWork(
                    model=cell.model,
                    dataset=job.dataset,
                    prompts=engine.bundle.prompt_set(cell.prompts),
                    findings=cell.findings,
                    cases=cases,
                    files=CellFiles(Path(folder), f"chunk-{number}", cell.key),
                    source=source,
                    batch=options.batch,
                    chunk=len(cases),
                    workers=options.threads,
                    contents=loaded.contents,
                    draw=draw,
                    one_of_several=is_one_of_several(cell.model, job.bundle_name),
                    view=View(job.view) if job.view else None,
                    tiles=options.tiles,
                )
                for number, cell in enumerate(job.cells)
            ]
            compute_anywhere(work, engine, self._measure, lambda count: None)
            return [cell.files.final.read_bytes() for cell in work]

    def _dataset(self, job: ChunkJob) -> LoadedDataset:
        loaded = self._loaded.get(job.dataset)
        if loaded is None:
            try:
                options = self._plan.options
                loaded = load_dataset(
                    self._plan.datasets[job.dataset],
                    options.limit,
                    options.shard,
                    options.chunk,
                    verify=options.verify,
                )
                self._annotations[job.dataset] = annotation_digest(loaded.dataset)
            except XBenchError as error:
                raise DataError(f"On a worker: {error} {_SAME[0].upper()}{_SAME[1:]}.") from error
            self._loaded[job.dataset] = loaded
        if self._annotations[job.dataset] != job.annotations:
            raise DataError(
                f"A worker reads other annotations of '{job.dataset}' in {loaded.config.root}, or has another version "
                f"of its reader; {_SAME}."
            )
        return loaded

    def _open(self, job: ChunkJob) -> Engine:
        if self._engine is None or self._engine.bundle.name != job.bundle_name:
            self._source, self._engine = None, None
            self.close()
            self._engine = self._engines.enter_context(_engine(self._plan, job.bundle_name, self._said.append))
        engine, info = self._engine, self._engine.info
        if engine.bundle.digest != job.bundle:
            raise BundleError(f"A worker sees another bundle in {engine.bundle.path}; {_SAME}.")
        if f"{info.backend} {info.precision}" != job.engine:
            raise EngineError(
                f"A worker runs {job.bundle_name} with {info.backend} {info.precision}, others with {job.engine}; name "
                "the engine with --engine."
            )
        return engine

    def _pixels(self, loaded: LoadedDataset, engine: Engine, wanted: str) -> tuple[PixelSource, DrawRegions]:
        plan, rules = self._plan, self._measure.protocol
        geometry = input_geometry(engine.bundle.manifest.geometry, loaded.config, rules)
        if self._source is None or self._source[:2] != (loaded.name, geometry.key):
            self._sources.close()
            decoder, _ = choose_decoder(plan.decoder)
            if decoder.describe(geometry) != wanted:
                raise EngineError(
                    f"A worker decodes images with {decoder.describe(geometry)}, others with {wanted}; install the "
                    "same versions everywhere."
                )
            open_source = source_opener(
                plan.cache,
                lambda line: None,
                geometries=partial(needed_geometries, list(plan.bundles.values()), rules, tiles=plan.options.tiles),
                limit=plan.cache_limit,
                decoder=decoder,
                threads=plan.options.threads,
            )
            source = self._sources.enter_context(open_source(loaded, geometry))
            if (tiles := plan.options.tiles) is not None:
                fine = self._sources.enter_context(open_source(loaded, tiles.geometry(geometry)))
                source = tiles.source(source, fine, geometry.size)
            masks = masks_opener(plan.cache, lambda line: None, plan.cache_limit)(loaded)
            self._source = loaded.name, geometry.key, source, self._sources.enter_context(masks)
        return self._source[2:]


def describe(plan: WorkPlan) -> Described:
    """The setup of a worker on this machine; every bundle's engine is opened once. Raises nothing."""
    try:
        if code_version() != plan.code:
            raise EngineError(
                f"A worker has version {code_version()} of xbench-fast, not {plan.code}; install the same."
            )
        name, line = choose(plan.options.engine)
        plan = replace(plan, options=plan.options.for_engine(name, plan.batch))
        decoder, _ = choose_decoder(plan.decoder)
        rules = find_protocol(plan.options.protocol)
        said: list[str] = []
        infos: dict[str, EngineInfo | str] = {}
        decoders: dict[str, str] = {}
        for model in plan.bundles:
            try:
                with _engine(plan, model, said.append) as engine:
                    infos[model] = engine.info
                    for dataset in plan.datasets.values():
                        geometry = input_geometry(engine.bundle.manifest.geometry, dataset, rules)
                        decoders[geometry.key] = decoder.describe(geometry)
            except XBenchError as error:
                infos[model] = str(error)
    except XBenchError as error:
        return Described(error=str(error))
    return Described(name, line, infos, decoders, said=tuple(said))


def _engine(plan: WorkPlan, model: str, say: Callable[[str], None]) -> Engine:
    try:
        bundle = Bundle.load(plan.bundles[model])
    except BundleError as error:
        raise BundleError(f"On a worker: {error} {_SAME[0].upper()}{_SAME[1:]}.") from error
    how = EngineOptions(max_batch=plan.options.batch, build=plan.build, pad=True, tf32=plan.tf32, say=say)
    return open_engine(bundle, plan.options.engine, threads=plan.options.threads, options=how, auto=plan.auto)
