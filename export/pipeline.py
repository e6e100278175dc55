"""From a loaded model to a bundle: graphs, prompt sets, parity, all or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..engines.backends.ort import TextEncoder
from ..engines.bundle import Bundle, write_bundle
from ..engines.errors import BundleError, ConfigError
from ..engines.manifest import GraphSpec, Manifest
from ..engines.prompts.prompt_encoding import texts_per_query
from ..engines.prompts.prompt_set import PromptSet
from ..engines.rounding import PRECISIONS
from ..engines.tokenizing import stored_files
from .adapter import Adapter, load_adapter, stand_in_adapter
from .lower import lower, opset_for
from .machine import peak_memory_mib, require_packages, threads_to_use, versions
from .parity.checks import ParityReport
from .parity.low_precision import PrecisionTrial
from .parity.user_images import ParityData, read_parity_data
from .prompts.builtin import PromptSets, builtin_sets, encode_sets, prompt_styles
from .tokenizing.select_tokenizer import select_tokenizer
from .tokenizing.vocabularies import Tokenizer
from .workspace import store, timed, workspace

if TYPE_CHECKING:
    from .cost import Cost

__all__ = ["ExportResult", "export_adapter", "export_bundle"]

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ExportResult:
    """What an export made and what it took: seconds of wall time, the process's greatest memory in MiB."""

    bundle: Bundle
    report: ParityReport
    seconds: Mapping[str, float]
    peak_memory_mib: float
    cost: Cost


def export_bundle(
    model: str,
    out: Path,
    *,
    name: str | None = None,
    checkpoint: Path | None = None,
    variant: str | None = None,
    seed: int = 0,
    tokenizer: Path | None = None,
    prompts: PromptSets | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
    saliency: str | None = None,
    precision: str = "fp32",
    parity_data: Path | None = None,
    **options: Any,
) -> ExportResult:
    """Exports `model` (what the registry of models resolves) into `out`/<name>-<variant>; `name` is by default its own.

    With `checkpoint` its weights are read, without one the model gets stand-in weights of `variant` and `seed`.
    `saliency` is one of the model's maps, by default the official one; `options` (`resolution`,
    `text_encoder`) go to models that take them. Raises CheckpointError, ConfigError, MissingExtraError, and what
    `export_adapter` raises.
    """
    start = time.perf_counter()
    require_packages()
    if checkpoint is None:
        adapter = stand_in_adapter(model, variant, seed, **options)
    else:
        adapter = load_adapter(model, checkpoint, **options)
        if variant is not None and variant != adapter.variant:
            raise ConfigError(
                f"{checkpoint} is the variant '{adapter.variant}' of {model}, not '{variant}'; leave out --variant."
            )
    if name not in (None, model):
        adapter.rename(name)
    if saliency is not None:
        adapter.choose_map(saliency)
    progress(f"{adapter.name}-{adapter.variant}: {adapter.weights} weights read")
    for caution in adapter.cautions():
        progress(f"caution: {caution}")
    elapsed = time.perf_counter() - start
    return export_adapter(
        adapter,
        out,
        tokenizer=tokenizer,
        prompts=prompts,
        force=force,
        progress=progress,
        loading=elapsed,
        precision=precision,
        parity_data=parity_data,
    )


def export_adapter(
    adapter: Adapter,
    out: Path,
    *,
    tokenizer: Path | None = None,
    prompts: PromptSets | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
    loading: float = 0.0,
    precision: str = "fp32",
    parity_data: Path | None = None,
) -> ExportResult:
    """Exports a loaded model; `tokenizer` is a folder with its vocabulary, `prompts` replaces or adds prompt sets.

    With `precision` "fp16" or "bf16" both graphs are of that type (export.lower), the variant's name says so, and the
    parity report says what it does to tensors and to metrics: on the images and boxes in the folder `parity_data`
    (export.parity.user_images), by default on probe pictures.

    The bundle appears whole, after parity was proven, or not at all. Raises ConfigError (tokenizer, prompts,
    precision), DataError (`parity_data`), ExportError, ParityError and BundleError (the target exists, the disk is
    full).
    """
    data = _parity_data(parity_data, precision)
    if precision != "fp32":
        adapter.variant += f"-{precision}"
    target = out / f"{adapter.name}-{adapter.variant}"
    _check_target(target, force)
    words = select_tokenizer(adapter, tokenizer, progress)
    sets = _sets(adapter, prompts)
    if data is not None:
        data.choose({name: [entry.finding for entry in entries] for name, entries in sets.items()})
    seconds = {"load": loading}
    with workspace(target, _bytes(adapter)) as folder:
        graphs = _export_graphs(adapter, folder, progress, seconds, precision)
        with timed(seconds, "prompts"):
            features = _encode(sets, words, folder, graphs, progress)
        with timed(seconds, "parity"):
            report = _prove(adapter, words, folder, features, progress)
        if precision != "fp32":
            with timed(seconds, precision):
                full, folder, before = folder, _lower(folder, graphs, precision, progress), features
                features = _encode(sets, words, folder, graphs, progress, precision)
                trial = PrecisionTrial(adapter, words, full, folder, precision, threads_to_use())
                trial.extend(report, before, features, data, progress)
        files = {spec.file: folder / spec.file for spec in graphs.values()}
        for prompt_set in features:
            prompt_set.save(folder / prompt_set.file)
            files[prompt_set.file] = folder / prompt_set.file
        files.update(store(stored_files(words), folder))
        manifest = _manifest(adapter, words, graphs, features, report, precision)
        bundle = write_bundle(target, manifest, files, replace=force)
    progress(f"{bundle.path}: written and verified")
    with timed(seconds, "cost"):
        cost = _cost(adapter)
    return ExportResult(bundle, report, seconds, peak_memory_mib(), cost)


