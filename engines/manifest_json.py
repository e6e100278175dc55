"""Reads bundle.json into a Manifest; the file is untrusted input (format: engines/README.md)."""

from __future__ import annotations

import json
import re
import sys
from typing import Annotated, Any

import msgspec

from .errors import BundleError
from .manifest import SCHEMA, SCHEMA_FIXED, FileRecord, GraphSpec, Manifest, PromptRecord
from .precisions import PRECISIONS
from .strict_json import CHECKSUM, checksum_of, distinct_keys, no_constant

MAX_JSON_BYTES = 16 * 2**20  # of bundle.json, which is parsed as a whole and may come from a stranger
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
    if schema not in (SCHEMA, SCHEMA_FIXED) or isinstance(schema, bool):
        raise BundleError(
            f"{where}: schema {schema!r} is not {SCHEMA} or {SCHEMA_FIXED}, which this version reads; export the "
            "bundle again with this version, or install the version that wrote it."
        )
    try:
        _check_checksum(raw)
        return _manifest(raw)
    except BundleError as error:
        raise BundleError(f"{where}: {error}") from error


def _check_checksum(raw: dict[str, Any]) -> None:
    """Raises BundleError for other values than were written. Older versions wrote no checksum."""
    try:
        intact = CHECKSUM not in raw or raw[CHECKSUM] == checksum_of(raw)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise BundleError(
            "bundle.json does not match its checksum, it was changed or damaged; export the bundle again."
        )


def safe_relative(name: str) -> str:
    """`name` if it is a plain relative path that cannot leave its directory. Raises BundleError."""
    if not isinstance(name, str) or not all(_SAFE_PART.fullmatch(part) for part in name.split("/")):
        raise BundleError(f"the file name {name!r} is not a plain path inside the bundle; do not use this bundle.")
    return name


class _Parity(msgspec.Struct):
    """The entries of the parity report that are read later; each may be absent."""

    passed: bool = False
    compared: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    needed: Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)] = 0.0
    tolerance: Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)] = 0.0


_ENTRIES = {"graphs": GraphSpec, "prompt_sets": PromptRecord, "files": FileRecord}


def _convert(value: Any, target: Any, key: str = "") -> Any:
    """`value`, found at `key` of bundle.json, as `target`. Raises BundleError, naming the key inside it."""
    try:
        return msgspec.convert(value, target)
    except (msgspec.ValidationError, UnicodeError) as error:  # UnicodeError for half of a surrogate pair
        fault, _, inside = str(error).partition(" - at `$")
        where = f"{key}{inside}".strip("`.")
        position = f" at '{where}'" if where else ""
        raise BundleError(f"bundle.json is not valid{position}: {fault}; export the bundle again.") from error


def _manifest(raw: dict[str, Any]) -> Manifest:
    # One by one, because msgspec does not say which entry of a mapping is invalid.
    entries = {
        key: {
            name: _convert(entry, entry_type, f"{key}.{name}")
            for name, entry in _convert(raw.get(key), dict, key).items()
        }
        for key, entry_type in _ENTRIES.items()
    }
    manifest: Manifest = _convert({**raw, **entries}, Manifest)
    _convert(manifest.parity, _Parity, "parity")
    if manifest.precision not in PRECISIONS:
        raise BundleError(f"the key 'precision' is {manifest.precision!r}, not one of {', '.join(PRECISIONS)}.")
    if manifest.quantisation is not None and manifest.precision != "int8":
        raise BundleError(f"the key 'quantisation' belongs to int8, and the precision is {manifest.precision}.")
    if manifest.geometry.intensity == "equalised":
        raise BundleError(f"the key 'geometry' has the intensity {manifest.geometry.intensity!r}, which no bundle has.")
    _check_image_graph(manifest)
    if manifest.findings or raw["schema"] == SCHEMA_FIXED:
        _check_findings(manifest)
    if "text" in manifest.graphs:
        _check_text_graph(manifest.graphs["text"])
    for name, prompts in manifest.prompt_sets.items():
        _check_prompts(name, prompts)
    used = [graph.file for graph in manifest.graphs.values()] + [entry.file for entry in manifest.prompt_sets.values()]
    for name in (*manifest.prompt_sets, *manifest.files, *used):
        safe_relative(name)
    for name in used:
        if name not in manifest.files:
            raise BundleError(f"'{name}' is used but not listed under 'files', so it cannot be verified.")
    return manifest


def _check_findings(manifest: Manifest) -> None:
    """Checks that a model with fixed findings names each once, takes a feature for each, and has no text graph."""
    findings, features = manifest.findings, manifest.graphs["image"].inputs[1].shape[1:]
    if not findings or len(set(findings)) != len(findings) or features != (len(findings),):
        raise BundleError(
            f"the key 'findings' has {len(findings)} names for text features {list(features)}; export the bundle again."
        )
    if "text" in manifest.graphs:
        raise BundleError("a bundle with the key 'findings' reads no text, and graphs.text is there; export it again.")


def _check_prompts(name: str, record: PromptRecord) -> None:
    """Checks that the lists of a prompt set fit each other."""
    findings, queries = len(record.findings), list(zip(record.finding_of, record.polarity, strict=False))
    if not findings or len(set(record.findings)) != findings or len(record.status) != findings:
        raise BundleError(f"prompt set '{name}': findings must be distinct, at least one, with one status each.")
    if not len(record.texts) == len(record.finding_of) == len(record.polarity) or 0 in record.polarity:
        raise BundleError(
            f"prompt set '{name}': texts, finding_of and polarity (+1 or -1) must have one entry a query."
        )
    if max(record.finding_of, default=0) >= findings:
        raise BundleError(f"prompt set '{name}': finding_of must hold whole numbers from 0 to {findings - 1}.")
    if {finding for finding, polarity in queries if polarity == 1} != set(range(findings)):
        raise BundleError(f"prompt set '{name}': every finding needs at least one positive prompt.")


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
