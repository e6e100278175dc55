"""Compares a model's tokenizer with that of the library that the model comes from (docs/parity.md §2)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ...engines.errors import ConfigError, XBenchError
from ...engines.prompts.prompt_files import SEPARATOR
from ...engines.tokenizing import BackendTokenizer, CleanedTokenizer, Tokenizer
from ...engines.tokenizing.tokenizers import SPECIAL
from .library_tokenizer import short_reason
from .reference import ReferenceTokenizer

if TYPE_CHECKING:
    from ..adapter import Adapter

TEXTS = (
    "pneumonia",
    "",
    " ",
    "Pleural Effusion",
    "PNEUMONIA IN THE LEFT LOWER LOBE",
    "a chest x-ray, showing PNEUMONIA; right_lower lobe!",
    "left-sided pleural effusion, with atelectasis; it's the patient's 2nd image (AP)!",
    "No acute cardiopulmonary process.",
    "Sentence one. Sentence two.",
    "  many   spaces\tand\nlines ",
    "under_score _and__ two",
    "what? why! (yes) [no] {maybe} a/b a\\b a|b #1 @2 $3 ^ ~ ` = + < >",
    "\"quotes\" 'single' \u201ccurved\u201d \u2018too\u2019 \u2014 and \u2026",
    "1,234.56 mm3, 5cm x 10 % of T1-T12",
    "...",
    "Caf\u00e9 na\u00efve \u00dcBUNG Sj\u00f6gren",
    "\u0153d\u00e8me pulmonaire aigu, \u00c9PANCHEMENT",
    "cafe\u0301 with a combining accent",
    "\ufb01brosis and \u00bd of a lung",
    "\u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 stra\u00dfe",
    "\u80f8\u90e8 X\u7dda",
    "\U0001fac1 lung",
    "zero\u200bwidth and\u00a0fixed blanks",
    "&lt;b&gt; and &amp;amp; of HTML",
    "badly decoded na\u00c3\u00afve",
    "<s> a [SEP] and </s> <pad> [CLS] [PAD] <unk> <eos> <bos> [MASK] written out",
    "<start_of_text> a <end_of_text> <|startoftext|> and <|endoftext|>",
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
    place = next(place for place, (one, other) in enumerate(zip(row, wanted, strict=True)) if one != other)
    return f"{row[place]} instead of {wanted[place]} at position {place + 1} of {len(row)}"
