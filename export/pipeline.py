"""The export pipeline: from a model to a verified bundle with graphs, prompt sets and parity report, or no bundle."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.bundle import Bundle, check_place, write_bundle
from ..engines.errors import ConfigError
from ..engines.manifest import COMPARED, OFFICIAL_MAP, GraphSpec, Manifest
from ..engines.prompts.prompt_encoding import TextEncoder, encode_sets, name_sets, texts_per_query
from ..engines.prompts.prompt_files import PromptSets
from ..engines.prompts.prompt_set import PromptSet
from ..engines.tokenizing import Tokenizer, stored_files
from .adapter import Adapter, load_adapter, stand_in_adapter
from .bundle_options import BundleOptions, Progress
from .libraries import require_packages, versions
from .lower_precision import ExportedGraphs, choose_images, write_lower
from .machine import peak_memory_mib, threads_to_use, timed, workspace
from .models.published_checkpoints import PUBLISHED
from .parity.checks import ParityReport
from .prompts.books import own_words_caution
from .prompts.builtin import builtin_sets, dataset_findings, known_sets, prompt_styles
from .resolution import resized_variant
from .tokenizing.compared_texts import compare_texts
from .tokenizing.select_tokenizer import select_tokenizer, tokenizer_beside

if TYPE_CHECKING:
    from .cost import Cost

__all__ = ["BundleOptions", "ExportResult", "ModelSource", "export_adapter", "export_bundle"]


@dataclass(frozen=True)
class ModelSource:
    """Which model with which weights.

    `model` is what the registry of models resolves, `name` what the bundle calls it (by default its own name). With
    `checkpoint` its weights are read; without one the model gets stand-in weights of `variant` and `seed`. `saliency`
    is one of the model's maps, by default the official one; `options` (`text_encoder`) go to models that take them,
    those that are None count as not given, and `resolution` is every model's.
    `statement`: where the checkpoint was published, in words.
    """

    model: str
    name: str | None = None
    checkpoint: Path | None = None
    variant: str | None = None
    seed: int = 0
    saliency: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    statement: str | None = None

    def load(self) -> Adapter:
        """The model. Raises CheckpointError, ConfigError and MissingExtraError."""
        if self.checkpoint is None:
            adapter = stand_in_adapter(self.model, self.variant, self.seed, **self.options)
        else:
            adapter = load_adapter(self.model, self.checkpoint, **self.options)
            allowed = (adapter.variant, adapter.variant.removesuffix(resized_variant("", adapter.resolution)))
            if self.variant not in (None, *allowed):
                raise ConfigError(
                    f"{self.checkpoint} is the variant '{adapter.variant}' of {self.model}, not '{self.variant}'; "
                    "leave out --variant."
                )
            self._find_source(adapter)
        if self.name not in (None, self.model):
            adapter.rename(self.name)
        if self.saliency is not None:
            adapter.choose_map(self.saliency)
        return adapter

    def _find_source(self, adapter: Adapter) -> None:
        """Decides whether the weights are published ones: their file is known, or the user states it."""
        if adapter.weights != "published":
            return
        records = [record for record in (adapter.checkpoint, adapter.text_checkpoint) if record is not None]
        published = PUBLISHED[self.model].sha256.values() if self.model in PUBLISHED else ()
        if records and all(record.sha256 in published for record in records):
            names = " and ".join(record.name for record in records)
            adapter.weights_source = f"{names}, by {'its' if len(records) == 1 else 'their'} sha256"
        elif self.statement:
            adapter.weights_source = f"as stated: {self.statement}"
        else:
            adapter.weights = "own"


@dataclass(frozen=True)
class ExportResult:
    """The bundle of an export and its cost: seconds of wall time, the process's peak memory in MiB."""

    bundle: Bundle
    report: ParityReport
    seconds: Mapping[str, float]
    peak_memory_mib: float
    cost: Cost


