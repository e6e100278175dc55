"""Makes a bundle from the user's ONNX file; checks its interface, its outputs and that images are independent."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engines.bundle import Bundle, check_place, sha256_of, write_bundle
from ..engines.errors import BundleError, ConfigError, ExportError
from ..engines.external_data import external_locations
from ..engines.geometry import Geometry
from ..engines.manifest import GraphSpec, Manifest, TensorSpec, Weights
from ..engines.precisions import stated_precision
from ..engines.prompts.prompt_encoding import assemble
from ..engines.prompts.prompt_files import PromptSets
from ..engines.prompts.prompt_set import PromptSet
from ..engines.quantised import OTHER_NUMBERS
from .libraries import require_packages, short_reason, versions
from .machine import workspace
from .parity.alone import GraphTrial, batch_sizes
from .parity.output_checks import last_function, not_finite, refusal, remarks


@dataclass(frozen=True)
class Facts:
    """Facts that a graph does not state; `geometry` fits the graph's pixels. largest_batch: that the bundle is made
    for, None for the largest that is compared as a rule (docs/parity.md §6)."""

    name: str
    variant: str
    weights: Weights
    geometry: Geometry
    saliency_kind: str
    description: str
    logit_scale: float
    smoothing: float = 0.0
    largest_batch: int | None = None


def read_geometry(text: str) -> Geometry:
    """`mode:size[:resize[:interpolation]]`, e.g. squash:224, crop:224:256:bicubic. Raises ConfigError."""
    mode: Any
    mode, *rest = text.split(":")
    try:
        size = int(rest[0])
        resize = int(rest[1]) if len(rest) > 1 else size
        interpolation: Any = rest[2] if len(rest) > 2 else "bilinear"
        return Geometry(mode, size, resize, interpolation)
    except (ValueError, IndexError, BundleError) as error:
        raise ConfigError(
            f"--geometry {text} is not MODE:SIZE[:RESIZE[:INTERPOLATION]] ({error}); for example squash:224 or "
            "crop:224:256:bicubic."
        ) from error


def read_features(path: Path, sets: PromptSets) -> list[PromptSet]:
    """Prompt sets with the features of an .npz file: one float32 array [Q, D...] per set, one row per text (a finding's
    positive texts before its negative ones). Raises ConfigError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"The features {path} cannot be read ({error}); give an .npz file.") from error
    if set(arrays) != set(sets):
        raise ConfigError(f"{path} has features for {sorted(arrays)}, the prompts for {sorted(sets)}; make them fit.")
    prompt_sets = []
    for name, entries in sets.items():
        count = sum(len(entry.positive + entry.negative) for entry in entries)
        features = arrays[name]
        if features.dtype != np.float32 or features.ndim < 2 or len(features) != count:
            raise ConfigError(
                f"{path}: the features of '{name}' are {features.dtype} {list(features.shape)}; give float32 "
                f"[{count}, D...], a row a text."
            )
        prompt_sets.append(assemble(name, entries, features))
    return prompt_sets


