"""Compares a model's tokenizer with the tokenizer of the model's own library (docs/parity.md §2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ...engines.errors import ConfigError, XBenchError
from ...engines.prompts.prompt_files import SEPARATOR
from ...engines.tokenizing import BackendTokenizer, CleanedTokenizer, Tokenizer
from ...engines.tokenizing.tokenizers import SPECIAL
from ..libraries import short_reason
from .reference import ReferenceTokenizer

if TYPE_CHECKING:
    from ..adapter import Adapter

TEXTS: tuple[str, ...] = (
    *json.loads(resources.files(__package__).joinpath("compared_texts.json").read_text(encoding="utf-8")),
    "pneumothorax" * 40,
    " ".join(f"finding {number} of the left lung," for number in range(120)),
    " ".join(f"Finding_{number} OF THE Right Lung;" for number in range(120)),
)
"""Capitals, punctuation, blanks, accents, other scripts, special tokens written out, and texts above every context."""


def compare_texts(adapter: Adapter, words: Tokenizer, prompts: Iterable[str] = ()) -> dict[str, Any] | None:
    """Compares the ids of `TEXTS` and `prompts`; returns the record for bundle.json: how many texts, their sha256, the
    library and its version. None where the model names no reference, or has a stand-in tokenizer.

    Of `TEXTS` those are left out that the model refuses, and those with special tokens that it reads as letters. Raises
    ConfigError for the first text whose ids differ.
    """
    spec, inner = adapter.tokenizer, words.inner if isinstance(words, CleanedTokenizer) else words
    if spec.reference is None or not isinstance(inner, BackendTokenizer):
        return None
    reference = spec.reference
    if not isinstance(reference, ReferenceTokenizer):
        reference = reference(inner, adapter.context)
    release = version(reference.package)
    letters = spec.kind == "wordpiece" and not spec.special_words  # of "[SEP]" where the adapter says so
    texts = [text for text in TEXTS if not (letters and any(token in text for token in SPECIAL))]
    pairs = [(text, _rows(adapter, words, text)) for text in texts]
    compared = {text: row for text, row in pairs if row is not None}
    for prompt in prompts:
        for text in prompt.split(SEPARATOR):
            if text not in compared:
                compared[text] = adapter.encoder_ids(words([text]))[0]
    for text, row in compared.items():
        try:
            wanted = [int(number) for number in reference.ids([text])[0]]
        except Exception as error:  # of another library
            raise ConfigError(
                f"{reference.package} {release} cannot read the text '{text[:60]}' for {adapter.name} "
                f"({short_reason(error)}), so the ids of texts cannot be compared."
            ) from error
        if row != wanted:
            raise ConfigError(
                f"{adapter.name} would get other ids than from {reference.package} {release} for the text "
                f"'{text[:60]}': {_difference(row, wanted)}; what its tokenizer does to a text cannot be exported, "
                "write an adapter for it."
            )
    joined = "\0".join(compared)
    digest = hashlib.sha256(joined.encode()).hexdigest()
    return {"texts": len(compared), "sha256": digest, "library": reference.package, "version": release}


def _rows(adapter: Adapter, words: Tokenizer, text: str) -> list[int] | None:
    try:
        return adapter.encoder_ids(words([text]))[0]
    except XBenchError:
        return None  # a text that the model refuses, by its length or its special tokens


def _difference(row: Sequence[int], wanted: Sequence[int]) -> str:
    """Where two rows of ids begin to differ."""
    if len(row) != len(wanted):
        return f"{len(row)} of them instead of {len(wanted)}"
    position = next(position for position, (one, other) in enumerate(zip(row, wanted, strict=True)) if one != other)
    return f"{row[position]} instead of {wanted[position]} at position {position + 1} of {len(row)}"
