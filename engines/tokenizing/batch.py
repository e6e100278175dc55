"""The protocol that every tokenizer implements, the batch of token ids it returns, and one that hashes words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError

__all__ = [
    "HashTokenizer",
    "TokenBatch",
    "Tokenizer",
    "pad",
]


@dataclass(frozen=True)
class TokenBatch:
    """Token ids int64 [T, L], padded on the right; mask int64 [T, L], above 0 on the text and 0 on the padding."""

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]

    def mask_for(self, inputs: Sequence[str]) -> NDArray[np.int64] | None:
        """The mask, if the text graph's `inputs` name one."""
        return self.mask if "attention_mask" in inputs else None


class Tokenizer(Protocol):
    """Callable on a list of texts; `record` is its entry in bundle.json."""

    @property
    def record(self) -> dict[str, Any]: ...

    def __call__(self, texts: Sequence[str]) -> TokenBatch: ...


def pad(rows: Sequence[Sequence[int]], padding: int) -> TokenBatch:
    """Rows of ids to one batch, as wide as the longest."""
    width = max(map(len, rows), default=0)
    ids = np.full((len(rows), width), padding, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return TokenBatch(ids, mask)


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
