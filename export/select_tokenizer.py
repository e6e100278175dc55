"""Which tokenizer a model's prompts go through on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..engines.errors import ConfigError
from .tokenizers import ClipTokenizer, HashTokenizer, Tokenizer, WordPieceTokenizer, find_wordpiece

if TYPE_CHECKING:
    from .adapter import Adapter

__all__ = ["select_tokenizer"]

_ENDS = {"xmcmic/Med-KEBERT": (2, 3)}
"""Ids of [CLS] and [SEP] (KAD parity specification, "Text encoder"), by which other BERT vocabularies are told apart.

Sizes do not tell: PubMedBERT's vocabulary has 28895 pieces, its embedding table 30522 rows, as many as BERT's own.
"""


def select_tokenizer(
    adapter: Adapter, folder: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> Tokenizer:
    """The model's tokenizer: bundled (CLIP), carried by the checkpoint (demo), from `folder`, or from the local cache.

    Stand-in weights fall back to a stand-in tokenizer, which is said and recorded. Raises ConfigError when there is
    none, or when its size does not fit the model's embedding table.
    """
    spec = adapter.tokenizer
    if spec.kind == "clip-bpe":
        if folder is not None:
            raise ConfigError(f"{adapter.name} uses the tokenizer bundled with open_clip; leave out --tokenizer.")
        return _fitting(ClipTokenizer(adapter.context), adapter)
    if spec.vocabulary is not None:
        pieces = {piece: number for number, piece in enumerate(spec.vocabulary)}
        return _fitting(WordPieceTokenizer(pieces, adapter.context, "the checkpoint"), adapter)
    found = find_wordpiece(folder, spec.sources, adapter.context)
    if found is not None and (adapter.weights == "published" or folder is not None):
        return _fitting(found, adapter)
    if adapter.weights == "published":
        raise ConfigError(
            f"No vocabulary for {adapter.name}: give --tokenizer DIR with its vocab.txt or tokenizer.json, or fetch it "
            f"into the Hugging Face cache first (huggingface-cli download {spec.sources[0]} vocab.txt)."
        )
    if found is not None and found.vocabulary_size <= adapter.vocabulary_size:
        return _fitting(found, adapter)
    progress("no vocabulary found: stand-in weights get a stand-in tokenizer (give --tokenizer DIR for the real one)")
    return HashTokenizer(adapter.vocabulary_size, adapter.context)


def _fitting(tokenizer: ClipTokenizer | WordPieceTokenizer, adapter: Adapter) -> Tokenizer:
    """`tokenizer`, if every id has a row in the embedding table and the special tokens are the model's."""
    if tokenizer.vocabulary_size > adapter.vocabulary_size:
        raise ConfigError(
            f"The tokenizer ({tokenizer.record['source']}) has {tokenizer.vocabulary_size} pieces, the table of "
            f"{adapter.name} has {adapter.vocabulary_size}: it belongs to another model; give --tokenizer its own."
        )
    ends = _ENDS.get(adapter.tokenizer.sources[0]) if adapter.tokenizer.sources else None
    if isinstance(tokenizer, WordPieceTokenizer) and ends not in (None, tokenizer.ends):
        raise ConfigError(
            f"The tokenizer ({tokenizer.record['source']}) has [CLS] and [SEP] at {tokenizer.ends}, {adapter.name} was "
            f"trained with {ends}: it belongs to another model; give --tokenizer its own."
        )
    return tokenizer
