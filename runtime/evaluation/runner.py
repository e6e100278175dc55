"""All cells of a run. A cell that fails is noted and does not stop the others; a full disk stops the run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...engines.base import Engine
from ...engines.bundle import Bundle
from ...engines.errors import DataError, RunError, XBenchError
from ...engines.prompts import PromptSet
from ..config import DatasetConfig
from ..images.decoders import CPU, Decoder
from ..machine import code_version
from .baseline_cell import compute_baseline
from .baselines import describe_baseline
from .cell import Cell, compute_cell
from .content import baseline_ingredients, cell_ingredients, changed_ingredients, digest_of
from .pairing import LoadedDataset, load_dataset, prompt_set_name, shared_findings
from .progress import Progress, cell_summary
from .rundir import RunDirectory, cell_stem
from .scoring import Sweep
from .sources import OpenSource
from .storage import CellFiles

__all__ = ["OpenEngine", "Options", "Outcome", "Runner"]

OpenEngine = Callable[..., AbstractContextManager[Engine]]
SWEEP = "thresholds 0.00..1.00, bilinear, min-max, squashed 224 grid"


@dataclass(frozen=True)
class Options:
    """How cells are computed.

    `chunk`: cases in a part file, what a killed run may have to repeat at most. `skip_absent`: a dataset whose folder
    does not exist is skipped with a line instead of failing.
    """

    engine: str = "auto"
    batch: int = 16
    threads: int = 1
    limit: int | None = None
    chunk: int = 256
    skip_absent: bool = False


@dataclass
class Outcome:
    """What became of the cells, as (model, dataset, sentence) where something is to be said."""

    computed: int = 0
    reused: int = 0
    skipped: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)


class Runner:
    """Runs bundles x datasets into `run`. The engine, the source of pixels and the sweep are handed in."""

    def __init__(
        self,
        run: RunDirectory,
        options: Options,
        progress: Progress,
        *,
        open_engine: OpenEngine,
        open_source: OpenSource,
        sweep: Sweep,
        decoder: Decoder = CPU,
    ) -> None:
        self._run = run
        self._options = options
        self._progress = progress
        self._open_engine = open_engine
        self._open_source = open_source
        self._sweep = sweep
        self._decoder = decoder
        self._loaded: dict[str, LoadedDataset | XBenchError] = {}
        self.outcome = Outcome()

    def evaluate(
        self, bundles: Sequence[Path], datasets: Sequence[DatasetConfig], baselines: Sequence[str] = ()
    ) -> Outcome:
        """Computes every cell that is not finished; `baselines` are names such as "baseline:ones".

        Raises RunError when results can no longer be written.
        """
        for path in bundles:
            try:
                self._bundle(Bundle.load(path), datasets)
            except RunError:
                raise
            except XBenchError as error:
                for dataset in datasets:
                    self._fail(path.name, dataset.name, str(error))
        for name in baselines:
            for dataset in datasets:
                self._guarded(name, dataset.name, partial(self._baseline, name, dataset))
        return self.outcome

    def _bundle(self, bundle: Bundle, datasets: Sequence[DatasetConfig]) -> None:
        ready: list[tuple[LoadedDataset, PromptSet, dict[str, str]]] = []
        for config in datasets:
            try:
                pair = self._pair(bundle, config)
            except XBenchError as error:
                self._fail(bundle.name, config.name, str(error))
                continue
            if isinstance(pair, str):
                self._skip(bundle.name, config.name, pair)
            else:
                ready.append(pair)
        if not ready:
            return
        with ExitStack() as stack:
            try:
                engine = stack.enter_context(
                    self._open_engine(bundle, self._options.engine, threads=self._options.threads)
                )
            except XBenchError as error:
                for loaded, _, _ in ready:
                    self._fail(bundle.name, loaded.name, str(error))
                return
            for loaded, prompts, findings in ready:
                run = partial(self._cell, bundle, engine, loaded, prompts, findings)
                self._guarded(bundle.name, loaded.name, run)

    def _pair(self, bundle: Bundle, config: DatasetConfig) -> tuple[LoadedDataset, PromptSet, dict[str, str]] | str:
        """What a cell needs, or the sentence that says why it is skipped."""
        if self._options.skip_absent and not config.root.is_dir():
            return f"its folder {config.root} does not exist"
        loaded = self._load(config)
        name = prompt_set_name(bundle, config, loaded.dataset)
        if name is None:
            return "the bundle has no prompt set for it"
        prompts = bundle.prompt_set(name)
        findings = shared_findings(prompts.findings, loaded.dataset.classes)
        if not findings:
            return f"its prompt set '{name}' has none of the dataset's classes"
        return loaded, prompts, findings

    def _load(self, config: DatasetConfig) -> LoadedDataset:
        found = self._loaded.get(config.name)
        if found is None:
            try:
                found = load_dataset(config, self._options.limit)
            except XBenchError as error:
                found = error
            self._loaded[config.name] = found
        if isinstance(found, XBenchError):
            raise found
        return found

    def _guarded(self, model: str, dataset: str, run: Callable[[], None]) -> None:
        """Runs one cell; whatever goes wrong in it is noted, and the other cells still run."""
        try:
            run()
        except RunError:
            raise
        except XBenchError as error:
            self._fail(model, dataset, str(error))
        # A reader or engine of a third party may raise anything.
        except Exception as error:
            note = self._run.path / "errors" / f"{cell_stem(model, dataset)}.txt"
            with suppress(OSError):
                note.parent.mkdir(exist_ok=True)
                note.write_text(traceback.format_exc(), encoding="utf-8")
            self._fail(model, dataset, f"unexpected {type(error).__name__}: {error} (details in {note})")

    def _cell(
        self, bundle: Bundle, engine: Engine, loaded: LoadedDataset, prompts: PromptSet, findings: dict[str, str]
    ) -> None:
        options = self._options
        if not any(case.image.is_file() for case in loaded.cases):
            raise DataError(
                f"None of the {len(loaded.cases)} images of dataset '{loaded.name}' exists (the first would be "
                f"{loaded.cases[0].image}); correct its root or its options."
            )
        how: dict[str, Any] = {"batch": options.batch, "chunk": options.chunk, "limit": options.limit, "sweep": SWEEP}
        how["decoder"] = self._decoder.describe(bundle.manifest.geometry)
        ingredients = cell_ingredients(bundle, prompts, findings, (loaded.name, loaded.digest), engine.info, how)

        def compute(files: CellFiles, advance: Callable[[int], None]) -> int:
            with self._open_source(loaded, bundle.manifest.geometry) as source:
                cell = Cell(
                    model=bundle.name,
                    dataset=loaded.name,
                    prompts=prompts,
                    findings=findings,
                    cases=loaded.cases,
                    files=files,
                    source=source,
                    batch=options.batch,
                    chunk=options.chunk,
                    workers=options.threads,
                )
                return compute_cell(cell, engine, self._sweep, advance)

        facts = {
            "weights": bundle.manifest.weights,
            "model_family": bundle.manifest.model,
            "logit_scale": bundle.manifest.logit_scale,
            "engine": asdict(engine.info),
        }
        self._finish(bundle.name, loaded, list(findings), ingredients, facts, compute)

    def _baseline(self, name: str, config: DatasetConfig) -> None:
        if self._options.skip_absent and not config.root.is_dir():
            self._skip(name, config.name, f"its folder {config.root} does not exist")
            return
        options, loaded = self._options, self._load(config)
        findings = list(loaded.dataset.classes)
        how = {"chunk": options.chunk, "limit": options.limit, "sweep": SWEEP}
        ingredients = baseline_ingredients(name, describe_baseline(name), (loaded.name, loaded.digest), how)

        def compute(files: CellFiles, advance: Callable[[int], None]) -> int:
            return compute_baseline(
                name,
                loaded,
                findings,
                files,
                self._sweep,
                chunk=options.chunk,
                workers=options.threads,
                advance=advance,
            )

        # `ones` has no maximum of its own: its pointing is the expected hit, see baselines.
        facts = {"weights": "baseline", "ties": "expected" if name.endswith(":ones") else "first"}
        self._finish(name, loaded, findings, ingredients, facts, compute)

    def _finish(
        self,
        model: str,
        loaded: LoadedDataset,
        findings: Sequence[str],
        ingredients: dict[str, Any],
        facts: dict[str, Any],
        compute: Callable[[CellFiles, Callable[[int], None]], int],
    ) -> None:
        """Takes a cell over when it is on disk, else lets `compute` leave it there, and keeps run.json up to date."""
        key = digest_of(ingredients)
        files = self._run.files(model, loaded.name, key)
        title = f"{model} on {loaded.name}"
        before = self._run.cell(model, loaded.name)
        entry: dict[str, Any] = {
            "key": key,
            "code_version": code_version(),
            "file": files.final.relative_to(self._run.path).as_posix(),
            "ingredients": ingredients,
            **facts,
            "title": loaded.dataset.title,
            "classes": list(loaded.dataset.classes),
            "findings": list(findings),
            "cases": len(loaded.cases),
        }
        if files.finished():
            self.outcome.reused += 1
            self._progress.say(f"{title}: finished before, reused")
            if before is None or before.get("key") != key or before.get("state") != "done":
                self._run.set_cell(model, loaded.name, "done", **entry, **files.coverage(len(findings)))
            return
        if before is not None and before.get("state") == "done":
            changed = ", ".join(changed_ingredients(before.get("ingredients", {}), ingredients)) or "the result file"
            self._progress.say(f"{title}: computed again, because this changed: {changed}")
        self._run.set_cell(model, loaded.name, "running", **entry)
        start = time.monotonic()
        try:
            with self._progress.cell(title, len(loaded.cases)) as advance:
                computed = compute(files, advance)
        except (KeyboardInterrupt, RunError):
            with suppress(RunError):
                self._run.set_cell(model, loaded.name, "interrupted", **entry)
            raise
        seconds = time.monotonic() - start
        coverage = files.coverage(len(findings))
        self.outcome.computed += 1
        timing = {"seconds": round(seconds, 3), "computed": computed}
        self._run.set_cell(model, loaded.name, "done", **entry, **coverage, **timing)
        self._progress.say(f"{title}: {cell_summary(len(loaded.cases), computed, coverage, seconds)}")

    def _fail(self, model: str, dataset: str, reason: str) -> None:
        self.outcome.failed.append((model, dataset, reason))
        self._progress.say(f"{model} on {dataset}: failed: {reason}")
        self._run.set_cell(model, dataset, "failed", reason=reason)

    def _skip(self, model: str, dataset: str, reason: str) -> None:
        self.outcome.skipped.append((model, dataset, reason))
        self._progress.say(f"{model} on {dataset}: skipped, {reason}")
        self._run.set_cell(model, dataset, "skipped", reason=reason)
