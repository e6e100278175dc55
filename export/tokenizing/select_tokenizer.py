"""Which tokenizer a model's prompts go through on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.errors import ConfigError
from ...engines.tokenizing import CleanedTokenizer
from .vocabularies import ClipTokenizer, HashTokenizer, Tokenizer, WordPieceTokenizer, find_wordpiece

if TYPE_CHECKING:
    from ..adapter import Adapter

__all__ = ["select_tokenizer"]

Found = ClipTokenizer | WordPieceTokenizer | HashTokenizer


def select_tokenizer(
    adapter: Adapter, folder: Path | None = None, progress: Callable[[str], None] = lambda line: None
) -> Tokenizer:
    """The model's tokenizer: bundled (CLIP), carried by the checkpoint (demo), from `folder`, or from the local cache.

    It has the model's rules and cleaning step. Stand-in weights fall back to a stand-in tokenizer, which is said and
    recorded. Raises ConfigError when there is none, when `folder` is not there, or when its vocabulary is not the
    model's.
    """
    spec = adapter.tokenizer
    found = _find(adapter, folder, progress)
    if not isinstance(found, HashTokenizer):
        _check(found, adapter)
    if not spec.cleaning:
        return found
    marked = () if isinstance(found, HashTokenizer) or not spec.marks_continuations else found.continuations
    return CleanedTokenizer(found, spec.cleaning, marked)


def _find(adapter: Adapter, folder: Path | None, progress: Callable[[str], None]) -> Found:
    spec = adapter.tokenizer
    if spec.kind == "clip-bpe":
        if folder is not None:
            raise ConfigError(f"{adapter.name} uses the tokenizer bundled with open_clip; leave out --tokenizer.")
        return ClipTokenizer(adapter.context)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}; give --tokenizer the folder with vocab.txt or tokenizer.json.")
    rules = {"lower_case": spec.lower_case, "separator": spec.separator, "special_words": spec.special_words}
    if spec.vocabulary is not None:
        pieces = {piece: number for number, piece in enumerate(spec.vocabulary)}
        return WordPieceTokenizer(pieces, adapter.context, "the checkpoint", **rules)
    found = find_wordpiece(folder, spec.sources, adapter.context, **rules)
    if found is not None and (adapter.weights == "published" or folder is not None):
        return found
    if adapter.weights == "published":
        raise ConfigError(
            f"No vocabulary for {adapter.name}: give --tokenizer DIR with its vocab.txt or tokenizer.json, or fetch it "
            f"into the Hugging Face cache first (huggingface-cli download {spec.sources[0]} vocab.txt)."
        )
    if found is not None and found.vocabulary_size <= adapter.vocabulary_size:
        return found
    progress("no vocabulary found: stand-in weights get a stand-in tokenizer (give --tokenizer DIR for the real one)")
    return HashTokenizer(adapter.vocabulary_size, adapter.context)


def _check(tokenizer: ClipTokenizer | WordPieceTokenizer, adapter: Adapter) -> None:
    """Every id has a row in the embedding table, and the special tokens are the model's."""
    if tokenizer.vocabulary_size > adapter.vocabulary_size:
        raise ConfigError(
            f"The tokenizer ({tokenizer.record['source']}) has {tokenizer.vocabulary_size} pieces, the table of "
            f"{adapter.name} has {adapter.vocabulary_size}: it belongs to another model; give --tokenizer its own."
        )
    ends = adapter.tokenizer.ends
    if isinstance(tokenizer, WordPieceTokenizer) and ends not in (None, tokenizer.ends):
        raise ConfigError(
            f"The tokenizer ({tokenizer.record['source']}) has [CLS] and [SEP] at {tokenizer.ends}, {adapter.name} was "
            f"trained with {ends}: it belongs to another model; give --tokenizer its own."
        )
