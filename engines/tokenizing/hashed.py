"""A tokenizer without a vocabulary, for stand-in weights."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError
from .batch import TokenBatch, pad

__all__ = ["HashTokenizer"]


class HashTokenizer:
    """A stand-in for a vocabulary that is not on this machine, for stand-in weights only: word -> hash -> id.

    Ids 0 to 4 keep their BERT meaning ([PAD], [UNK], [CLS], [SEP], [MASK]); a word or mark of the lower-cased text
    gets an id in 5 .. `vocabulary_size` - 1 from its SHA-256. Deterministic, and meaningless to a trained model.
    """

    def __init__(self, vocabulary_size: int, context: int) -> None:
        if vocabulary_size < 6 or context < 3:
            raise ConfigError(
                f"A stand-in tokenizer needs at least 6 ids and 3 positions, not {vocabulary_size} and {context}."
            )
        self.vocabulary_size = vocabulary_size
        self.context = context

    @property
    def record(self) -> dict[str, Any]:
        """Kind and size; the kind says that this is not the model's vocabulary."""
        return {"kind": "stand-in-hash", "source": "none", "vocabulary_size": self.vocabulary_size}

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        words = (re.findall(r"\w+|[^\w\s]", text.lower()) for text in texts)
        return pad([[2, *[self._id(word) for word in row[: self.context - 2]], 3] for row in words], 0)

    def _id(self, word: str) -> int:
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return 5 + number % (self.vocabulary_size - 5)
