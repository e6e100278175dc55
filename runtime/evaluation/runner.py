"""All cells of a run. A cell that fails is noted and does not stop the others; a full disk stops the run."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...engines.base import Engine
from ...engines.bundle import Bundle
from ...engines.errors import DataError, RunError, XBenchError
from ...engines.prompts import PromptSet
from ..config import DatasetConfig
from ..machine import code_version
from .cell import Cell, compute_cell
from .content import cell_ingredients, changed_ingredients, digest_of
from .pairing import LoadedDataset, load_dataset, prompt_set_name, shared_findings
from .progress import Progress
from .rundir import RunDirectory
from .scoring import Sweep
from .sources import OpenSource

__all__ = ["OpenEngine", "Options", "Outcome", "Runner"]

OpenEngine = Callable[..., AbstractContextManager[Engine]]


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
    ) -> None:
        self._run = run
        self._options = options
        self._progress = progress
        self._open_engine = open_engine
        self._open_source = open_source
        self._sweep = sweep
        self._loaded: dict[str, LoadedDataset | XBenchError] = {}
        self.outcome = Outcome()

    def evaluate(self, bundles: Sequence[Path], datasets: Sequence[DatasetConfig]) -> Outcome:
        """Computes every cell that is not finished. Raises RunError when results can no longer be written."""
        for path in bundles:
            try:
                self._bundle(Bundle.load(path), datasets)
            except RunError:
                raise
            except XBenchError as error:
                for dataset in datasets:
                    self._fail(path.name, dataset.name, str(error))
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
                self._guarded(bundle, engine, loaded, prompts, findings)

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

    def _guarded(
        self, bundle: Bundle, engine: Engine, loaded: LoadedDataset, prompts: PromptSet, findings: dict[str, str]
    ) -> None:
        try:
            self._cell(bundle, engine, loaded, prompts, findings)
        except RunError:
            raise
        except XBenchError as error:
            self._fail(bundle.name, loaded.name, str(error))
        # A reader or engine of a third party may raise anything; the other cells still have to run.
        except Exception as error:
            note = self._run.path / "errors" / f"{bundle.name}--{loaded.name}.txt"
            with suppress(OSError):
                note.parent.mkdir(exist_ok=True)
                note.write_text(traceback.format_exc(), encoding="utf-8")
            self._fail(bundle.name, loaded.name, f"unexpected {type(error).__name__}: {error} (details in {note})")

    def _cell(
        self, bundle: Bundle, engine: Engine, loaded: LoadedDataset, prompts: PromptSet, findings: dict[str, str]
    ) -> None:
        options = self._options
        if not any(case.image.is_file() for case in loaded.cases):
            raise DataError(
                f"None of the {len(loaded.cases)} images of dataset '{loaded.name}' exists (the first would be "
                f"{loaded.cases[0].image}); correct its root or its options."
            )
        ingredients = cell_ingredients(
            bundle,
            prompts,
            findings,
            (loaded.name, loaded.digest),
            engine.info,
            {
                "batch": options.batch,
                "chunk": options.chunk,
                "limit": options.limit,
                "sweep": "thresholds 0.00..1.00, bilinear, min-max, squashed 224 grid",
            },
        )
        key = digest_of(ingredients)
        files = self._run.files(bundle.name, loaded.name, key)
        title = f"{bundle.name} on {loaded.name}"
        before = self._run.cell(bundle.name, loaded.name)
        entry: dict[str, Any] = {
            "key": key,
            "code_version": code_version(),
            "file": files.final.relative_to(self._run.path).as_posix(),
            "ingredients": ingredients,
            "weights": bundle.manifest.weights,
            "model_family": bundle.manifest.model,
            "logit_scale": bundle.manifest.logit_scale,
            "title": loaded.dataset.title,
            "classes": list(loaded.dataset.classes),
            "findings": list(findings),
            "cases": len(loaded.cases),
            "engine": asdict(engine.info),
        }
        if files.finished():
            self.outcome.reused += 1
            self._progress.say(f"{title}: finished before, reused")
            if before is None or before.get("key") != key or before.get("state") != "done":
                self._run.set_cell(bundle.name, loaded.name, "done", **entry, **files.coverage(len(findings)))
            return
        if before is not None and before.get("state") == "done":
            changed = ", ".join(changed_ingredients(before.get("ingredients", {}), ingredients)) or "the result file"
            self._progress.say(f"{title}: computed again, because this changed: {changed}")
        self._run.set_cell(bundle.name, loaded.name, "running", **entry)
        start = time.monotonic()
        try:
            with (
                self._open_source(loaded, bundle.manifest.geometry) as source,
                self._progress.cell(title, len(loaded.cases)) as advance,
            ):
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
                computed = compute_cell(cell, engine, self._sweep, advance)
        except (KeyboardInterrupt, RunError):
            with suppress(RunError):
                self._run.set_cell(bundle.name, loaded.name, "interrupted", **entry)
            raise
        seconds = time.monotonic() - start
        coverage = files.coverage(len(findings))
        self.outcome.computed += 1
        timing = {"seconds": round(seconds, 3), "computed": computed}
        self._run.set_cell(bundle.name, loaded.name, "done", **entry, **coverage, **timing)
        self._progress.say(f"{title}: {_told(len(loaded.cases), computed, coverage, seconds)}")

    def _fail(self, model: str, dataset: str, reason: str) -> None:
        self.outcome.failed.append((model, dataset, reason))
        self._progress.say(f"{model} on {dataset}: failed: {reason}")
        self._run.set_cell(model, dataset, "failed", reason=reason)

    def _skip(self, model: str, dataset: str, reason: str) -> None:
        self.outcome.skipped.append((model, dataset, reason))
        self._progress.say(f"{model} on {dataset}: skipped, {reason}")
        self._run.set_cell(model, dataset, "skipped", reason=reason)


def _told(cases: int, computed: int, coverage: dict[str, int], seconds: float) -> str:
    text = f"{cases} cases"
    if computed < cases:
        text += f" ({cases - computed} taken over from before)"
    if computed:
        text += f", {computed / max(seconds, 1e-9):.1f} cases/s"
    if coverage["missing"] or coverage["unreadable"]:
        text += f"; {coverage['missing']} images missing, {coverage['unreadable']} unreadable"
    return text
