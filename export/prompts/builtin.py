"""The built-in prompt sets: the findings of each dataset, and each model's words for them.

`prompts_of_models.json` holds, for each dataset, the ordered findings, and for each prompt style the strings of every
finding with their status (official | adapted | own | ..., docs/parity.md §7). MedKLIP and MAVL use whole
sentences, which are in `books`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from ...engines.errors import ConfigError
from ...engines.prompts.prompt_files import FindingPrompts, PromptSets
from ...engines.prompts.prompt_set import FINDINGS_SET
from ...engines.registry import did_you_mean, plain_name

BOOKS = ("mavl", "medklip")
"""Styles of whole sentences, see `books`."""

_LIKE = {"devide": ("kad", "assumed_as_kad")}
"""Style -> the style whose words it uses, and the status they then have (docs/parity.md §7)."""


def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("prompts_of_models.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def _patterned(table: Mapping[str, Any], style: str) -> dict[str, dict[str, Any]]:
    """The prompts of a style that puts each finding into the same sentences, if it is one: `nouns_of` is the style that
    has the finding's noun, after `nouns_after`."""
    pattern = table["patterns"].get(style)
    if pattern is None:
        return {}
    words: dict[str, dict[str, Any]] = table["prompts"][pattern["nouns_of"]]
    nouns = {label: entry["positive"][0].removeprefix(pattern["nouns_after"]) for label, entry in words.items()}
    sides = ("positive", "negative")
    return {
        label: {side: [text.format(noun) for text in pattern[side]] for side in sides} | {"status": pattern["status"]}
        for label, noun in nouns.items()
    }


def prompt_styles() -> list[str]:
    """The models with built-in strings ("kad", "clip", ...)."""
    return sorted([*_table()["prompts"], *_LIKE, *BOOKS])


def dataset_findings() -> dict[str, tuple[str, ...]]:
    """Set name -> its findings, in order."""
    return {name: tuple(labels) for name, labels in _table()["sets"].items()}


def builtin_sets(style: str) -> PromptSets:
    """The sets of all datasets in the words of `style`. Raises ConfigError for an unknown style."""
    if style not in prompt_styles():
        raise ConfigError(
            f"There are no built-in prompts in the style '{style}': {did_you_mean(style, prompt_styles())}; give your "
            "own with --prompts FILE."
        )
    if style in BOOKS:
        from .books import own_wording

        return {
            name: tuple(own_wording(style, label) for label in labels) for name, labels in dataset_findings().items()
        }
    table = _table()
    source, status = _LIKE.get(style, (style, None))
    words: dict[str, dict[str, Any]] = {**_patterned(table, source), **table["prompts"][source]}
    exceptions: dict[str, dict[str, Any]] = table["exceptions"].get(style, {})
    return {
        name: tuple(
            FindingPrompts(
                label, tuple(entry["positive"]), tuple(entry.get("negative", ())), status or str(entry["status"])
            )
            for label in labels
            if (entry := {**words, **exceptions.get(name, {})}.get(label)) is not None
        )
        for name, labels in table["sets"].items()
    }


def known_sets(sets: PromptSets, findings: Sequence[str]) -> PromptSets:
    """The built-in `sets` of a supervised model, and `FINDINGS_SET` with all its findings.

    It answers the entries of which it knows every text, and those labels of the dataset that are its own findings, if
    only case and signs differ.
    """
    named = {plain_name(finding): finding for finding in findings}
    answered = {}
    for name, entries in sets.items():
        labels = dataset_findings()[name]
        asked = {label: named[plain] for label in labels if (plain := plain_name(label)) in named}
        prompts = {label: FindingPrompts(label, (finding,), status="official") for label, finding in asked.items()}
        prompts |= {entry.finding: entry for entry in entries if set(findings).issuperset(entry.texts)}
        answered[name] = tuple(prompts[label] for label in labels if label in prompts)
    all_findings = tuple(FindingPrompts(finding, (finding,), status="official") for finding in findings)
    return {**{name: entries for name, entries in answered.items() if entries}, FINDINGS_SET: all_findings}
