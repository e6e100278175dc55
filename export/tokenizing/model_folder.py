"""The tokenizer in a model's own folder, as transformers reads it."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError, MissingExtraError
from ...engines.tokenizing import BackendTokenizer
from ...engines.tokenizing.backend import require_tokenizers

__all__ = ["FolderTokenizer"]

_PUNCTUATION = r"[!-/:-@\[-`{-~]"


class FolderTokenizer(BackendTokenizer):
    """The tokenizer of `folder` (tokenizer.json, or the files transformers makes one of), cut at `context` tokens.

    `padding` is the id that fills a text, `left` whether on the left. With `canonical` a text is lower-cased and loses
    its punctuation first, as open_clip prepares those of SigLIP. Nothing is downloaded, and no code of the folder runs.
    Raises ConfigError and MissingExtraError.
    """

    def __init__(self, folder: Path, context: int, *, canonical: bool = False) -> None:
        require_tokenizers()
        from tokenizers import Tokenizer as Backend

        words = _read(folder)
        backend = Backend.from_str(words.backend_tokenizer.to_str())
        backend.no_padding()
        backend.enable_truncation(context)
        if canonical:
            _canonicalise(backend)
        self.context = context
        self.padding = int(words.pad_token_id or 0)
        self.left = words.padding_side == "left"
        self.separator = words.sep_token_id
        self.vocabulary_size = 1 + max(backend.get_vocab().values(), default=0)
        record = {
            "kind": "tokenizer.json",
            "source": folder.resolve().name,
            "vocabulary_size": self.vocabulary_size,
            "sha256": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        }
        super().__init__(backend, record, self.padding)


def _read(folder: Path) -> Any:
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}; give --tokenizer the folder with the model's tokenizer.json.")
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        message = "The tokenizer of a folder needs transformers, which is not installed: pip install transformers."
        raise MissingExtraError(message) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            words = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises many classes
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise ConfigError(
            f"The tokenizer in {folder} cannot be read ({reason}); give --tokenizer a folder with its tokenizer.json."
        ) from error
    if not hasattr(words, "backend_tokenizer"):
        raise ConfigError(f"The tokenizer in {folder} has no tokenizer.json; save it as one with transformers.")
    return words


def _canonicalise(backend: Any) -> None:
    from tokenizers import Regex
    from tokenizers.normalizers import Lowercase, Replace, Sequence, Strip

    steps = [Replace("_", " "), Replace(Regex(_PUNCTUATION), ""), Lowercase(), Replace(Regex(r"\s+"), " "), Strip()]
    backend.normalizer = Sequence([*steps, *([] if backend.normalizer is None else [backend.normalizer])])
