"""The tokenizer of a model's own library, which says what is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["ReferenceTokenizer"]


@dataclass(frozen=True)
class ReferenceTokenizer:
    """`ids` gives the ids of each text as `Adapter.encoder_ids` does; `package` is the name of the library for pip."""

    package: str
    ids: Callable[[Sequence[str]], Sequence[Sequence[int]]]
