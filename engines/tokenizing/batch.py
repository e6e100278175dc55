"""The protocol that every tokenizer implements, and the batch of token ids it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["TokenBatch", "Tokenizer", "pad"]


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
