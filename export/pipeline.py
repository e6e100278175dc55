"""From a loaded model to a bundle: graphs, prompt sets, parity, all or nothing."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.bundle import Bundle, write_bundle
from ..engines.errors import BundleError, ConfigError, ExportError
from ..engines.manifest import GraphSpec, Manifest
from ..engines.ort import TextEncoder
from ..engines.prompt_encoding import texts_per_query
from ..engines.prompt_files import SEPARATOR
from ..engines.prompts import PromptSet
from ..engines.tokenizing import stored_files
from .adapter import Adapter, load_adapter, stand_in_adapter
from .half import to_half
from .machine import disk_reason, peak_memory_mib, require_packages, threads_to_use, versions
from .parity import IMAGE_TOLERANCE, ParityReport
from .prompts import FindingPrompts, PromptSets, builtin_sets, encode_sets, prompt_styles
from .select_tokenizer import select_tokenizer
from .tokenizers import Tokenizer

__all__ = ["ExportResult", "export_adapter", "export_bundle"]

Progress = Callable[[str], None]
_ROOM = 2.2  # the graphs are written once beside the target and once copied into the bundle


@dataclass(frozen=True)
class ExportResult:
    """What an export made and what it took: seconds of wall time, the process's greatest memory in MiB."""

    bundle: Bundle
    report: ParityReport
    seconds: Mapping[str, float]
    peak_memory_mib: float


def export_bundle(
    name: str,
    out: Path,
    *,
    checkpoint: Path | None = None,
    variant: str | None = None,
    seed: int = 0,
    tokenizer: Path | None = None,
    prompts: PromptSets | None = None,
    force: bool = False,
    progress: Progress = lambda line: None,
    saliency: str | None = None,
    precision: str = "fp32",
    **options: Any,
) -> ExportResult:
    """Exports the model `name` into `out`/<model>-<variant>.

    With `checkpoint` its weights are read, without one the model gets stand-in weights of `variant` and `seed`.
    `saliency` is one of the model's maps, by default the official one; `options` (`resolution`, `text_encoder`,
    `config`) go to models that take them. Raises CheckpointError, ConfigError, MissingExtraError, and what
    `export_adapter` raises.
    """
    start = time.perf_counter()
    require_packages()
    if checkpoint is None:
        adapter = stand_in_adapter(name, variant, seed, **options)
    else:
        adapter = load_adapter(name, checkpoint, **options)
        if variant is not None and variant != adapter.variant:
            raise ConfigError(
                f"{checkpoint} is the variant '{adapter.variant}' of {name}, not '{variant}'; leave out --variant."
            )
    if saliency is not None:
        adapter.choose_map(saliency)
    progress(f"{adapter.name}-{adapter.variant}: {adapter.weights} weights read")
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
) -> ExportResult:
    """Exports a loaded model; `tokenizer` is a folder with its vocabulary, `prompts` replaces or adds prompt sets.
    With `precision` "fp16" the image graph is of that type and the variant's name says so.

    The bundle appears whole, after parity was proven, or not at all. Raises ConfigError (tokenizer, prompts),
    ExportError, ParityError and BundleError (the target exists, the disk is full).
    """
    if precision == "fp16":
        adapter.variant += "-fp16"
    target = out / f"{adapter.name}-{adapter.variant}"
    _check_target(target, force)
    words = select_tokenizer(adapter, tokenizer, progress)
    sets = _sets(adapter, prompts)
    seconds = {"load": loading}
    with _workspace(target, _bytes(adapter)) as folder:
        graphs = _export_graphs(adapter, folder, progress, seconds)
        if precision == "fp16":
            progress("writing image.onnx in fp16")
            to_half(folder / graphs["image"].file)
        with _timed(seconds, "prompts"):
            features = _encode(sets, words, folder, graphs, progress)
        with _timed(seconds, "parity"):
            report = _prove(adapter, words, folder, features, progress, precision)
        files = {spec.file: folder / spec.file for spec in graphs.values()}
        for prompt_set in features:
            prompt_set.save(folder / prompt_set.file)
            files[prompt_set.file] = folder / prompt_set.file
        files.update(_store(stored_files(words), folder))
        manifest = _manifest(adapter, words, graphs, features, report)
        bundle = write_bundle(target, manifest, files, replace=force)
    progress(f"{bundle.path}: written and verified")
    return ExportResult(bundle, report, seconds, peak_memory_mib())


