"""Where token ids come from: WordPiece vocabularies the user has, and CLIP's byte-pair encoding from open_clip.

Nothing is fetched from the network. A WordPiece vocabulary comes from `--tokenizer DIR` (vocab.txt or
tokenizer.json) or from the local Hugging Face cache (HF_HOME and HF_HUB_CACHE are honoured). Every tokenizer pads on
the right to the longest text of a call, which does not change the features: padding is
masked (docs/parity.md §3.4), or the causal mask hides what follows the end token (§3.1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError, MissingExtraError
from ...engines.tokenizing import BackendTokenizer, HashTokenizer, TokenBatch, Tokenizer, WordPieceTokenizer
from ...engines.tokenizing.backend import require_tokenizers

__all__ = [
    "ClipTokenizer",
    "HashTokenizer",
    "TokenBatch",
    "Tokenizer",
    "WordPieceTokenizer",
    "find_wordpiece",
    "read_vocabulary",
]

_START, _END = "<start_of_text>", "<end_of_text>"
_SPLIT = rf"(?i){_START}|{_END}|'s|'t|'re|'ve|'m|'ll|'d|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"


class ClipTokenizer(BackendTokenizer):
    """OpenAI's byte-level BPE (docs/parity.md §3.1), from the table open_clip bundles.

    It expects cleaned, lower-case text: it goes behind the cleaning step "clip".
    """

    def __init__(self, context: int) -> None:
        try:
            from open_clip.tokenizer import SimpleTokenizer
        except ImportError as error:
            raise MissingExtraError("CLIP prompts need open_clip_torch: pip install 'xbench-fast[export]'.") from error
        require_tokenizers()
        table = SimpleTokenizer(context_length=context)
        self.context = context
        self.vocabulary_size = int(table.vocab_size)
        record = {"kind": "clip-bpe", "source": "open_clip", "vocabulary_size": self.vocabulary_size}
        super().__init__(_byte_pairs(table.encoder, table.bpe_ranks, context), record, 0)


def _byte_pairs(vocabulary: dict[str, int], ranks: dict[tuple[str, str], int], context: int) -> Any:
    from tokenizers import Regex
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Split
    from tokenizers.pre_tokenizers import Sequence as Steps
    from tokenizers.processors import TemplateProcessing

    merges = sorted(ranks, key=ranks.__getitem__)
    backend = Backend(BPE(vocabulary, merges, end_of_word_suffix="</w>"))
    backend.add_special_tokens([_START, _END])
    words = Split(Regex(_SPLIT), behavior="removed", invert=True)
    backend.pre_tokenizer = Steps([words, ByteLevel(add_prefix_space=False, use_regex=False)])
    frame = [(token, vocabulary[token]) for token in (_START, _END)]
    backend.post_processor = TemplateProcessing(single=f"{_START} $A {_END}", special_tokens=frame)
    backend.enable_truncation(context)
    return backend


def find_wordpiece(
    folder: Path | None, repositories: Sequence[str], context: int, **rules: bool
) -> WordPieceTokenizer | None:
    """The vocabulary in `folder`, or that of the first of `repositories` in the local Hugging Face cache.

    `rules` are those of `WordPieceTokenizer`. Returns None when `folder` is None and no repository is cached. Raises
    ConfigError when `folder` was given and holds no WordPiece vocabulary.
    """
    if folder is not None:
        return WordPieceTokenizer(read_vocabulary(folder), context, folder.resolve().name, **rules)
    for repository in repositories:
        for name in ("vocab.txt", "tokenizer.json"):
            path = _cached(repository, name)
            if path is not None:
                return WordPieceTokenizer(_read(path), context, repository, **rules)
    return None


def _cached(repository: str, name: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    path = try_to_load_from_cache(repository, name)
    return Path(path) if isinstance(path, str) else None


def read_vocabulary(folder: Path) -> dict[str, int]:
    """Piece -> id, from vocab.txt or tokenizer.json in `folder`. Raises ConfigError."""
    for name in ("vocab.txt", "tokenizer.json"):
        if (folder / name).is_file():
            return _read(folder / name)
    raise ConfigError(
        f"The folder {folder} holds neither vocab.txt nor tokenizer.json; give --tokenizer another folder."
    )


def _read(path: Path) -> dict[str, int]:
    try:
        text = path.read_bytes().decode("utf-8")
        if path.suffix == ".txt":
            return _from_lines(text, path)
        model = json.loads(text)["model"]
        if model.get("type", "WordPiece") != "WordPiece":
            raise ConfigError(f"{path} is a {model['type']} tokenizer, not WordPiece; give --tokenizer another folder.")
        return {str(piece): int(number) for piece, number in model["vocab"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"The vocabulary {path} cannot be read: {error!r}; give --tokenizer another folder."
        ) from error


def _from_lines(text: str, path: Path) -> dict[str, int]:
    pieces = text.split("\n")
    if pieces and not pieces[-1]:
        pieces.pop()
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        raise ConfigError(f"The vocabulary {path} repeats a piece; take the model's own file again.")
    return vocabulary