def export_bundle(source: ModelSource, out: Path, options: BundleOptions | None = None) -> ExportResult:
    """Loads the model of `source` and exports it into `out`/<name>-<variant>.

    Raises what `ModelSource.load` and `export_adapter` raise.
    """
    start, options = time.perf_counter(), options or BundleOptions()
    require_packages()
    adapter = source.load()
    origin = f" ({adapter.weights_source})" if adapter.weights_source else ""
    if adapter.weights == "own":
        origin = "; if the authors published this file, --weights published --source TEXT says where"
    options.progress(f"{adapter.name}-{adapter.variant}: {adapter.weights} weights read{origin}")
    if adapter.resized:
        options.progress(f"pictures of {adapter.resolution} x {adapter.resolution} pixels: {adapter.resized}")
    for caution in (*adapter.cautions(), *adapter.notes):
        options.progress(f"caution: {caution}")
    options = replace(options, tokenizer=options.tokenizer or tokenizer_beside(adapter, source.checkpoint))
    return export_adapter(adapter, out, options, loading=time.perf_counter() - start)


def export_adapter(
    adapter: Adapter, out: Path, options: BundleOptions | None = None, *, loading: float = 0.0
) -> ExportResult:
    """Exports a loaded model into `out`/<name>-<variant>; `loading` is how many seconds it took to load.

    The bundle appears only when it is complete and all parity checks passed. Raises ConfigError (tokenizer, prompts,
    precision), DataError (`parity_data`), ExportError, ParityError and BundleError (the target exists, the disk is
    full).
    """
    from .cost import measure_cost
    from .onnx_graph import not_learnt
    from .parity.compare_graphs import check_parity

    options = options or BundleOptions()
    in_float32 = options.precision == "fp32" and options.parity_data is None and options.int8.calibration is None
    if not in_float32:
        options = choose_images(options, adapter)
        adapter.variant += f"-{options.precision}"
    target, say = out / f"{adapter.name}-{adapter.variant}", options.progress
    check_place(target, options.force)
    words = select_tokenizer(adapter, options.tokenizer, say)
    sets = _sets(adapter, options.prompts, say)
    compared = compare_texts(adapter, words, _all_texts(sets)) if words else None
    if caution := own_words_caution(adapter.prompt_style or adapter.name, sets):
        say(f"caution: {caution}")
    if options.parity_data is not None:
        options.parity_data.choose({name: [entry.finding for entry in entries] for name, entries in sets.items()})
    seconds = {"load": loading}
    with workspace(target, sum(tensor.nbytes for tensor in adapter.module.state_dict().values())) as folder:
        specs = _export_graphs(adapter, folder, options, seconds)
        constants = not_learnt(adapter, folder / specs["image"].file)
        with timed(seconds, "prompts"):
            say(f"encoding {len(_all_texts(sets))} prompts of {len(sets)} sets")
            encode = partial(_encode, adapter, sets, words, specs)
            graphs = ExportedGraphs(adapter, words, folder, specs, encode(folder), constants)
        with timed(seconds, "parity"):
            say("comparing the graphs with the model in batches of different size")
            queries = {prompt_set.name: prompt_set.features for prompt_set in graphs.features}
            report = check_parity(adapter, words, folder, queries, say=say)
            report.require()
            say(f"parity: {len(report.checks)} comparisons, largest error {report.needed:.1e} of full scale")
        if not in_float32:
            with timed(seconds, options.precision):
                graphs = write_lower(graphs, options, report, encode)
        manifest = _manifest(graphs, report, options.precision, compared)
        bundle = write_bundle(target, manifest, _files(graphs), replace=options.force)
    say(f"{bundle.path}: written and verified")
    with timed(seconds, "cost"):
        cost = measure_cost(adapter)
    return ExportResult(bundle, report, seconds, peak_memory_mib(), cost)


def _sets(adapter: Adapter, prompts: PromptSets | None, say: Progress) -> PromptSets:
    """The built-in sets in the model's words (a demo model has none); the user's sets replace or add to them.

    Of a supervised model they hold the findings that it knows, and the set `FINDINGS_SET` holds all of them.
    """
    style = adapter.prompt_style or adapter.name
    sets = {} if adapter.weights == "demo" or style not in prompt_styles() else builtin_sets(style)
    if adapter.findings:
        sets = known_sets(sets, adapter.findings)
        left = set(chain.from_iterable(dataset_findings().values()))
        left -= {entry.finding for entries in sets.values() for entry in entries}
        say(f"{len(adapter.findings)} findings, reads no text; not asked: {', '.join(sorted(left)) or 'none'}")
    sets = {**sets, **(prompts or {})}
    if not sets:
        raise ConfigError(
            f"There are no built-in prompts for the model '{adapter.name}' ({adapter.weights} weights); give some with "
            "--prompts FILE."
        )
    return sets


