"""Cleans prompts before the tokenizer as the official pipelines do, and adds the mask values that CARZero needs."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError
from .batch import TokenBatch, Tokenizer

__all__ = ["CLEANINGS", "CleanedTokenizer", "clean_clip", "clean_report", "clean_web"]

_NUMBERING = re.compile(r"[0-9]+\.")
_WORDS = re.compile(r"\w+")


def clean_report(text: str) -> str:
    """CARZero's cleaning of a report (docs/parity.md §3.6): lower-case ASCII words only.

    The text is cut at numbering such as "2." and at full stops; a piece of a single word is dropped, so that
    "pneumonia" becomes the empty string.
    """
    pieces = [piece for part in _NUMBERING.split(text.replace("\n", " ")) for piece in part.split(".")]
    kept = [words for words in (_WORDS.findall(piece.lower()) for piece in pieces) if len(words) > 1]
    ascii_only = [[word.encode("ascii", "ignore").decode() for word in words] for words in kept]
    return " ".join(" ".join(word for word in words if word) for words in ascii_only)


def clean_web(text: str) -> str:
    """open_clip's cleaning (docs/parity.md §3.2): broken Unicode repaired, HTML entities
    resolved twice, white space collapsed. Raises MissingExtraError."""
    try:
        import ftfy
    except ImportError as error:
        message = "These prompts need ftfy, which is not installed; install xbench-fast[cpu] or xbench-fast[gpu]."
        raise MissingExtraError(message) from error
    return " ".join(html.unescape(html.unescape(ftfy.fix_text(text))).split())


def clean_clip(text: str) -> str:
    """`clean_web` and lower case, as CLIP's tokenizer does it. Raises MissingExtraError."""
    return clean_web(text).lower()


CLEANINGS: dict[str, Callable[[str], str]] = {"carzero": clean_report, "open_clip": clean_web, "clip": clean_clip}
"""The cleaning steps by their names in bundle.json."""


class CleanedTokenizer:
    """A tokenizer after the cleaning step `name`, one of `CLEANINGS`.

    Word pieces that continue a word (`continuations`, their ids) get the mask 2 instead of 1: CARZero sums the vectors
    of a word's pieces, and the ids alone do not say which belong together.
    """

    def __init__(self, inner: Tokenizer, name: str, continuations: Sequence[int] = ()) -> None:
        self.inner, self._name, self._clean = inner, name, CLEANINGS[name]
        self._continuations: NDArray[np.int64] = np.asarray(sorted(continuations), dtype=np.int64)

    @property
    def record(self) -> dict[str, Any]:
        """The inner tokenizer's, the cleaning step, and whether continuations are marked."""
        marks = {"marks_continuations": True} if len(self._continuations) else {}
        return {**self.inner.record, "cleaning": self._name, **marks}

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        batch = self.inner([self._clean(text) for text in texts])
        continued = np.isin(batch.ids, self._continuations) & (batch.mask == 1)
        return TokenBatch(batch.ids, batch.mask + continued)
