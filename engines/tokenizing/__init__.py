"""Tokenizers: texts to token ids, as each model's authors do it, without torch."""

from __future__ import annotations

from .backend import BackendTokenizer, WordPieceTokenizer
from .batch import HashTokenizer, TokenBatch, Tokenizer
from .cleaning import CLEANINGS, CleanedTokenizer
from .stored import TOKENIZER_FILE, bundle_tokenizer, stored_files

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