def _all_texts(sets: PromptSets) -> list[str]:
    """Every distinct prompt of all sets."""
    return list(dict.fromkeys(chain.from_iterable(entry.texts for entries in sets.values() for entry in entries)))


def _export_graphs(
    adapter: Adapter, folder: Path, options: BundleOptions, seconds: dict[str, float]
) -> dict[str, GraphSpec]:
    from .onnx_graph import export_image, export_text, opset_for

    graphs = {}
    for name, export in (("image", export_image), *([] if adapter.findings else [("text", export_text)])):
        options.progress(f"exporting {name}.onnx")
        with timed(seconds, f"{name} graph"):
            graphs[name] = export(adapter, folder, opset_for(options.precision))
    return graphs


def _encode(
    adapter: Adapter,
    sets: PromptSets,
    words: Tokenizer | None,
    graphs: Mapping[str, GraphSpec],
    folder: Path,
    precision: str = "fp32",
) -> list[PromptSet]:
    """The sets with the features of text.onnx in `folder`, or of a supervised model."""
    if words is None:
        return name_sets(adapter.findings, sets)
    spec = graphs["text"]
    encoder = TextEncoder(folder / spec.file, spec, threads=threads_to_use(), precision=precision)
    per_query = texts_per_query(graphs["image"], spec)
    return encode_sets(sets, words, encoder, per_query, averaged=adapter.averages_prompts)


def _files(graphs: ExportedGraphs) -> dict[str, Path]:
    """The bundle's files by name; those that are not in the folder of the graphs yet are written there."""
    files = {spec.file: graphs.folder / spec.file for spec in graphs.specs.values()}
    for prompt_set in graphs.features:
        files[prompt_set.file] = graphs.folder / prompt_set.file
        prompt_set.save(files[prompt_set.file])
    for name, content in (stored_files(graphs.words) if graphs.words else {}).items():
        files[name] = graphs.folder / name
        files[name].parent.mkdir(parents=True, exist_ok=True)
        files[name].write_bytes(content)
    return files


def _manifest(
    graphs: ExportedGraphs, report: ParityReport, precision: str, compared: Mapping[str, Any] | None
) -> Manifest:
    """The manifest, without times and paths of this run: a second export of a checkpoint gives the same digest, but for
    the speed of int8."""
    from .onnx_graph import opset_for

    adapter, words = graphs.adapter, graphs.words
    record, encoder = adapter.checkpoint, adapter.text_checkpoint
    text: dict[str, Any] = {"tokenizer": words.record, "context": adapter.context} if words else {}
    if adapter.texts_per_query > 1:
        text["texts_per_query"] = adapter.texts_per_query
    if adapter.averages_prompts:
        text["averages_prompts"] = True
    if encoder is not None:
        text["checkpoint"] = encoder.stored()
    if words is not None:
        text[COMPARED] = compared
    return Manifest(
        model=adapter.name,
        variant=adapter.variant,
        weights=adapter.weights,
        checkpoint=None if record is None else record.stored(),
        geometry=adapter.geometry,
        grid=adapter.grid,
        saliency={
            "kind": adapter.saliency.kind,
            "description": adapter.saliency.description,
            "choice": adapter.map_name or OFFICIAL_MAP,
            "smoothing": float(adapter.saliency.smoothing),
        },
        logit_scale=float(adapter.logit_scale),
        text=text,
        graphs=graphs.specs,
        prompt_sets={prompt_set.name: prompt_set.record() for prompt_set in graphs.features},
        opset=opset_for(precision),
        exporter=versions(),
        parity=report.to_json(),
        precision=precision,
        weights_source=adapter.weights_source,
        findings=adapter.findings,
        resized=adapter.resized,
        quantisation=graphs.quantisation,
        not_learnt=graphs.not_learnt,
    )
