"""Expands a file of templates and synonyms to prompt sets, one for each wording (docs/recipes/prompts.md)."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import ConfigError
from ..registry import did_you_mean
from .prompt_files import SET_NAME, FindingPrompts, PromptSets, mapping, parse_prompt_file, texts_of

MOST_SETS: Final = 1000
"""The largest number of sets that are written without a limit: each one is a result of its own in a run."""
_KEYS: Final = ("templates", "findings", "synonyms")
_PLACES: Final = ("{finding}", "{Finding}")

Texts = tuple[str, ...]


@dataclass(frozen=True)
class PromptTemplates:
    """Templates and the synonyms of each finding: a set is a template with one synonym for each finding.

    templates: by name, the texts that mean present and those that mean absent.
    """

    path: Path
    templates: Mapping[str, tuple[Texts, Texts]]
    synonyms: Mapping[str, tuple[str, ...]]

    @property
    def choices(self) -> int:
        """The number of choices of one synonym for each finding."""
        return math.prod(map(len, self.synonyms.values()))

    @property
    def total(self) -> int:
        """The number of sets."""
        return len(self.templates) * self.choices

    def expand(self, limit: int | None = None, seed: int = 0) -> PromptSets:
        """The sets, template by template, the last finding's synonyms changing fastest.

        limit: with more sets, this many: the first one, which has the first template and the first synonyms, and others
        drawn at random (the Mersenne Twister of Python with `seed`), in the order of all. Raises ConfigError for more
        than `MOST_SETS` without a limit, and if names would be longer than 64 characters.
        """
        if limit is None and self.total > MOST_SETS:
            raise ConfigError(
                f"{self.path}: {len(self.templates)} templates and {self.choices:,} choices of synonyms give "
                f"{self.total:,} sets, more than {MOST_SETS:,}; take a sample of them with --limit."
            )
        return {name: self._entries(*place) for name, place in self._named(self._numbers(limit, seed))}

    def _numbers(self, limit: int | None, seed: int) -> Iterable[int]:
        """The sets that are taken, by their places among all; there can be more than `random.sample` takes."""
        if limit is None or limit >= self.total:
            return range(self.total)
        drawn, generator = {0}, random.Random(seed)
        while len(drawn) < limit:
            drawn.add(generator.randrange(self.total))
        return sorted(drawn)

    def _place(self, number: int) -> tuple[str, tuple[int, ...]]:
        """The template of a set, and the place of each finding's synonym."""
        chosen = []
        for words in reversed(list(self.synonyms.values())):
            number, place = divmod(number, len(words))
            chosen.append(place)
        return list(self.templates)[number], tuple(reversed(chosen))

    def _named(self, numbers: Iterable[int]) -> Iterator[tuple[str, tuple[str, tuple[int, ...]]]]:
        """Names: the template, then each finding whose synonym is not the first, with the synonym's number.

        Where such a name could be too long, or belong to two sets, all sets have the numbers of the synonyms instead.
        """
        several = {name: at for at, (name, words) in enumerate(self.synonyms.items()) if len(words) > 1}
        short = {name: re.sub(r"[^A-Za-z0-9]", "", name) for name in several}
        tails = [f"-{word}{len(self.synonyms[name])}" for name, word in short.items()]
        longest = max(map(len, self.templates)) + sum(map(len, tails))
        # A digit at the end of a finding could be read as one of the number after it.
        readable = longest <= 64 and len({word.lower() for word in short.values()}) == len(short)
        readable = readable and all(word and not word[-1].isdigit() for word in short.values())
        names = set()
        for number in numbers:
            template, chosen = self._place(number)
            if readable:
                words = [f"{short[name]}{chosen[at] + 1}" for name, at in several.items() if chosen[at]]
            else:
                words = [str(chosen[at] + 1) for at in several.values()]
            name = "-".join([template, *words])
            if not SET_NAME.fullmatch(name) or name.lower() in names:
                raise ConfigError(
                    f"{self.path}: the set name '{name}' is longer than 64 characters, or two sets have it, perhaps in "
                    "other case; shorten or change the names of the templates, or give fewer findings several synonyms."
                )
            names.add(name.lower())  # sets are files of a bundle, and not every file system tells case apart
            yield name, (template, chosen)

    def _entries(self, template: str, chosen: Sequence[int]) -> tuple[FindingPrompts, ...]:
        words = [own[place] for own, place in zip(self.synonyms.values(), chosen, strict=True)]
        sides = self.templates[template]
        return tuple(
            FindingPrompts(finding, *_rendered(sides, word)) for finding, word in zip(self.synonyms, words, strict=True)
        )


def read_templates(path: Path, dataset_findings: Callable[[str], Sequence[str]]) -> PromptTemplates:
    """The wordings of a YAML or JSON file with the keys `templates`, `findings` and `synonyms`.

    templates: {name: text, [texts] or {positive: ..., negative: ...}}, each text with {finding}, or with {Finding} for
    a capital letter. synonyms: {finding: [texts]}. findings: a list of names, or the name of a dataset, which
    `dataset_findings` answers; default: those with synonyms. A finding without synonyms is asked by its own name in
    lower case. Raises ConfigError with file and key, also if two wordings give the same texts.
    """
    content = mapping(parse_prompt_file(path), f"{path}", "templates and synonyms")
    if unknown := [key for key in content if key not in _KEYS]:
        raise ConfigError(f"{path}: unknown key '{unknown[0]}': {did_you_mean(unknown[0], _KEYS)}.")
    templates = {}
    for name, value in mapping(content.get("templates"), f"{path}, templates", "texts by name").items():
        if not SET_NAME.fullmatch(name):
            raise ConfigError(
                f"{path}: the template name '{name}' must have 1 to 64 letters, digits, '_' and '-'; rename it."
            )
        templates[name] = _template(value, f"{path}, template '{name}'")
    wordings = PromptTemplates(path, templates, _synonyms(content, path, dataset_findings))
    _check_distinct(wordings)
    return wordings


