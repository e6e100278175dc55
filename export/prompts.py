"""Prompt sets: which findings a dataset asks for, with which words, and their text features.

The built-in table (`prompt_table.json`) holds, for each dataset, the ordered findings, and for each prompt style the
strings of every finding with their status (official | adapted | own | ..., see the prompt specification). A file of
the user replaces or adds whole sets. A set is encoded and run as one: in a model with self-attention over the
queries, the scores of a finding depend on which others are asked with it (KAD parity specification).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..engines.errors import ConfigError, MissingExtraError
from ..engines.prompts import PromptSet

if TYPE_CHECKING:
    from ..engines.ort import TextEncoder
    from .tokenizers import Tokenizer

__all__ = ["FindingPrompts", "builtin_sets", "encode_sets", "prompt_styles", "read_prompt_file"]

_CHUNK = 32
_SET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class FindingPrompts:
    """What to ask for one finding: texts that mean present, texts that mean absent, and where they come from."""

    finding: str
    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()
    status: str = "user"


PromptSets = dict[str, tuple[FindingPrompts, ...]]


def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("prompt_table.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def prompt_styles() -> list[str]:
    """The styles the built-in table has strings for ("kad", "clip", ...)."""
    return sorted(_table()["prompts"])


def builtin_sets(style: str) -> PromptSets:
    """The sets of all datasets in the words of `style`. Raises ConfigError for an unknown style."""
    table = _table()
    if style not in table["prompts"]:
        raise ConfigError(
            f"No built-in prompts in the style '{style}' (there are {', '.join(sorted(table['prompts']))}); "
            "give your own with --prompts FILE."
        )
    words: dict[str, dict[str, Any]] = table["prompts"][style]
    exceptions: dict[str, dict[str, Any]] = table["exceptions"].get(style, {})
    return {
        name: tuple(_builtin(label, {**words, **exceptions.get(name, {})}[label]) for label in labels)
        for name, labels in table["sets"].items()
    }


def _builtin(label: str, entry: Mapping[str, Any]) -> FindingPrompts:
    return FindingPrompts(label, tuple(entry["positive"]), tuple(entry.get("negative", ())), str(entry["status"]))


def read_prompt_file(path: Path) -> PromptSets:
    """Sets from a YAML or JSON file `{set: {finding: [texts] or {positive: [...], negative: [...]}}}`.

    The order of findings and texts is kept; every status is "user". Raises ConfigError with file and key.
    """
    sets = _mapping(_parse(path), f"{path}", "sets by name")
    found: PromptSets = {}
    for name, findings in sets.items():
        if not _SET_NAME.fullmatch(name):
            raise ConfigError(f"{path}: the set name '{name}' may hold only letters, digits, '_' and '-'; rename it.")
        entries = _mapping(findings, f"{path}, set '{name}'", "findings by name")
        found[name] = tuple(_entry(path, name, finding, value) for finding, value in entries.items())
    return found


def _parse(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The prompt file {path} cannot be read: {error}; give a YAML or JSON text file.") from error
    if path.suffix.lower() == ".json":
        try:
            parsed: object = json.loads(text, object_pairs_hook=_distinct)
        except ValueError as error:
            raise ConfigError(f"The prompt file {path} is not valid JSON: {error}; correct it.") from error
        return parsed
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(
            "Reading a YAML prompt file needs pyyaml: pip install 'xbench-fast[export]', or write the file as JSON."
        ) from error
    try:
        parsed = yaml.load(text, _yaml_loader(yaml))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"The prompt file {path} has a wrong key: {error}; correct it.") from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise ConfigError(f"The prompt file {path} is not valid YAML: {where}; correct it.") from error
    return parsed


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping whose keys are distinct: of two findings of one name the parsers would silently keep the last."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key '{next(key for key in names if names.count(key) > 1)}' stands twice")
    return found


def _yaml_loader(yaml: Any) -> Any:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Plain data only, and no key twice."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        return _distinct(loader.construct_pairs(node, deep=True))

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader


def _mapping(value: object, where: str, what: str) -> dict[str, object]:
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{where}: expected a non-empty mapping ({what}), found {type(value).__name__}; correct it.")
    for key in value:
        if not isinstance(key, str) or not key.strip():
            raise ConfigError(f"{where}: the key {key!r} is not a name; put quotes around it.")
    return value


def _entry(path: Path, name: str, finding: str, value: object) -> FindingPrompts:
    where = f"{path}, set '{name}', finding '{finding}'"
    if isinstance(value, dict):
        unknown = sorted(str(key) for key in value if key not in ("positive", "negative"))
        if unknown:
            raise ConfigError(f"{where}: unknown key '{unknown[0]}'; only 'positive' and 'negative' are read.")
        positive, negative = value.get("positive"), value.get("negative", [])
    else:
        positive, negative = value, []
    entry = FindingPrompts(finding, _texts(positive, where, "positive"), _texts(negative, where, "negative"))
    if not entry.positive:
        raise ConfigError(f"{where}: no positive text; give at least one.")
    return entry


def _texts(value: object, where: str, side: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        raise ConfigError(f"{where}: the {side} prompts must be a list of non-empty texts; correct them.")
    return tuple(value)


def encode_sets(
    sets: Mapping[str, Sequence[FindingPrompts]], tokenizer: Tokenizer, encoder: TextEncoder, inputs: Sequence[str]
) -> list[PromptSet]:
    """Encodes every distinct text once through the exported text graph; returns one PromptSet per set, in order.

    `inputs` names the inputs of the text graph; the mask is passed only to a graph that takes one.
    Queries stand in the order of the findings, the positive texts of a finding before its negative ones.
    """
    distinct = list(dict.fromkeys(text for entries in sets.values() for entry in entries for text in _all_texts(entry)))
    rows = []
    for start in range(0, len(distinct), _CHUNK):
        batch = tokenizer(distinct[start : start + _CHUNK])
        rows.append(np.asarray(encoder.run(batch.ids, batch.mask_for(inputs)), dtype=np.float32))
    features = np.concatenate(rows) if rows else np.zeros((0, 0), np.float32)
    index = {text: row for row, text in enumerate(distinct)}
    return [_assemble(name, entries, index, features) for name, entries in sets.items()]


def _all_texts(entry: FindingPrompts) -> tuple[str, ...]:
    return entry.positive + entry.negative


def _assemble(
    name: str, entries: Sequence[FindingPrompts], index: Mapping[str, int], features: NDArray[np.float32]
) -> PromptSet:
    texts = [text for entry in entries for text in _all_texts(entry)]
    finding_of = [number for number, entry in enumerate(entries) for _ in _all_texts(entry)]
    polarity = [sign for entry in entries for sign in (1,) * len(entry.positive) + (-1,) * len(entry.negative)]
    return PromptSet(
        name=name,
        findings=tuple(entry.finding for entry in entries),
        texts=tuple(texts),
        finding_of=np.asarray(finding_of, dtype=np.int32),
        polarity=np.asarray(polarity, dtype=np.int8),
        features=features[[index[text] for text in texts]],
        status=tuple(entry.status for entry in entries),
    )
