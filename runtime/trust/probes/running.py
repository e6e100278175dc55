"""Runs probes: which images they ask about, what that costs, what is on disk already, and their verdicts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....engines.base import CPU_BATCH, EngineOptions
from ....engines.bundle import Bundle
from ....engines.errors import ConfigError, DataError, RunError, XBenchError
from ....engines.registry import did_you_mean
from ....engines.select import open_engine
from ...evaluation.cell_sources import masks_opener, source_opener
from ...evaluation.decoded_blocks import CaseReader
from ...evaluation.pairing import asked_prompts
from ...evaluation.progress import not_asked_line
from ...host.code_numbers import code_number
from ...host.machine_record import usable_cores
from ...results.cell_key import cell_ingredients, changed_ingredients, digest_of, reader_code, same_rows
from ...results.loaded_dataset import LoadedDataset, load_dataset
from ...results.storage import read_columns
from .judging import judged
from .probe import ProbeOptions
from .probe_images import choose_cases, pairs_of
from .probe_rows import AnyProbe, ProbeCell, compute_probe, drop_other_images, engine_for, passes_of

if TYPE_CHECKING:
    from ....engines.base import Engine
    from ....engines.prompts.prompt_set import PromptSet
    from ...data.images.decoders import Decoder
    from ...evaluation.progress import Progress
    from ...host.config import Config, DatasetConfig
    from ...results.storage import CellFiles
    from .directory import TrustDirectory
    from .probe import Judgement


@dataclass(frozen=True)
class TrustRequest:
    """The request for a trust run.

    models: names or paths of bundles. datasets: names of configured ones, none: all. probes: names, none: all.
    findings: only these, none: all. pairs: images are drawn until they have that many. limit, chunk, verify, decoder:
    the options of an evaluation.
    """

    models: Sequence[str]
    datasets: Sequence[str] = ()
    probes: Sequence[str] = ()
    findings: Sequence[str] = ()
    pairs: int = 100
    limit: int | None = None
    chunk: int = 8
    verify: bool = False
    decoder: str = "auto"
    options: ProbeOptions = field(default_factory=ProbeOptions)


@dataclass
class TrustOutcome:
    """entries: of finished cells, as in trust.json. failed: model, dataset or probe, why; misused: by ConfigErrors."""

    entries: list[Mapping[str, Any]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    misused: int = 0


@dataclass(frozen=True, eq=False)
class _Pair:
    """A bundle and a dataset with what is asked: class -> finding; reader: of the images that are asked about."""

    bundle: Bundle
    loaded: LoadedDataset
    prompts: PromptSet
    findings: dict[str, str]
    reader: CaseReader

    @property
    def names(self) -> tuple[str, str]:
        return self.bundle.name, self.loaded.name


class ProbeRunner:
    """Runs the probes of bundles on datasets into a trust directory; `outcome` lists them."""

    def __init__(
        self, folder: TrustDirectory, config: Config, request: TrustRequest, progress: Progress, decoder: Decoder
    ) -> None:
        self._folder = folder
        self._config = config
        self._request = request
        self._progress = progress
        self._decoder = decoder
        self._threads = config.eval.threads or usable_cores()
        self._batch = config.eval.batch or CPU_BATCH
        self._at_once = request.pairs, self._batch
        self.outcome = TrustOutcome()

    def bundle(self, path: Path, datasets: Sequence[DatasetConfig], probes: Sequence[AnyProbe], engine: str) -> None:
        """Runs all probes of one bundle; `engine` is what runs it, but for probes that change the model, which run on
        ONNX Runtime. Raises RunError when results can no longer be written."""
        with ExitStack() as stack:
            engines: dict[tuple[str, bool], Engine] = {}
            for config in datasets:
                names = path.name, config.name
                with self._guarded(*names), ExitStack() as of_dataset:
                    bundle = Bundle.load(path)
                    pair = of_dataset.enter_context(self._pair(bundle, config))
                    judgements: list[tuple[dict[str, Any], Judgement]] = []
                    for probe in probes:
                        with self._guarded(*names, probe.name):
                            how = engine_for(probe, engine, bundle.manifest.grid, *self._at_once, self._threads)
                            if how not in engines:
                                engines[how] = stack.enter_context(self._open(bundle, *how))
                            judgements.append(self._probe(pair, probe, engines[how]))
                    self._judge(judgements)

    @contextmanager
    def _guarded(self, model: str, dataset: str, probe: str = "") -> Iterator[None]:
        """Records an error of one probe, or of all on one dataset; the others still run."""
        try:
            yield
        except RunError:
            raise
        except XBenchError as error:
            reason = str(error)
            self.outcome.misused += isinstance(error, ConfigError)
        # A reader or engine of a third party can raise any exception.
        except Exception as error:
            note = self._folder.keep_traceback(model, dataset)
            reason = f"unexpected {type(error).__name__}: {error} (details in {note})"
        else:
            return
        self.outcome.failed.append((model, f"{dataset}, {probe}" if probe else dataset, reason))
        if probe:
            self._folder.give_up(model, dataset, probe, reason)

    @contextmanager
    def _pair(self, bundle: Bundle, config: DatasetConfig) -> Iterator[_Pair]:
        """What is asked, with the sources of pixels and regions open. Raises XBenchError."""
        request, say = self._request, self._progress.say
        loaded = load_dataset(config, request.limit, verify=request.verify)
        if loaded.dataset.asks_phrases:
            raise ConfigError(
                f"The dataset '{config.name}' asks each image its own phrases; trust takes datasets with findings."
            )
        asked = asked_prompts(bundle, config, loaded.dataset)
        if isinstance(asked, str):
            raise ConfigError(f"{bundle.name} cannot be asked about {config.name}: {asked}.")
        prompts, findings = asked
        classes = loaded.dataset.classes
        if left := [each for each in classes if each not in findings]:
            say(f"{bundle.name} on {config.name}: {not_asked_line(prompts.name, left, len(classes))}")
        for name in request.findings:
            if name not in findings:
                raise ConfigError(
                    f"{bundle.name} is not asked for '{name}' on {config.name}: {did_you_mean(name, findings)}."
                )
        findings = {name: each for name, each in findings.items() if name in request.findings or not request.findings}
        geometry = bundle.manifest.geometry
        cache, limit = self._config.cache, self._config.cache_limit
        source = source_opener(cache, say, limit=limit, decoder=self._decoder, threads=self._threads)
        masks = masks_opener(cache, say, limit)
        with source(loaded, geometry) as pixels, masks(loaded) as draw:
            reader = CaseReader(pixels, geometry, tuple(findings), loaded.contents, draw)
            yield _Pair(bundle, loaded, prompts, findings, reader)

    def _open(self, bundle: Bundle, engine: str, throughput: bool) -> Engine:
        settings = self._config.eval
        how = EngineOptions(
            max_batch=self._batch, build=settings.build, pad=True, tf32=settings.tf32, throughput=throughput,
            device=settings.gpu or 0, say=self._progress.say,
        )  # fmt: skip
        return open_engine(bundle, engine, threads=self._threads, options=how, auto=settings.engine == "auto")

    def _probe(self, pair: _Pair, probe: AnyProbe, engine: Engine) -> tuple[dict[str, Any], Judgement]:
        """Computes the rows of a probe unless they are on disk; returns its entry and what it says of them."""
        request, folder = self._request, self._folder
        cases = choose_cases(pair.loaded.all_cases, pair.findings, request.pairs, request.options.seed)
        if not cases:
            raise DataError(
                f"No case of {pair.loaded.name} has a region of {', '.join(pair.findings)}; raise --limit or check "
                "the dataset."
            )

        @contextmanager
        def asked(bundle: Bundle) -> Iterator[Engine]:
            if bundle is pair.bundle:
                yield engine
                return
            with open_engine(bundle, engine.info.backend, threads=self._threads, options=engine.options) as other:
                yield other

        cell = ProbeCell(
            probe, pair.bundle, pair.prompts, pair.findings, cases, pair.reader,
            asked, self._batch, request.chunk, self._threads,
        )  # fmt: skip
        ingredients = self._ingredients(pair, probe, engine)
        written = folder.entry(*pair.names, probe.name).get("ingredients", {})
        if same_rows(written, ingredients):  # an earlier version made it: its file keeps its key
            ingredients = written
        files = folder.files(*pair.names, probe.name, digest_of(ingredients))
        entry = self._entry(pair, cell, engine, files, ingredients)
        timing = self._compute(pair, cell, files, entry)
        table = read_columns(files.final)
        status = [str(each) for each in table["status"].to_pylist()]
        entry |= timing | {"skipped": {why: status.count(why) for why in sorted({*status} - {"ok"})}}
        import pyarrow.compute as pc

        return entry, probe.judge(table.filter(pc.equal(table["status"], "ok")), pair.bundle)

    def _compute(self, pair: _Pair, cell: ProbeCell, files: CellFiles, entry: dict[str, Any]) -> dict[str, Any]:
        """Computes the cell unless it is on disk. Returns what was measured: passes, seconds and rate."""
        title = f"{pair.bundle.name} on {pair.loaded.name}, {cell.probe.name}"
        before = self._folder.entry(*pair.names, cell.probe.name)
        other = drop_other_images(cell, files)
        if files.finished():
            self._progress.say(f"{title}: finished before, reused")
            return {name: before[name] for name in ("made", "seconds", "passes_per_s") if name in before}
        if before.get("state") == "done":
            names = changed_ingredients(before["ingredients"], entry["ingredients"])
            names += [f"the image of {other}"] if other is not None and not names else []
            why = f"this changed: {', '.join(names)}" if names else f"its file {files.fault()}"
            self._progress.say(f"{title}: computed again, because {why}")
        self._progress.say(
            f"{title}: {entry['pairs']} pairs of {entry['images']} images, at most {entry['passes']} forward passes, "
            f"{entry['evaluations']:.3g} times as many as eval on {entry['dataset_cases']} images"
        )
        self._folder.record({**entry, "state": "running"})
        start = time.monotonic()
        try:
            with self._progress.cell(title, entry["passes"], "passes") as advance:
                made = compute_probe(cell, files, advance)
        except KeyboardInterrupt:
            self._folder.record({**entry, "state": "interrupted"})
            raise
        rate = made / max(seconds := time.monotonic() - start, 1e-9)
        self._progress.say(f"{title}: {made} passes in {seconds:.1f} s, {rate:.1f} passes/s")
        return {"made": made, "seconds": round(seconds, 3), "passes_per_s": round(rate, 2)}

    def _ingredients(self, pair: _Pair, probe: AnyProbe, engine: Engine) -> dict[str, Any]:
        """Everything that the rows depend on."""
        request, data = self._request, pair.loaded
        how = {
            "probe": [probe.name, dict(probe.settings)],
            "pairs": request.pairs,
            "seed": request.options.seed,
            "limit": request.limit,
            "chunk": request.chunk,
            "batch": self._batch,
            "code": code_number(f"trust {probe.name}"),
            "reader": reader_code(data.dataset),
            "decoder": self._decoder.describe(pair.bundle.manifest.geometry),
        }
        return cell_ingredients(pair.bundle, pair.prompts, pair.findings, (data.name, data.digest), engine.info, how)

    def _entry(
        self, pair: _Pair, cell: ProbeCell, engine: Engine, files: CellFiles, ingredients: Mapping[str, Any]
    ) -> dict[str, Any]:
        manifest, passes = pair.bundle.manifest, sum(passes_of(cell))
        return {
            "model": pair.bundle.name,
            "dataset": pair.loaded.name,
            "title": pair.loaded.dataset.title,
            "probe": cell.probe.name,
            "key": files.key,
            "file": files.final.relative_to(self._folder.path).as_posix(),
            "ingredients": dict(ingredients),
            "bundle": pair.bundle.digest,
            "weights": manifest.weights,
            "supervised": bool(manifest.findings),
            **({"uncompared_texts": True} if manifest.uncompared_texts else {}),
            **({"resized": manifest.resized} if manifest.resized else {}),
            "saliency": dict(manifest.saliency),
            "engine": f"{engine.info.backend} {engine.info.precision}",
            "grid": list(manifest.grid),
            "prompt_set": pair.prompts.name,
            "findings": list(pair.findings),
            "limit": self._request.limit,
            "content": pair.loaded.whole_digest,
            "images": len(cell.cases),
            "pairs": sum(pairs_of(case, pair.findings) for case in cell.cases),
            "dataset_cases": len(pair.loaded.asked),
            "passes": passes,
            "evaluations": round(passes / len(pair.loaded.asked), 4),
        }

    def _judge(self, judgements: Sequence[tuple[dict[str, Any], Judgement]]) -> None:
        """Records the verdicts on one model and dataset, which are one family."""
        records = judged([question for _, judgement in judgements for question in judgement.questions])
        for entry, judgement in judgements:
            verdicts, records = records[: (count := len(judgement.questions))], records[count:]
            entry |= {"questions": verdicts, "notes": list(judgement.notes), "facts": dict(judgement.facts)}
            self._folder.record({**entry, "state": "done"})
            self.outcome.entries.append(entry)
