"""Sentences for MedKLIP and MAVL: the authors' books, read from the user's copy, or this project's own words.

The repositories of MedKLIP and MAVL carry no licence, so their sentences are not part of this package. In both models
the queries attend to one another, and the official result needs the whole book in the set: with a book every set
contains all of its entries, for the dataset's findings under the findings' names (docs/parity.md §7).
The models do not depend on the order; the dataset's findings come first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeGuard

from ...engines.errors import ConfigError
from ...engines.prompts.prompt_files import SEPARATOR, FindingPrompts, PromptSets

ALIASES = {"eumonia": "pneumonia"}  # MedKLIP's file counts by position; at 20 it misspells the key, not the text
COVID_KEY, COVID_SET = "covid19", "covid_rural"  # MAVL uses it only for COVID sets, as an additional class
ASPECTS = 8
SIZES = {"medklip": "75 sentences", "mavl": "675 texts of 75 classes"}


@dataclass
class Book:
    """The content of the user's copy: key -> description, key -> eight aspects, and aspects for COVID sets only.

    `rare` are the keys of the files of rare diseases, which are used for a finding but are not part of the book.
    """

    descriptions: dict[str, str] = field(default_factory=dict)
    aspects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    covid_aspects: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rare: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.descriptions or self.aspects)

    def add(self, content: Mapping[str, Any], path: Path) -> None:
        """Adds one published file. Raises ConfigError for two texts under one key and for a wrong shape."""
        if _is_descriptions(content):
            target: dict[str, Any] = self.descriptions
        else:
            target = self.covid_aspects if "covid" in path.name.lower() else self.aspects
        for key, value in content.items():
            name, text = ALIASES.get(key, key), value if isinstance(value, str) else tuple(value)
            if isinstance(text, tuple) and len(text) != ASPECTS:
                raise ConfigError(f"{path}: '{key}' has {len(text)} aspects instead of {ASPECTS}; take the file again.")
            if "rare" in path.name.lower():
                if name not in target:
                    self.rare.add(name)
                    target[name] = text
            elif name in target and name not in self.rare and target[name] != text:
                raise ConfigError(f"{path}: the entry '{key}' was already read with other words; give one book only.")
            else:
                target[name] = text
                self.rare.discard(name)


def is_book(content: object) -> TypeGuard[dict[str, Any]]:
    """Whether a parsed file is one of the published ones: key -> sentence, or key -> list of sentences."""
    lists = content.values() if isinstance(content, dict) and content else [None]
    aspects = all(isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in lists)
    return aspects or _is_descriptions(content)


def _is_descriptions(content: object) -> bool:
    """Whether it is `observation explanation.json`: key -> sentence."""
    return isinstance(content, dict) and bool(content) and all(isinstance(text, str) for text in content.values())


@cache
def _words() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("descriptions.json").read_text(encoding="utf-8")
    words: dict[str, Any] = json.loads(text)
    return words


def own_wording(style: str, label: str) -> FindingPrompts:
    """This project's own sentences for a finding; several queries where the label joins several concepts."""
    words = _words()
    queries = []
    for concept in words["labels"][label]:
        entry = words["concepts"][concept]
        aspects = [f"{name}: {text}." for name, text in zip(words["aspects"], entry["aspects"], strict=True)]
        queries.append(SEPARATOR.join([entry["description"], *(aspects if style == "mavl" else [])]))
    return FindingPrompts(label, tuple(queries), status="own")


def book_sets(style: str, book: Book, findings: Mapping[str, tuple[str, ...]]) -> PromptSets:
    """Every dataset's set with the whole book in it; `findings` are the datasets' by set name.

    A finding without an entry in the book gets the project's own words and the status "own"; entries without a finding
    are added under their keys, with the status "official". Raises ConfigError for an incomplete book.
    """
    if not book.descriptions or (style == "mavl" and not book.aspects):
        missing = (
            "descriptions (observation explanation.json)" if not book.descriptions else "aspects (gpt4_mimic.json)"
        )
        raise ConfigError(f"The official prompts of {style} lack the {missing}; give --prompts the whole checkout.")
    return {name: _set(style, book, name, labels) for name, labels in findings.items()}


def own_words_caution(style: str, sets: PromptSets) -> str:
    """The warning for sets of MedKLIP or MAVL without a word of the authors; empty if there is none, or for a set that
    the user wrote."""
    own_sets = [name for name, entries in sets.items() if all(entry.status == "own" for entry in entries)]
    if style not in SIZES or not own_sets:
        return ""
    return (
        f"the prompts of {', '.join(own_sets)} are this project's sentences (status 'own'), not the authors': "
        f"{style}'s queries attend to one another, and its official numbers need the authors' whole book, "
        f"{SIZES[style]}, in each set; give --prompts a checkout of their repository"
    )


def _set(style: str, book: Book, name: str, labels: tuple[str, ...]) -> tuple[FindingPrompts, ...]:
    queries = _queries(style, book, covid=name == COVID_SET)
    official: dict[str, Any] = _words()["official"][style]
    entries, asked = [], set()
    for label in labels:
        source = official.get(label, {"keys": [None], "status": "own"})
        if all(key in queries for key in source["keys"]):
            texts = tuple(queries[key] for key in source["keys"])
            entries.append(FindingPrompts(label, texts, status=source["status"]))
            asked.update(source["keys"])
        else:
            entries.append(own_wording(style, label))
    absent = {*asked, *book.rare, *(() if name == COVID_SET else (COVID_KEY,))}
    base = [key for key in queries if key not in absent]
    return (*entries, *(FindingPrompts(key, (queries[key],), status="official") for key in base))


def _queries(style: str, book: Book, *, covid: bool) -> dict[str, str]:
    """Key -> query, for all keys that can be used."""
    if style == "medklip":
        return dict(book.descriptions)
    aspects = {**book.aspects, **(book.covid_aspects if covid else {})}
    return {key: SEPARATOR.join([text, *aspects[key]]) for key, text in book.descriptions.items() if key in aspects}