def wrap(
    graph: Path,
    sets: list[PromptSet],
    facts: Facts,
    out: Path,
    *,
    force: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Writes `out`/<name>-<variant> with `graph` as its image graph, and no text graph.

    Raises ExportError (the graph has another interface, cannot run, does not take this prompt set, or no right number
    follows from its outputs), ParityError (an image's result depends on its neighbours in the batch), BundleError,
    MissingExtraError.
    """
    require_packages()
    target = out / f"{facts.name}-{facts.variant}"
    check_place(target, force)
    spec, opset, precision, function = _interface(graph, facts.geometry.size)
    for prompt_set in sets:
        if prompt_set.features.shape[1:] != spec.inputs[1].shape[1:]:
            raise ExportError(
                f"{graph} takes text features {list(spec.inputs[1].shape)}, the set '{prompt_set.name}' has "
                f"{list(prompt_set.features.shape)}."
            )
    rows, columns = (int(size) for size in spec.outputs[1].shape[2:])
    sizes = batch_sizes(facts.geometry.size, facts.largest_batch)
    trial = GraphTrial(graph, facts.geometry.size, (rows, columns), precision)
    progress("running the graph with one picture at a time")
    alone = trial.alone(sets)
    if (reason := not_finite(alone)) is not None:
        raise ExportError(f"{graph.name} is not wrapped: {reason}.")
    report = trial.compare(alone, sizes, progress)
    if (reason := refusal(alone, function)) is not None:
        raise ExportError(f"{graph.name} is not wrapped: {reason}.")
    noticed = list(remarks(alone))
    if precision == "int8":
        others = " and ".join(OTHER_NUMBERS)
        noticed.append(
            f"The graph is in int8, to which {others} gives other maps than ONNX Runtime on the CPU gave here."
        )
    for line in noticed:
        progress(f"warning: {line}")
    manifest = Manifest(
        model=facts.name,
        variant=facts.variant,
        weights=facts.weights,
        checkpoint={"name": graph.name, "sha256": sha256_of(graph)},
        geometry=facts.geometry,
        grid=(rows, columns),
        saliency={"kind": facts.saliency_kind, "description": facts.description, "smoothing": facts.smoothing},
        logit_scale=facts.logit_scale,
        text={},
        graphs={"image": spec},
        prompt_sets={prompt_set.name: prompt_set.record() for prompt_set in sets},
        opset=opset,
        exporter={**versions(), "wrapped": graph.name},
        parity={**report.to_json(), **({"remarks": noticed} if noticed else {})},
        precision=precision,
        largest_batch=sizes[-1],
    )
    with workspace(target, 0) as folder:
        files = {"image.onnx": graph}
        for prompt_set in sets:
            prompt_set.save(folder / prompt_set.file)
            files[prompt_set.file] = folder / prompt_set.file
        return write_bundle(target, manifest, files, replace=force)


def _interface(graph: Path, size: int) -> tuple[GraphSpec, int, str, str]:
    """The graph's tensors, opset, precision, and the operator that makes its logits."""
    import onnx

    try:
        model = onnx.load(str(graph), load_external_data=False)
        onnx.checker.check_model(str(graph))
    except Exception as error:  # protobuf's and the checker's own classes
        raise ExportError(f"{graph} is no valid ONNX file: {short_reason(error, 300)}.") from error
    tensors = {value.name: _shape(value) for value in (*model.graph.input, *model.graph.output)}
    if [value.name for value in model.graph.input] != ["pixels", "text"] or [v.name for v in model.graph.output] != [
        "logits",
        "saliency",
    ]:
        raise ExportError(
            f"{graph} has the tensors {list(tensors)}; a bundle's graph has the inputs pixels, text and the outputs "
            "logits, saliency, in this order."
        )
    if external_locations(graph):
        raise ExportError(f"{graph} keeps its weights in another file; save it as a single file.")
    (pixels, pixel_type), (text, text_type) = tensors["pixels"], tensors["text"]
    (logits, logit_type), (saliency, saliency_type) = tensors["logits"], tensors["saliency"]
    fits = (
        (pixel_type, text_type, logit_type, saliency_type) == ("uint8", "float32", "float32", "float32")
        and pixels[1:] == [1, size, size]
        and len(text) > 1
        and all(text[1:])
        and len(logits) == 2
        and len(saliency) == 4
        and all(saliency[2:])
        and not any((pixels[0], text[0], *logits, *saliency[:2]))
    )
    if not fits:
        raise ExportError(
            f"{graph} has {tensors} (0 is a free axis); wanted are pixels uint8 [batch, 1, {size}, {size}], text "
            "float32 [findings, D...], logits float32 [batch, findings], saliency float32 [batch, findings, h, w]."
        )
    spec = GraphSpec(
        "image.onnx",
        (
            TensorSpec("pixels", "uint8", ("batch", 1, size, size)),
            TensorSpec("text", "float32", ("findings", *text[1:])),
        ),
        (
            TensorSpec("logits", "float32", ("batch", "findings")),
            TensorSpec("saliency", "float32", ("batch", "findings", *saliency[2:])),
        ),
    )
    opset = max(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    return spec, opset, stated_precision(model), last_function(model.graph)


def _shape(value: Any) -> tuple[list[int], str]:
    """Sizes, 0 for a free axis, and the type."""
    import onnx

    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name if tensor.elem_type else "none"
    return [axis.dim_value if axis.HasField("dim_value") else 0 for axis in tensor.shape.dim], dtype
