"""The tokenizer of a model's own folder, with the rules that its files state."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ...engines.tokenizing import BackendTokenizer
from .folder_files import read_words

__all__ = ["FolderTokenizer"]

_PUNCTUATION = r"[!-/:-@\[-`{-~]"


class FolderTokenizer(BackendTokenizer):
    """The tokenizer of `folder` (see `folder_files`), of any kind, cut at `context` tokens, or at fewer if it says so.

    Texts are padded on the right with the id `padding`; `left` says that the model's own pipeline pads on the left.
    With `canonical` a text is lower-cased and loses its punctuation first, as open_clip prepares those of SigLIP.
    `source` is its name in the bundle, by default the folder's. Raises ConfigError and MissingExtraError.
    """

    def __init__(self, folder: Path, context: int, *, canonical: bool = False, source: str = "") -> None:
        words = read_words(folder)
        backend = words.backend
        if canonical:
            _canonicalise(backend)
        self.context = min(context, words.longest or context)
        backend.enable_truncation(self.context, direction="left" if words.cut_left else "right")
        self.padding = int((words.padding and backend.token_to_id(words.padding)) or 0)
        self.left = words.pad_left
        self.separator = words.separator
        self.vocabulary_size = 1 + max(backend.get_vocab().values(), default=0)
        record = {
            "kind": "tokenizer.json",
            "model": type(backend.model).__name__,
            "source": source or folder.resolve().name,
            "vocabulary_size": self.vocabulary_size,
            "padding": self.padding,
            "sha256": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        }
        super().__init__(backend, record, self.padding)


def _canonicalise(backend: Any) -> None:
    from tokenizers import Regex
    from tokenizers.normalizers import Lowercase, Replace, Sequence, Strip

    steps = [Replace("_", " "), Replace(Regex(_PUNCTUATION), ""), Lowercase(), Replace(Regex(r"\s+"), " "), Strip()]
    backend.normalizer = Sequence([*steps, *([] if backend.normalizer is None else [backend.normalizer])])
