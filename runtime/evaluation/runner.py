"""Computes all cells of a run. A failed cell is recorded and does not stop the others; a full disk stops the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.base import Engine, Scores
from ...engines.bundle import Bundle
from ...engines.errors import ConfigError, RunError, XBenchError
from ...engines.prompts.phrase_features import PhraseFeatures
from ...engines.prompts.prompt_set import PromptSet
from ...metrics_gpu.grounding.protocols import protocol
from ..data.images.decoders import CPU, Decoder
from ..host.config import DatasetConfig
from ..host.paths import has_folder
from ..results.cell_key import reference_ingredients
from ..results.loaded_dataset import LoadedDataset, load_dataset
from ..results.run_directory import RunDirectory
from ..results.run_outcome import RunOutcome
from ..results.storage import CellFiles
from .cell import CellWork
from .cell_options import Options
from .cell_sources import OpenMasks, OpenSource, drawn_each_time
from .finishing import Finisher, PlannedCell
from .gpu.device_cell import compute_anywhere
from .live_model import LiveEngine, LiveModel, one_query_each
from .measure import Measure, Sweep
from .opening import NextEngine, Opened, Turn
from .pairing import asked_prompts, missing_prompts
from .phrase_queries import Ask, PhraseQueries, first_phrases, most_queries, see_one_another
from .planning import Planning, extent, made_by
from .progress import Progress, not_asked_line, some_names
from .reference.box_models import BoxModel
from .reference.map_files import MapFolder
from .reference.reference_cell import compute_reference, find_reference

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OpenEngine = Callable[..., AbstractContextManager[Engine]]


@dataclass(frozen=True)
class LoopParts:
    """The parts of the loop: functions that open an engine, a source of pixels and one of regions, the sweep, the
    decoder, and the file that keeps the features of phrases. `open_engine` is called with a bundle, the name of an
    engine, `threads` and a `turn` (`opening.Turn`)."""

    open_engine: OpenEngine
    open_source: OpenSource
    sweep: Sweep
    decoder: Decoder = CPU
    phrase_features: Path | None = None
    open_masks: OpenMasks = drawn_each_time


class Runner:
    """Evaluates bundles x datasets into the run directory `run`, with the given `parts`."""

    def __init__(self, run: RunDirectory, options: Options, progress: Progress, parts: LoopParts) -> None:
        self._options = options
        self._open_engine = parts.open_engine
        self._open_source, self._open_masks = parts.open_source, parts.open_masks
        self._measure = Measure(protocol(options.protocol), parts.sweep)
        self._planning = Planning(options, self._measure, parts.decoder)
        self._phrase_features = parts.phrase_features
        self._loaded: dict[str, LoadedDataset | XBenchError] = {}
        self._cells = Finisher(run, progress, options.protocol)
        self._say = progress.say

    def evaluate(
        self,
        bundles: Sequence[Path],
        datasets: Sequence[DatasetConfig],
        baselines: Sequence[str] = (),
        files: Sequence[MapFolder | BoxModel] = (),
    ) -> RunOutcome:
        """Computes every unfinished cell; `baselines` are names such as "baseline:ones".

        Raises RunError when results can no longer be written.
        """
        with NextEngine(bundles, partial(self._opened, datasets), self._say) as following:
            for path in bundles:
                try:
                    self._bundle(path, datasets, following)
                except RunError:
                    raise
                except XBenchError as error:
                    for dataset in datasets:
                        self._cells.fail(path.name, dataset.name, error)
        references: list[str | MapFolder | BoxModel] = [*baselines, *files]
        for model in references:
            for dataset in datasets:
                name = model if isinstance(model, str) else model.name
                self._cells.guarded(name, dataset.name, partial(self._reference, model, dataset))
        return self._cells.outcome

    def evaluate_live(self, model: LiveModel, datasets: Sequence[DatasetConfig]) -> RunOutcome:
        """As `evaluate`, for a live model; the outcome covers all cells of this runner so far."""
        for dataset in datasets:
            self._cells.guarded(model.name, dataset.name, partial(self._live, model, dataset))
        return self._cells.outcome

    def _bundle(self, path: Path, datasets: Sequence[DatasetConfig], following: NextEngine) -> None:
        """Computes the cells of the bundle at `path`, while `following` opens the engine of the next one."""
        with ExitStack() as stack:
            opened = following.take(stack)
            bundle = opened.bundle if opened else Bundle.load(path)
            ready: list[tuple[LoadedDataset, PromptSet, dict[str, str]]] = []
            for config in datasets:
                try:
                    pair = self._pair(bundle, config)
                except XBenchError as error:
                    self._cells.fail(bundle.name, config.name, error)
                    continue
                if isinstance(pair, str):
                    self._cells.skip(bundle.name, config.name, pair)
                    continue
                ready.append(pair)
                classes = pair[0].dataset.classes
                if left := [finding for finding in classes if finding not in pair[2]]:
                    self._cells.remark(bundle.name, config.name, not_asked_line(pair[1].name, left, len(classes)))
            if not ready:
                return
            try:
                if opened is None:
                    opened = self._opening(bundle, following.turn())
                    stack.push(opened.closing)
                opened.turn.begin()
            except XBenchError as error:
                for loaded, _, _ in ready:
                    self._cells.fail(bundle.name, loaded.name, error)
                return
            following.start_after(path)
            for loaded, prompts, findings in ready:
                run = partial(self._cell, bundle, opened.engine, loaded, prompts, findings)
                self._cells.guarded(bundle.name, loaded.name, run)

    def _opened(self, datasets: Sequence[DatasetConfig], path: Path, turn: Turn) -> Opened | None:
        """The open engine of a bundle; None where no cell needs one. Raises what its turn will raise."""
        bundle = Bundle.load(path)
        return self._opening(bundle, turn) if any(self._is_asked(bundle, config) for config in datasets) else None

    def _is_asked(self, bundle: Bundle, config: DatasetConfig) -> bool:
        with suppress(XBenchError):
            return not isinstance(self._pair(bundle, config), str)
        return False

    def _opening(self, bundle: Bundle, turn: Turn) -> Opened:
        closing = self._open_engine(bundle, self._options.engine, threads=self._options.threads, turn=turn)
        return Opened(bundle, closing.__enter__(), closing, turn)

    def _cell(
        self, bundle: Bundle, engine: Engine, loaded: LoadedDataset, prompts: PromptSet, findings: dict[str, str]
    ) -> None:
        if not loaded.dataset.asks_phrases:
            planned = self._planning.of_bundle(bundle, engine, loaded, prompts, findings)
            self._compute_here(planned, engine, prompts, findings)
            return
        features = PhraseFeatures(bundle, self._phrase_features, threads=self._options.threads)
        with closing(features):

            def ask(pixels: NDArray[np.uint8], texts: list[str]) -> Scores:
                return engine.run(pixels, features(texts))

            side, precision = bundle.manifest.geometry.size, engine.info.precision
            phrases = self._phrases(bundle.name, loaded, ask, side, precision)
            phrases = replace(phrases, most=most_queries(bundle))
            planned = self._planning.of_bundle(bundle, engine, loaded, prompts, findings, phrases)
            self._compute_here(planned, engine, prompts, findings, phrases)

    def _phrases(self, model: str, loaded: LoadedDataset, ask: Ask, side: int, precision: str) -> PhraseQueries:
        """How a model is asked the phrases of a dataset, with a remark where that is not as usual."""
        alone = see_one_another(ask, side, first_phrases(loaded.asked), precision)
        if alone:
            self._cells.remark(model, loaded.name, "its queries see one another, so each phrase is asked alone")
        if left := len(loaded.dataset.cases()) - len(loaded.asked):
            self._cells.remark(model, loaded.name, f"cases without a phrase that has a region: {left}, not evaluated")
        return PhraseQueries(tuple(loaded.dataset.classes), ask, alone)

    def _pair(self, bundle: Bundle, config: DatasetConfig) -> tuple[LoadedDataset, PromptSet, dict[str, str]] | str:
        """The inputs of a cell, or the reason why it is skipped."""
        if self._options.skip_absent and not has_folder(config.root):
            return f"its folder {config.root} does not exist"
        try:
            loaded = self._load(config)
        except ConfigError as error:
            further = missing_prompts(config, [bundle.path])
            raise ConfigError(" ".join([str(error), *further])) from error
        if loaded.dataset.asks_phrases:
            if supervised := bundle.manifest.findings:
                names = some_names(supervised)
                return f"it reads no phrases: it is supervised and knows {len(supervised)} findings ({names})"
            if config.prompts is not None:
                raise ConfigError(
                    f"The dataset '{config.name}' asks each image its own phrases, so it takes no prompt set; leave "
                    f"prompts={config.prompts} out."
                )
            bundle.graph("text")  # raises
            classes = loaded.dataset.classes
            return loaded, one_query_each(classes, "report"), {name: name for name in classes}
        asked = asked_prompts(bundle, config, loaded.dataset)
        return asked if isinstance(asked, str) else (loaded, *asked)

    def _load(self, config: DatasetConfig) -> LoadedDataset:
        loaded = self._loaded.get(config.name)
        if loaded is None:
            try:
                options = self._options
                loaded = load_dataset(config, options.limit, options.shard, options.chunk, verify=options.verify)
                self._cells.learn(loaded)
            except XBenchError as error:
                loaded = error
            self._loaded[config.name] = loaded
        if isinstance(loaded, XBenchError):
            raise loaded
        return loaded

    def _live(self, model: LiveModel, config: DatasetConfig) -> None:
        if self._options.skip_absent and not has_folder(config.root):
            self._cells.skip(model.name, config.name, f"its folder {config.root} does not exist")
            return
        loaded = self._load(config)
        classes = loaded.dataset.classes
        asks_phrases = loaded.dataset.asks_phrases
        texts = first_phrases(loaded.asked) if asks_phrases else classes
        with LiveEngine(model, texts, secret=asks_phrases) as engine:
            side = model.geometry.size
            phrases = self._phrases(model.name, loaded, engine.ask_texts, side, "fp32") if asks_phrases else None
            cell = self._planning.of_live(model, engine, loaded, phrases)
            prompts = one_query_each(classes)
            self._compute_here(cell, engine, prompts, {name: name for name in classes}, phrases)

    def _compute_here(
        self,
        planned: PlannedCell,
        engine: Engine,
        prompts: PromptSet,
        findings: dict[str, str],
        phrases: PhraseQueries | None = None,
    ) -> None:
        loaded = planned.loaded
        geometry = self._planning.geometry(engine.bundle.manifest.geometry, loaded)

        def compute(files: CellFiles, advance: Callable[[int], None]) -> int:
            with self._open_source(loaded, geometry) as source, self._open_masks(loaded) as draw:
                cell = CellWork(
                    model=planned.model,
                    dataset=loaded.name,
                    prompts=prompts,
                    findings=findings,
                    cases=loaded.cases,
                    files=files,
                    source=source,
                    batch=self._options.batch,
                    chunk=self._options.chunk,
                    workers=self._options.threads,
                    contents=loaded.contents,
                    sizes=loaded.file_sizes,
                    phrases=phrases,
                    draw=draw,
                )
                return compute_anywhere(cell, engine, self._measure, advance)

        self._cells.compute(planned, compute)

    def _reference(self, model: str | MapFolder | BoxModel, config: DatasetConfig) -> None:
        name = model if isinstance(model, str) else model.name
        if self._options.skip_absent and not has_folder(config.root):
            self._cells.skip(name, config.name, f"its folder {config.root} does not exist")
            return
        options, loaded = self._options, self._load(config)
        reference, rows_of = find_reference(model, loaded, self._measure)
        if isinstance(reference, str):
            self._cells.skip(name, config.name, reference)
            return
        for line in reference.remarks:
            self._cells.remark(name, config.name, line)
        how = options.ingredients(batch=False) | made_by(self._measure, loaded.dataset, rows_of)
        ingredients = reference_ingredients(name, reference.description, (loaded.name, loaded.digest), how)

        def compute(files: CellFiles, advance: Callable[[int], None]) -> int:
            return compute_reference(
                reference, loaded, files, chunk=options.chunk, workers=options.threads, advance=advance
            )

        facts = {**reference.facts, **extent(loaded), **({"fault": reference.fault} if reference.fault else {})}
        self._cells.compute(
            PlannedCell(name, loaded, reference.findings, ingredients, facts, warnings=reference.warnings), compute
        )
        if reference.fault:
            self._cells.outcome.mostly_lost.append((name, config.name, reference.fault))