def _cost(adapter: Adapter) -> Cost:
    from .cost import measure_cost

    return measure_cost(adapter)


def _parity_data(folder: Path | None, precision: str) -> ParityData | None:
    if precision not in PRECISIONS:
        raise ConfigError(f"There is no precision '{precision}'; there are {', '.join(PRECISIONS)}.")
    if folder is not None and precision == "fp32":
        raise ConfigError("Parity data show what lower precision does; they go with --precision fp16 or bf16.")
    return None if folder is None else read_parity_data(folder)


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not force:
        raise BundleError(f"{target} already exists; choose another --out or replace it with --force.")
    if target.exists() and not (target / "bundle.json").is_file():
        raise BundleError(f"{target} exists and is no bundle, so it is not replaced; choose another --out.")


def _sets(adapter: Adapter, prompts: PromptSets | None) -> PromptSets:
    """The built-in sets in the model's words (a demo model has none), with the user's in their place or added."""
    style = adapter.prompt_style or adapter.name
    sets = {} if adapter.weights == "demo" or style not in prompt_styles() else builtin_sets(style)
    sets = {**sets, **(prompts or {})}
    if not sets:
        raise ConfigError(
            f"There are no built-in prompts for the model '{adapter.name}'; give some with --prompts FILE."
        )
    return sets


def _export_graphs(
    adapter: Adapter, folder: Path, progress: Progress, seconds: dict[str, float], precision: str
) -> dict[str, GraphSpec]:
    from .graph import OPSET, export_image, export_text

    graphs = {}
    for name, export in (("image", export_image), ("text", export_text)):
        progress(f"exporting {name}.onnx")
        with timed(seconds, f"{name} graph"):
            graphs[name] = export(adapter, folder, opset_for(precision, OPSET))
    return graphs


def _lower(folder: Path, graphs: Mapping[str, GraphSpec], precision: str, progress: Progress) -> Path:
    """The folder with both graphs in `precision`, inside that of the float32 ones."""
    (folder / precision).mkdir()
    for spec in graphs.values():
        progress(f"writing {spec.file} in {precision}")
        lower(folder / spec.file, folder / precision / spec.file, precision)
    return folder / precision


def _encode(
    sets: PromptSets,
    words: Tokenizer,
    folder: Path,
    graphs: Mapping[str, GraphSpec],
    progress: Progress,
    precision: str = "fp32",
) -> list[PromptSet]:
    spec = graphs["text"]
    count = len({text for entries in sets.values() for entry in entries for text in entry.positive + entry.negative})
    progress(f"encoding {count} prompts of {len(sets)} sets with text.onnx")
    encoder = TextEncoder(folder / spec.file, spec, threads=threads_to_use(), precision=precision)
    per_query = texts_per_query(graphs["image"], spec)
    return encode_sets(sets, words, encoder, [tensor.name for tensor in spec.inputs], per_query)


def _prove(
    adapter: Adapter, words: Tokenizer, folder: Path, features: list[PromptSet], progress: Progress
) -> ParityReport:
    from .parity.compare_graphs import check_parity

    progress("comparing the graphs with the model in batches of different size")
    sets = {prompt_set.name: prompt_set.features for prompt_set in features}
    report = check_parity(adapter, words, folder, sets, threads=threads_to_use())
    report.require()
    progress(f"parity: {len(report.checks)} comparisons, largest error {report.needed:.1e} of full scale")
    return report


def _manifest(
    adapter: Adapter,
    words: Tokenizer,
    graphs: Mapping[str, GraphSpec],
    features: list[PromptSet],
    report: ParityReport,
    precision: str,
) -> Manifest:
    """Nothing of one run (times, paths) goes in: exporting a checkpoint again gives a bundle of equal digest."""
    from .graph import OPSET

    record, encoder = adapter.checkpoint, adapter.text_checkpoint
    text: dict[str, Any] = {"tokenizer": words.record, "context": adapter.context}
    if adapter.texts_per_query > 1:
        text["texts_per_query"] = adapter.texts_per_query
    if encoder is not None:
        text["checkpoint"] = {"name": encoder.name, "sha256": encoder.sha256}
    return Manifest(
        model=adapter.name,
        variant=adapter.variant,
        weights=adapter.weights,
        checkpoint=None if record is None else {"name": record.name, "sha256": record.sha256},
        geometry=adapter.geometry,
        grid=adapter.grid,
        saliency={
            "kind": adapter.saliency.kind,
            "description": adapter.saliency.description,
            "choice": adapter.map_name or "official",
        },
        logit_scale=float(adapter.logit_scale),
        text=text,
        graphs=graphs,
        prompt_sets={prompt_set.name: prompt_set.record() for prompt_set in features},
        opset=opset_for(precision, OPSET),
        exporter=versions(),
        parity=report.to_json(),
        precision=precision,
    )


def _bytes(adapter: Adapter) -> int:
    """Bytes of the weights, which is very nearly the size of both graphs together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in adapter.module.state_dict().values())