def _template(value: object, where: str) -> tuple[Texts, Texts]:
    sides = value if isinstance(value, dict) else {"positive": value}
    if unknown := [str(key) for key in sides if key not in ("positive", "negative")]:
        raise ConfigError(f"{where}: unknown key '{unknown[0]}'; only 'positive' and 'negative' are read.")
    if "positive" not in sides:
        raise ConfigError(f"{where}: no positive text; give at least one.")
    texts = {side: _listed(side_value, where, side) for side, side_value in sides.items()}
    for text in itertools.chain.from_iterable(texts.values()):
        if not any(place in text for place in _PLACES) or re.search(r"[{}]", _filled(text, "")):
            raise ConfigError(f"{where}: '{text}' needs {_PLACES[0]} or {_PLACES[1]}, and no other brace; correct it.")
    return texts["positive"], texts.get("negative", ())


def _synonyms(
    content: Mapping[str, object], path: Path, dataset_findings: Callable[[str], Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    given: dict[str, object] = {}
    if "synonyms" in content:
        given = mapping(content["synonyms"], f"{path}, synonyms", "texts by finding")
    findings = content.get("findings", list(given))
    names = list(dataset_findings(findings)) if isinstance(findings, str) else findings
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise ConfigError(f"{path}, findings: expected a list of names, or the name of a dataset; correct it.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"{path}, findings: '{twice[0]}' is listed twice; remove one.")
    if unknown := [name for name in given if name not in names]:
        raise ConfigError(f"{path}, synonyms: '{unknown[0]}' is not a finding: {did_you_mean(unknown[0], names)}.")
    synonyms = {}
    for name in names:
        where = f"{path}, synonyms of '{name}'"
        synonyms[name] = _listed(given.get(name, [name.lower()]), where, "synonyms")
        if twice := [text for text in synonyms[name] if synonyms[name].count(text) > 1]:
            raise ConfigError(f"{where}: '{twice[0]}' is listed twice; remove one.")
        if braced := [text for text in synonyms[name] if re.search(r"[{}]", text)]:
            raise ConfigError(f"{where}: '{braced[0]}' has a brace, which belongs to templates; remove it.")
    return synonyms


def _listed(value: object, where: str, side: str) -> tuple[str, ...]:
    """A text, or a list with at least one."""
    texts = texts_of([value] if isinstance(value, str) else value, where, side)
    if not texts:
        raise ConfigError(f"{where}: the list is empty; give at least one text.")
    return texts


def _filled(template: str, word: str) -> str:
    return template.replace(_PLACES[0], word).replace(_PLACES[1], word[:1].upper() + word[1:])


def _check_distinct(wordings: PromptTemplates) -> None:
    """Raises ConfigError if two choices give the same texts: a set that differs in nothing would count as a wording.

    Spaces do not count, and neither does how an accent is written: tokenizers read both alike.
    """

    def read(side: Texts) -> Texts:
        return tuple(" ".join(unicodedata.normalize("NFC", text).split()) for text in side)

    texts = {
        name: [[tuple(map(read, _rendered(sides, word))) for word in words] for words in wordings.synonyms.values()]
        for name, sides in wordings.templates.items()
    }
    for name, of_findings in texts.items():
        for finding, own in zip(wordings.synonyms, of_findings, strict=True):
            if len(set(own)) < len(own):
                raise ConfigError(
                    f"{wordings.path}, template '{name}': two synonyms of '{finding}' give the same text; remove one."
                )
    for one, two in itertools.combinations(texts, 2):
        if all(set(a) & set(b) for a, b in zip(texts[one], texts[two], strict=True)):
            raise ConfigError(
                f"{wordings.path}: the templates '{one}' and '{two}' give the same texts for every finding; remove one "
                "template or synonym."
            )


def _rendered(sides: tuple[Texts, Texts], word: str) -> tuple[Texts, Texts]:
    positive, negative = (tuple(_filled(text, word) for text in texts) for texts in sides)
    return positive, negative


def prompt_file_text(sets: PromptSets, *, json_form: bool = False) -> str:
    """The sets as a prompt file, in YAML or JSON, for `read_prompt_file`."""
    content = {
        name: {
            entry.finding: {"positive": entry.positive, "negative": entry.negative}
            if entry.negative
            else entry.positive
            for entry in entries
        }
        for name, entries in sets.items()
    }
    if json_form:
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    # A JSON value is YAML too; names are quoted, because YAML reads some words as no text.
    lines = [
        line
        for name, entries in content.items()
        for line in (
            f"{_quoted(name)}:",
            *(f"  {_quoted(finding)}: {_quoted(listed)}" for finding, listed in entries.items()),
        )
    ]
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
