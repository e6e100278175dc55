"""Plans and runs an evaluation from a request: models, datasets, engine, decoder, cache and run directory.

The command line and the Python interface both use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ...engines.backends.gpu import describe_gpu
from ...engines.base import CPU_BATCH, Engine, EngineOptions
from ...engines.bundle import Bundle
from ...engines.errors import ConfigError
from ...engines.prompts.phrase_features import PHRASE_FEATURES
from ...engines.select import ENGINES, check_engine, choose, open_engine, runs_on_gpu
from ...metrics_gpu.sweep.sweep import sweep
from ..data.images.decoders import CPU, choose_decoder
from ..data.images.tiles import Tiling
from ..host.config import Config, DatasetConfig
from ..host.machine_record import usable_cores
from ..host.options import EvaluationOptions
from ..results.run_directory import RunDirectory
from ..results.run_outcome import RunOutcome
from ..results.runs.shards import Shard
from .cell_options import Options
from .cell_sources import masks_opener, source_opener
from .live_model import LiveModel
from .opening import Turn
from .pairing import check_datasets, configured_protocol, needed_geometries, select_bundles, select_datasets
from .progress import Progress
from .reference.baselines import split_baselines
from .reference.box_models import COUNTED, BoxModel, BoxOptions, split_boxes
from .reference.map_files import MapFolder, split_maps
from .runner import LoopParts, Runner


class Workers(Protocol):
    """Other processes that compute the cells of bundles. engine: the engine they run; line: the message about it."""

    @property
    def engine(self) -> str: ...

    @property
    def line(self) -> str: ...

    def evaluate(
        self,
        run: RunDirectory,
        progress: Progress,
        bundles: Sequence[Path],
        datasets: Sequence[DatasetConfig],
        baselines: Sequence[str],
        files: Sequence[MapFolder | BoxModel],
    ) -> RunOutcome:
        """As `Runner.evaluate`."""
        ...


@dataclass(frozen=True)
class Asked:
    """The request for an evaluation.

    models: names or paths of bundles, baseline:..., maps:FOLDER, boxes:FILE; datasets: names of configured
    ones. Without models, datasets and a `live` model: every bundle found on every dataset. With only one of models and
    datasets: all of the other. limit, chunk, shard, verify: as `Options`. decoder: "auto", "cpu" or "dali".
    boxes: how files of boxes are read.
    """

    models: Sequence[str] = ()
    datasets: Sequence[str] = ()
    live: LiveModel | None = None
    limit: int | None = None
    chunk: int = EvaluationOptions.chunk
    shard: Shard | None = None
    decoder: str = EvaluationOptions.decoder
    verify: bool = False
    boxes: BoxOptions = COUNTED


@dataclass(frozen=True)
class Evaluation:
    """An evaluation that is ready to run: everything named in it exists. `config.eval` holds the settings."""

    config: Config
    options: Options
    decoder: str
    datasets: Sequence[DatasetConfig]
    bundles: Sequence[Path]
    baselines: Sequence[str]
    files: Sequence[MapFolder | BoxModel]
    live: LiveModel | None = None
    shared: Mapping[str, Any] = field(default_factory=lambda: {"shard": None, "cluster": False})

    @staticmethod
    def of(config: Config, asked: Asked) -> Evaluation:
        """Finds the requested models and datasets. Raises ConfigError for one that does not exist or has no reader."""
        settings = config.eval
        configured_protocol(settings.protocol)
        check_engine(settings.engine)
        options = Options(
            engine=settings.engine,
            threads=settings.threads or usable_cores(),
            limit=asked.limit,
            chunk=asked.chunk,
            skip_absent=not asked.datasets,
            protocol=settings.protocol,
            shard=asked.shard,
            verify=asked.verify,
            gpu=settings.gpu or 0,
            tiles=Tiling.of(settings.tiles or "", settings.tile_score),
        )
        datasets = select_datasets(config, asked.datasets)
        if settings.prompts:
            datasets = [replace(item, prompts=item.prompts or settings.prompts) for item in datasets]
        if not datasets:
            raise ConfigError("No dataset is configured; give one with --data NAME=PATH or in xbench.toml.")
        baselines, others = split_baselines(asked.models)
        maps, others = split_maps(others)
        boxes, others = split_boxes(others, asked.boxes)
        everything = not asked.models and asked.live is None
        bundles: list[Path] = []
        try:
            bundles = select_bundles(config, others) if others or everything else []
        finally:  # a reader that does not exist is the first fault to correct
            check_datasets(datasets, bundles)
        evaluation = Evaluation(
            config, options, asked.decoder, datasets, bundles, baselines, [*maps, *boxes], asked.live
        )
        if asked.live is not None and evaluation.names.count(asked.live.name) > 1:
            raise ConfigError(f"Two models are called '{asked.live.name}'; give the live one another name.")
        return evaluation

    @property
    def names(self) -> list[str]:
        """All models, as run.json names them."""
        live = [] if self.live is None else [self.live.name]
        return [*live, *(path.name for path in self.bundles), *self.baselines, *(file.name for file in self.files)]

    def run(self, progress: Progress, workers: Workers | None = None) -> RunOutcome:
        """Computes every unfinished cell, reports to `progress` and records all in the run directory.

        workers: processes that run the bundles instead of this process. Raises ConfigError, EngineError or RunError
        before the first cell, and RunError when results can no longer be written.
        """
        config, chosen = self.config, self.options.engine
        gpu: dict[str, Any] = {}
        if workers is not None:
            chosen, line = workers.engine, workers.line
        elif self.bundles:
            chosen, line = choose(chosen, config.eval.gpu)
            ENGINES.load(chosen)
            if config.eval.gpu is not None or runs_on_gpu(chosen):
                gpu = {"gpu": describe_gpu(self.options.gpu)}
        # A live model gets batches as on a CPU: nothing says where it runs, and what memory it has.
        options = self.options.for_engine(chosen, config.eval.batch or (CPU_BATCH if self.live else None))
        if self.bundles or self.live is not None:
            self._check_decoder()
        if self.bundles:
            self._check_engine(chosen)
            progress.say(line)
        here = bool(self.bundles or self.live) and workers is None
        decoder, remark = choose_decoder(self.decoder, self.options.gpu) if here else (CPU, None)
        if remark:
            progress.say(remark)
        with RunDirectory(config.eval.out) as run:
            run.begin(self._provenance(options, self.decoder if workers is not None else decoder.name) | gpu)
            if workers is not None:
                outcome = workers.evaluate(run, progress, self.bundles, self.datasets, self.baselines, self.files)
            else:
                runner = Runner(
                    run,
                    options,
                    progress,
                    LoopParts(
                        open_engine=partial(self._open_engine, options.batch),
                        open_source=source_opener(
                            config.cache,
                            progress.say,
                            geometries=partial(
                                needed_geometries,
                                self.bundles,
                                configured_protocol(config.eval.protocol),
                                tiles=options.tiles,
                            ),
                            limit=config.cache_limit,
                            decoder=decoder,
                            threads=self.options.threads,
                        ),
                        sweep=sweep,
                        decoder=decoder,
                        phrase_features=config.cache / PHRASE_FEATURES if config.cache else None,
                        open_masks=masks_opener(config.cache, progress.say, config.cache_limit),
                    ),
                )
                if self.live is not None:
                    runner.evaluate_live(self.live, self.datasets)
                outcome = runner.evaluate(self.bundles, self.datasets, self.baselines, self.files)
        progress.say(f"{config.eval.out}: {outcome.summary}")
        return outcome

    def _open_engine(self, batch: int, bundle: Bundle, name: str, *, threads: int, turn: Turn) -> Engine:
        settings = self.config.eval
        how = EngineOptions(
            max_batch=batch,
            build=settings.build and not turn.ahead,
            pad=True,
            tf32=settings.tf32,
            device=self.options.gpu,
            say=turn.say,
            neighbour=turn,
        )
        return open_engine(bundle, name, threads=threads, options=how, auto=self.options.engine == "auto")

    def _check_engine(self, name: str) -> None:
        """Rejects what the CPU engine does not support; GPU engines support it."""
        if name != "onnxruntime-cpu":
            return
        if self.config.eval.tf32:
            raise ConfigError(
                f"--tf32 is for engines on a GPU, and this one is {name}; leave it out, or name the engine."
            )

    def _check_decoder(self) -> None:
        """Rejects a decoder that fills the cache where there is none."""
        if self.decoder == "dali" and self.config.cache is None:
            raise ConfigError(
                "--decoder dali decodes into the cache, once for all models; leave --no-cache out, or use --decoder "
                "cpu."
            )

    def _provenance(self, options: Options, decoder: str) -> dict[str, Any]:
        config = self.config
        return {
            "file": str(config.path) if config.path else None,
            "bundles": self.names,
            "datasets": {
                name: {
                    "root": str(item.root.absolute()),  # a report can be made from another folder
                    "reader": item.reader,
                    "prompts": item.prompts,
                    **({"augment": list(item.augment)} if item.augment else {}),
                    "options": dict(item.options),
                }
                for name, item in {**config.datasets, **{item.name: item for item in self.datasets}}.items()
            },
            "cache": str(config.cache.absolute()) if config.cache else None,
            "decoder": decoder,
            "engine": self.options.engine,
            "protocol": options.protocol,
            "tf32": config.eval.tf32,
            "batch": options.batch,
            "threads": options.threads,
            "limit": options.limit,
            "chunk": options.chunk,
            **({"tiles": options.tiles.description} if options.tiles else {}),
            **self.shared,
        }
