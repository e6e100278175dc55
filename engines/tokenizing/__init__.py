"""Tokenizers: texts to token ids, as each model's authors do it, without torch."""

from __future__ import annotations

from .stored import TOKENIZER_FILE, bundle_tokenizer, stored_files
from .tokenizers import (
    CLEANINGS,
    BackendTokenizer,
    CleanedTokenizer,
    HashTokenizer,
    TokenBatch,
    Tokenizer,
    WordPieceTokenizer,
)

__all__ = [
    "CLEANINGS",
    "TOKENIZER_FILE",
    "BackendTokenizer",
    "CleanedTokenizer",
    "HashTokenizer",
    "TokenBatch",
    "Tokenizer",
    "WordPieceTokenizer",
    "bundle_tokenizer",
    "stored_files",
]