def _check_target(target: Path, force: bool) -> None:
    if target.exists() and not force:
        raise BundleError(f"{target} already exists; choose another --out or replace it with --force.")
    if target.exists() and not (target / "bundle.json").is_file():
        raise BundleError(f"{target} exists and is no bundle, so it is not replaced; choose another --out.")


def _sets(adapter: Adapter, prompts: PromptSets | None) -> PromptSets:
    """The built-in sets in the model's words (a demo model has none), with the user's in their place or added."""
    style = adapter.prompt_style or adapter.name
    sets = {} if adapter.weights == "demo" or style not in prompt_styles() else builtin_sets(style)
    sets = {name: tuple(_worded(entry, adapter) for entry in entries) for name, entries in sets.items()}
    sets = {**sets, **(prompts or {})}
    if not sets:
        raise ConfigError(
            f"There are no built-in prompts for the model '{adapter.name}'; give some with --prompts FILE."
        )
    return sets


def _worded(entry: FindingPrompts, adapter: Adapter) -> FindingPrompts:
    """`entry`, in the words the model itself came with, if any: one text a query, or all texts of one query."""
    texts = adapter.wording().get(entry.finding)
    if texts is None:
        return entry
    return FindingPrompts(entry.finding, (SEPARATOR.join(texts),) if adapter.texts_per_query > 1 else texts)


def _export_graphs(
    adapter: Adapter, folder: Path, progress: Progress, seconds: dict[str, float]
) -> dict[str, GraphSpec]:
    from .graph import export_image, export_text

    graphs = {}
    for name, export in (("image", export_image), ("text", export_text)):
        progress(f"exporting {name}.onnx")
        with _timed(seconds, f"{name} graph"):
            graphs[name] = export(adapter, folder)
    return graphs


def _encode(
    sets: PromptSets, words: Tokenizer, folder: Path, graphs: Mapping[str, GraphSpec], progress: Progress
) -> list[PromptSet]:
    spec = graphs["text"]
    count = len({text for entries in sets.values() for entry in entries for text in entry.positive + entry.negative})
    progress(f"encoding {count} prompts of {len(sets)} sets with text.onnx")
    encoder = TextEncoder(folder / spec.file, spec, threads=threads_to_use())
    per_query = texts_per_query(graphs["image"], spec)
    return encode_sets(sets, words, encoder, [tensor.name for tensor in spec.inputs], per_query)


def _prove(
    adapter: Adapter, words: Tokenizer, folder: Path, features: list[PromptSet], progress: Progress, precision: str
) -> ParityReport:
    from .parity_run import check_parity

    progress("comparing the graphs with the model in batches of different size")
    sets = {prompt_set.name: prompt_set.features for prompt_set in features}
    report = check_parity(
        adapter, words, folder, sets, threads=threads_to_use(), image_tolerance=IMAGE_TOLERANCE[precision]
    )
    report.require()
    progress(f"parity: {len(report.checks)} comparisons, largest error {report.needed:.1e} of full scale")
    return report


def _store(contents: Mapping[str, bytes], folder: Path) -> dict[str, Path]:
    """Writes `contents` (path in the bundle -> bytes) into `folder`; returns where each stands."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


def _manifest(
    adapter: Adapter,
    words: Tokenizer,
    graphs: Mapping[str, GraphSpec],
    features: list[PromptSet],
    report: ParityReport,
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
        opset=OPSET,
        exporter=versions(),
        parity=report.to_json(),
    )


def _bytes(adapter: Adapter) -> int:
    """Bytes of the weights, which is very nearly the size of both graphs together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in adapter.module.state_dict().values())


@contextmanager
def _workspace(target: Path, size: int) -> Iterator[Path]:
    """A hidden folder beside the target for unfinished files, removed when the work is over, as is an unused `out`."""
    made = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        needed, free = _ROOM * size / 2**20, shutil.disk_usage(target.parent).free / 2**20
        if free < needed:
            raise ExportError(
                f"The export needs about {needed:.0f} MiB in {target.parent}, where {free:.0f} MiB are free; free some "
                "space or choose another --out."
            )
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}-", suffix=".part", dir=target.parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise ExportError(f"The bundle {target} cannot be written: {disk_reason(error)}.") from error
    finally:
        for empty in made:
            if empty.is_dir() and not any(empty.iterdir()):
                empty.rmdir()


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start
