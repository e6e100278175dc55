"""Reads a user's prompt file: YAML or JSON with sets, findings and texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, MissingExtraError
from ..extras import missing_package
from ..strict_json import parse_json
from ..strict_yaml import parse_yaml

SEPARATOR = "\n"
"""Separates the texts of one query, in models whose query is several texts (MAVL: a description, eight aspects)."""

SET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
"""A legal name of a set."""


@dataclass(frozen=True)
class FindingPrompts:
    """The prompts of one finding: texts that mean present, texts that mean absent, and where they come from."""

    finding: str
    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()
    status: str = "user"

    @property
    def texts(self) -> tuple[str, ...]:
        """All of them, the positive ones first."""
        return self.positive + self.negative

    def averaged(self) -> FindingPrompts:
        """The same with one query of several texts for all that mean present, and one for all that mean absent."""
        joined = (SEPARATOR.join(texts) for texts in (self.positive, self.negative))
        positive, negative = ((text,) if text else () for text in joined)
        return FindingPrompts(self.finding, positive, negative, self.status)


PromptSets = dict[str, tuple[FindingPrompts, ...]]


def read_prompt_file(path: Path) -> PromptSets:
    """Sets from a YAML or JSON file `{set: {finding: [texts] or {positive: [...], negative: [...]}}}`.

    A text may itself be a list of texts, for a model whose query is several texts; they are joined by
    `SEPARATOR`. The order of findings and texts is kept; every status is "user". Raises ConfigError with file and key.
    """
    return prompt_sets(parse_prompt_file(path), path)


def prompt_sets(content: object, path: Path) -> PromptSets:
    """The sets of a parsed file. Raises ConfigError with file and key."""
    sets = mapping(content, f"{path}", "sets by name")
    prompts: PromptSets = {}
    for name, findings in sets.items():
        if not SET_NAME.fullmatch(name):
            raise ConfigError(f"{path}: the set name '{name}' may hold only letters, digits, '_' and '-'; rename it.")
        entries = mapping(findings, f"{path}, set '{name}'", "findings by name")
        prompts[name] = tuple(_entry(path, name, finding, value) for finding, value in entries.items())
    return prompts


def parse_prompt_file(path: Path) -> object:
    """The plain content of a YAML or JSON file, no duplicate keys. Raises ConfigError; MissingExtraError (YAML)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The prompt file {path} cannot be read: {error}; give a YAML or JSON text file.") from error
    try:
        return parse_json(text) if path.suffix.lower() == ".json" else parse_yaml(text)
    except ImportError as error:
        raise MissingExtraError(
            missing_package("pyyaml", "formats", user="A YAML file of prompts", instead="use JSON")
        ) from error
    except (ValueError, RecursionError) as error:
        form = "JSON" if path.suffix.lower() == ".json" else "YAML"
        text = " ".join(str(error).split())
        raise ConfigError(f"The prompt file {path} is not valid {form}: {text}; correct it.") from error


def mapping(value: object, where: str, what: str) -> dict[str, object]:
    """`value`, if it is a mapping by name that is not empty. Raises ConfigError, which says `where` and `what`."""
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
    entry = FindingPrompts(finding, texts_of(positive, where, "positive"), texts_of(negative, where, "negative"))
    if not entry.positive:
        raise ConfigError(f"{where}: no positive text; give at least one.")
    return entry


def texts_of(value: object, where: str, side: str) -> tuple[str, ...]:
    """A query for each entry of the list; a line break within a text is the same as a space."""
    queries = []
    for query in value if isinstance(value, list) else [None]:
        texts = query if isinstance(query, list) and query else [query]
        plain = [text for text in texts if isinstance(text, str) and text.strip()]
        if len(plain) != len(texts):
            raise ConfigError(f"{where}: the {side} prompts must be a list of non-empty texts; correct them.")
        queries.append(SEPARATOR.join(text.replace("\r\n", " ").replace("\n", " ") for text in plain))
    return tuple(queries)
