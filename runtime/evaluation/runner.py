"""Computes all cells of a run. A failed cell is recorded and does not stop the others; a full disk stops the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.base import Engine, Scores
from ...engines.bundle import Bundle
from ...engines.errors import RunError, XBenchError
from ...engines.prompts.phrase_features import PhraseFeatures
from ...engines.select import runs_on_gpu
from ..data.images.decoders import CPU, Decoder
from ..host.config import DatasetConfig
from ..host.paths import has_folder
from ..host.protocols import find_protocol
from ..results.cell_key import reference_ingredients
from ..results.loaded_dataset import LoadedDataset
from ..results.run_directory import RunDirectory
from ..results.run_outcome import RunOutcome
from .cell import CellWork
from .cell_inputs import CellInputs
from .cell_options import Options
from .cell_sources import OpenMasks, OpenSource, drawn_each_time
from .computing import compute_anywhere
from .finishing import Finisher, PlannedCell
from .live_model import LiveEngine, LiveModel, one_query_each
from .measure import Measure, Sweep
from .opening import NextEngine, Opened, Turn
from .pairing import AskedSet, is_one_of_several
from .phrase_queries import Ask, PhraseQueries, first_phrases, most_queries, see_one_another
from .planning import Planning, extent, made_by
from .progress import Progress, not_asked_line
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
        self._measure = Measure(find_protocol(options.protocol), parts.sweep)
        self._planning = Planning(options, self._measure, parts.decoder)
        self._phrase_features = parts.phrase_features
        self._cells = Finisher(run, progress, options.protocol)
        self._inputs = CellInputs(options, self._cells.learn)
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
        # On a CPU the next engine would take memory and cores from the one that computes.
        ahead = bundles if runs_on_gpu(self._options.engine, self._options.gpu) else ()
        with NextEngine(ahead, partial(self._opened, datasets), self._say) as following:
            for path in bundles:
                try:
                    self._bundle(path, datasets, following)
                except RunError:
                    raise
                except XBenchError as error:
                    for dataset in datasets:
                        for name, _ in self._inputs.models(path.name, dataset):
                            self._cells.fail(name, dataset.name, error)
        references: list[str | MapFolder | BoxModel] = [*baselines, *files]
        for model in references:
            for dataset in datasets:
                name = model if isinstance(model, str) else model.name
                self._cells.guarded(name, dataset.name, partial(self._reference, model, dataset))
        return self._cells.outcome

    def evaluate_live(self, model: LiveModel, datasets: Sequence[DatasetConfig]) -> RunOutcome:
        """As `evaluate`, for a live model; the outcome covers all cells of this runner so far."""
        for dataset in datasets:
            for name, one in self._inputs.models(model.name, replace(dataset, prompts=None)):
                self._cells.guarded(name, dataset.name, partial(self._live, model, name, one))
        return self._cells.outcome

    def _bundle(self, path: Path, datasets: Sequence[DatasetConfig], following: NextEngine) -> None:
        """Computes the cells of the bundle at `path`, while `following` opens the engine of the next one."""
        with ExitStack() as stack:
            opened = following.take(stack)
            bundle = opened.bundle if opened else Bundle.load(path)
            ready = [pairs for config in datasets if (pairs := self._asked(bundle, config))]
            if not ready:
                return
            try:
                if opened is None:
                    opened = self._opening(bundle, following.turn())
                    stack.push(opened.closing)
                opened.turn.begin()
            except XBenchError as error:
                for asked in (each for pairs in ready for each in pairs):
                    self._cells.fail(asked.model, asked.loaded.name, error)
                return
            following.start_after(path)
            for pairs in ready:
                self._evaluate_sets(bundle, opened.engine, pairs)

    def _opened(self, datasets: Sequence[DatasetConfig], path: Path, turn: Turn) -> Opened | None:
        """The open engine of a bundle; None where no cell needs one. Raises what its turn will raise."""
        bundle = Bundle.load(path)
        return (
            self._opening(bundle, turn) if any(self._inputs.is_asked(bundle, config) for config in datasets) else None
        )

    def _opening(self, bundle: Bundle, turn: Turn) -> Opened:
        closing = self._open_engine(bundle, self._options.engine, threads=self._options.threads, turn=turn)
        return Opened(bundle, closing.__enter__(), closing, turn)

    def _asked(self, bundle: Bundle, config: DatasetConfig) -> list[AskedSet]:
        """What a dataset asks of a bundle; what it cannot ask is recorded as failed or skipped."""
        pairs = list[AskedSet]()
        for model, one in self._inputs.models(bundle.name, config):
            try:
                pair = self._inputs.pair(bundle, model, one)
            except XBenchError as error:
                self._cells.fail(model, config.name, error)
                continue
            if isinstance(pair, str):
                self._cells.skip(model, config.name, pair)
                continue
            pairs.append(pair)
            if pair.loaded.dataset.asks_phrases and isinstance(config.prompts, tuple):
                left_out = f"each image is asked its own phrases, not the prompt sets {', '.join(config.prompts)}"
                self._cells.remark(model, config.name, left_out)
            classes = pair.loaded.dataset.classes
            if left := [finding for finding in classes if finding not in pair.findings]:
                self._cells.remark(model, config.name, not_asked_line(pair.prompts.name, left, len(classes)))
        return pairs

    def _evaluate_sets(self, bundle: Bundle, engine: Engine, pairs: Sequence[AskedSet]) -> None:
        """Evaluates the prompt sets of a dataset; if there are several, in one pass over the images of each view."""
        for _, asked in groupby(pairs, key=attrgetter("view")):
            self._evaluate_view(bundle, engine, list(asked))

    def _evaluate_view(self, bundle: Bundle, engine: Engine, pairs: Sequence[AskedSet]) -> None:
        first = pairs[0]
        if first.loaded.dataset.asks_phrases:
            self._cells.guarded(first.model, first.loaded.name, partial(self._ask_phrases, bundle, engine, first))
            return
        planned = list[tuple[PlannedCell, AskedSet]]()
        for asked in pairs:

            def plan(asked: AskedSet = asked) -> None:
                planned.append((self._planning.of_bundle(bundle, engine, asked), asked))

            self._cells.guarded(asked.model, asked.loaded.name, plan)
        if planned:
            run = partial(self._compute_here, planned, engine)
            self._cells.guarded(planned[0][0].model, first.loaded.name, run)

    def _ask_phrases(self, bundle: Bundle, engine: Engine, asked: AskedSet) -> None:
        features = PhraseFeatures(bundle, self._phrase_features, threads=self._options.threads)
        with closing(features):

            def ask(pixels: NDArray[np.uint8], texts: list[str]) -> Scores:
                return engine.run(pixels, features(texts))

            side, precision = bundle.manifest.geometry.size, engine.info.precision
            phrases = self._phrases(asked.model, asked.loaded, ask, side, precision)
            phrases = replace(phrases, most=most_queries(bundle))
            planned = self._planning.of_bundle(bundle, engine, asked, phrases)
            self._compute_here([(planned, asked)], engine, phrases)

    def _phrases(self, model: str, loaded: LoadedDataset, ask: Ask, side: int, precision: str) -> PhraseQueries:
        """How a model is asked the phrases of a dataset, with a remark where that is not as usual."""
        alone = see_one_another(ask, side, first_phrases(loaded.asked), precision)
        if alone:
            self._cells.remark(model, loaded.name, "its queries see one another, so each phrase is asked alone")
        if left := len(loaded.dataset.cases()) - len(loaded.asked):
            self._cells.remark(model, loaded.name, f"cases without a phrase that has a region: {left}, not evaluated")
        return PhraseQueries(tuple(loaded.dataset.classes), ask, alone)

    def _live(self, model: LiveModel, name: str, config: DatasetConfig) -> None:
        """Evaluates one view of a dataset; name: of the cell's model."""
        if self._options.skip_absent and not has_folder(config.root):
            self._cells.skip(name, config.name, f"its folder {config.root} does not exist")
            return
        loaded = self._inputs.load(config)
        classes, view = loaded.dataset.classes, self._inputs.view(config)
        asks_phrases = loaded.dataset.asks_phrases
        texts = first_phrases(loaded.asked) if asks_phrases else classes
        with LiveEngine(model, texts, secret=asks_phrases) as engine:
            side = model.geometry.size
            phrases = self._phrases(name, loaded, engine.ask_texts, side, "fp32") if asks_phrases else None
            asked = AskedSet(name, loaded, one_query_each(classes), {each: each for each in classes}, view)
            cell = self._planning.of_live(model, engine, asked, phrases)
            self._compute_here([(cell, asked)], engine, phrases)

    def _compute_here(
        self, planned: Sequence[tuple[PlannedCell, AskedSet]], engine: Engine, phrases: PhraseQueries | None = None
    ) -> None:
        loaded, sets = planned[0][0].loaded, {cell.model: asked for cell, asked in planned}
        geometry = self._planning.geometry(engine.bundle.manifest.geometry, loaded)

        def compute(cells: Sequence[PlannedCell], advance: Callable[[int], None]) -> list[int]:
            with ExitStack() as stack:
                source = stack.enter_context(self._open_source(loaded, geometry))
                if (tiles := self._options.tiles) is not None:
                    fine = stack.enter_context(self._open_source(loaded, tiles.geometry(geometry)))
                    source = tiles.source(source, fine, geometry.size)
                draw = stack.enter_context(self._open_masks(loaded))
                work = [
                    CellWork(
                        model=cell.model,
                        dataset=loaded.name,
                        prompts=sets[cell.model].prompts,
                        findings=sets[cell.model].findings,
                        cases=loaded.cases,
                        files=self._cells.files(cell),
                        source=source,
                        batch=self._options.batch,
                        chunk=self._options.chunk,
                        workers=self._options.threads,
                        contents=loaded.contents,
                        sizes=loaded.file_sizes,
                        phrases=phrases,
                        draw=draw,
                        one_of_several=is_one_of_several(cell.model, str(cell.facts.get("variant_of", cell.model))),
                        view=sets[cell.model].view,
                        tiles=tiles,
                    )
                    for cell in cells
                ]
                return compute_anywhere(work, engine, self._measure, advance)

        self._cells.compute([cell for cell, _ in planned], compute)

    def _reference(self, model: str | MapFolder | BoxModel, config: DatasetConfig) -> None:
        name = model if isinstance(model, str) else model.name
        if self._options.skip_absent and not has_folder(config.root):
            self._cells.skip(name, config.name, f"its folder {config.root} does not exist")
            return
        options, loaded = self._options, self._inputs.load(config)
        reference, rows_of = find_reference(model, loaded, self._measure)
        if isinstance(reference, str):
            self._cells.skip(name, config.name, reference)
            return
        for line in reference.remarks:
            self._cells.remark(name, config.name, line)
        how = options.ingredients(batch=False) | made_by(self._measure, loaded.dataset, rows_of)
        ingredients = reference_ingredients(name, reference.description, (loaded.name, loaded.digest), how)

        def compute(cells: Sequence[PlannedCell], advance: Callable[[int], None]) -> list[int]:
            files, how = self._cells.files(cells[0]), {"chunk": options.chunk, "workers": options.threads}
            return [compute_reference(reference, loaded, files, **how, advance=advance)]

        facts = {**reference.facts, **extent(loaded), **({"fault": reference.fault} if reference.fault else {})}
        planned = PlannedCell(name, loaded, reference.findings, ingredients, facts, warnings=reference.warnings)
        self._cells.compute([planned], compute)
        if reference.fault:
            self._cells.outcome.mostly_lost.append((name, config.name, reference.fault))
