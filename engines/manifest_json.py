"""Reads bundle.json into a Manifest; the file is untrusted input (format: engines/README.md)."""

from __future__ import annotations

import json
import math
import re
from typing import Any, cast, get_args

from .errors import BundleError
from .geometry import Geometry
from .manifest import SCHEMA, FileRecord, GraphSpec, Manifest, PromptRecord, TensorSpec, Weights
from .rounding import PRECISIONS
from .strict_json import distinct_keys, no_constant

__all__ = ["MAX_JSON_BYTES", "parse_manifest", "safe_relative"]

MAX_JSON_BYTES = 16 * 2**20
_DTYPES = frozenset({"uint8", "int64", "float16", "float32"})
_SAFE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Reads bundle.json; `where` names the bundle in messages. Raises BundleError, never another exception."""
    if len(data) > MAX_JSON_BYTES:
        raise BundleError(f"{where}: bundle.json has {len(data)} bytes, more than any bundle needs; export again.")
    try:
        raw = json.loads(data.decode("utf-8"), object_pairs_hook=distinct_keys, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{where}: bundle.json is not valid JSON ({error}); export the bundle again.") from error
    if not isinstance(raw, dict):
        raise BundleError(f"{where}: bundle.json is not an object; export the bundle again.")
    schema = raw.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        raise BundleError(
            f"{where}: schema {schema!r} is not {SCHEMA}, the one this version reads; export the bundle again "
            "with this version, or install the version that wrote it."
        )
    try:
        return _manifest(raw)
    except BundleError as error:
        raise BundleError(f"{where}: {error}") from error
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BundleError(f"{where}: bundle.json does not follow the format ({error!r}); export it again.") from error


def safe_relative(name: str) -> str:
    """`name` if it is a plain relative path that cannot leave its directory. Raises BundleError."""
    if not isinstance(name, str) or not all(_SAFE_PART.fullmatch(part) for part in name.split("/")):
        raise BundleError(f"the file name {name!r} is not a plain path inside the bundle; do not use this bundle.")
    return name


def _strings(value: Any, key: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise BundleError(f"the key '{key}' must map names to strings.")
    return value


def _string(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise BundleError(f"the key '{key}' must be a non-empty string.")
    return value


def _integer(value: Any, key: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BundleError(f"the key '{key}' must be a whole number from {low} to {high}, it is {value!r}.")
    return value


def _positive(value: Any, key: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise BundleError(f"the key '{key}' must be a number above 0, it is {value!r}.")
    return float(value)


def _geometry(value: Any) -> Geometry:
    if not isinstance(value, dict):
        raise BundleError("the key 'geometry' must be an object.")
    for key in ("mode", "interpolation"):
        _string(value[key], f"geometry.{key}")
    for key in ("size", "resize"):
        _integer(value[key], f"geometry.{key}", 1, 8192)
    return Geometry.from_json(value)


def _parity(value: Any) -> dict[str, Any]:
    """The parity report. Only the entries that are read later are checked, and only if they are present."""
    if not isinstance(value, dict):
        raise BundleError("the key 'parity' must be an object.")
    if not isinstance(value.get("passed", False), bool):
        raise BundleError(f"the key 'parity.passed' must be true or false, it is {value['passed']!r}.")
    if "compared" in value:
        _integer(value["compared"], "parity.compared", 0, 2**31)
    for key in {"needed", "tolerance"} & value.keys():
        if value[key] != 0 or isinstance(value[key], bool):
            _positive(value[key], f"parity.{key}")
    return value


def _tensor(value: Any, graph: str) -> TensorSpec:
    name, dtype = _string(value["name"], f"graphs.{graph}"), _string(value["dtype"], f"graphs.{graph}")
    if dtype not in _DTYPES:
        raise BundleError(f"tensor '{name}' of graph '{graph}' has the unknown type {dtype!r}.")
    shape: list[int | str] = [
        _string(size, f"graphs.{graph}.{name}")
        if isinstance(size, str)
        else _integer(size, f"{graph}.{name}", 1, 2**31)
        for size in value["shape"]
    ]
    return TensorSpec(name, dtype, tuple(shape))


def _graph(value: Any, name: str) -> GraphSpec:
    return GraphSpec(
        file=safe_relative(value["file"]),
        inputs=tuple(_tensor(t, name) for t in value["inputs"]),
        outputs=tuple(_tensor(t, name) for t in value["outputs"]),
    )


def _prompts(value: Any, name: str) -> PromptRecord:
    def texts(key: str) -> tuple[str, ...]:
        return tuple(_string(item, f"prompt_sets.{name}.{key}") for item in value[key])

    findings, words, status = texts("findings"), texts("texts"), texts("status")
    finding_of = tuple(_integer(i, f"prompt_sets.{name}.finding_of", 0, len(findings) - 1) for i in value["finding_of"])
    polarity = tuple(_integer(p, f"prompt_sets.{name}.polarity", -1, 1) for p in value["polarity"])
    if not findings or len(set(findings)) != len(findings) or len(status) != len(findings):
        raise BundleError(f"prompt set '{name}': findings must be distinct, at least one, with one status each.")
    if not len(words) == len(finding_of) == len(polarity) or 0 in polarity:
        raise BundleError(
            f"prompt set '{name}': texts, finding_of and polarity (+1 or -1) must have one entry a query."
        )
    if {f for f, p in zip(finding_of, polarity, strict=True) if p == 1} != set(range(len(findings))):
        raise BundleError(f"prompt set '{name}': every finding needs at least one positive prompt.")
    return PromptRecord(safe_relative(value["file"]), findings, words, finding_of, polarity, status)


def _file(value: Any, name: str) -> FileRecord:
    digest = value["sha256"]
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise BundleError(f"the sha256 of '{name}' is not 64 lower-case hexadecimal digits.")
    return FileRecord(digest, _integer(value["bytes"], f"files.{name}.bytes", 0, 2**40))


def _manifest(raw: dict[str, Any]) -> Manifest:
    weights = raw["weights"]
    if weights not in get_args(Weights):
        raise BundleError(f"the key 'weights' is {weights!r}, not one of {', '.join(get_args(Weights))}.")
    grid = raw["grid"]
    if not isinstance(grid, list) or len(grid) != 2:
        raise BundleError("the key 'grid' must be [rows, columns].")
    graphs = {name: _graph(value, name) for name, value in raw["graphs"].items()}
    prompt_sets = {safe_relative(name): _prompts(value, name) for name, value in raw["prompt_sets"].items()}
    files = {safe_relative(name): _file(value, name) for name, value in raw["files"].items()}
    manifest = Manifest(
        model=_string(raw["model"], "model"),
        variant=_string(raw["variant"], "variant"),
        weights=cast(Weights, weights),
        checkpoint=None if raw["checkpoint"] is None else _strings(raw["checkpoint"], "checkpoint"),
        geometry=_geometry(raw["geometry"]),
        grid=(_integer(grid[0], "grid", 1, 1024), _integer(grid[1], "grid", 1, 1024)),
        saliency=_strings(raw["saliency"], "saliency"),
        logit_scale=_positive(raw["logit_scale"], "logit_scale"),
        text=dict(raw["text"]),
        graphs=graphs,
        prompt_sets=prompt_sets,
        opset=_integer(raw["opset"], "opset", 1, 1000),
        exporter=_strings(raw["exporter"], "exporter"),
        parity=_parity(raw["parity"]),
        files=files,
        precision=raw.get("precision", "fp32"),
    )
    if manifest.precision not in PRECISIONS:
        raise BundleError(f"the key 'precision' is {manifest.precision!r}, not one of {', '.join(PRECISIONS)}.")
    _check_image_graph(manifest)
    if "text" in graphs:
        _check_text_graph(graphs["text"])
    for name in [g.file for g in graphs.values()] + [p.file for p in prompt_sets.values()]:
        if name not in files:
            raise BundleError(f"'{name}' is used but not listed under 'files', so it cannot be verified.")
    return manifest


def _check_image_graph(manifest: Manifest) -> None:
    """Checks the interface of every image graph: uint8 pixels and text features in, logits and saliency out."""
    graph = manifest.graphs.get("image")
    if graph is None:
        raise BundleError("graphs.image is missing.")
    size, (rows, columns) = manifest.geometry.size, manifest.grid
    names = ([t.name for t in graph.inputs], [t.name for t in graph.outputs])
    if names != (["pixels", "text"], ["logits", "saliency"]):
        raise BundleError(f"graphs.image must have inputs pixels, text and outputs logits, saliency, it has {names}.")
    pixels, text, logits, saliency = (*graph.inputs, *graph.outputs)
    wanted = (
        pixels.dtype == "uint8" and pixels.shape == ("batch", 1, size, size),
        text.dtype == "float32" and len(text.shape) >= 2 and text.shape[0] == "findings",
        all(isinstance(n, int) for n in text.shape[1:]),
        logits.dtype == "float32" and logits.shape == ("batch", "findings"),
        saliency.dtype == "float32" and saliency.shape == ("batch", "findings", rows, columns),
    )
    if not all(wanted):
        raise BundleError(
            f"the tensors of graphs.image do not fit a {size} x {size} input with a {rows} x {columns} saliency grid."
        )


def _check_text_graph(graph: GraphSpec) -> None:
    """Checks the interface of the text graph: token ids and an optional mask in, features of known size out."""
    names = ([t.name for t in graph.inputs], [t.name for t in graph.outputs])
    if names[0] not in (["input_ids"], ["input_ids", "attention_mask"]) or names[1] != ["features"]:
        raise BundleError(
            f"graphs.text must have inputs input_ids, or input_ids and attention_mask, and the output features, it has "
            f"{names}."
        )
    features = graph.outputs[0]
    wanted = (
        all(t.dtype == "int64" and len(t.shape) == 2 for t in graph.inputs),
        features.dtype == "float32" and len(features.shape) >= 2,
        all(isinstance(n, str) for n in features.shape[:1]) and all(isinstance(n, int) for n in features.shape[1:]),
    )
    if not all(wanted):
        raise BundleError("the tensors of graphs.text do not fit: int64 ids [texts, tokens], float32 features.")
