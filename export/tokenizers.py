"""Texts to token ids: WordPiece from files the user has, CLIP's byte-pair encoding as bundled with open_clip.

Nothing is fetched from the network. A WordPiece vocabulary comes from `--tokenizer DIR` (vocab.txt or
tokenizer.json) or from the local Hugging Face cache (HF_HOME and HF_HUB_CACHE are honoured). Every tokenizer pads on
the right to the longest text of a call, which does not change the features (KAD parity specification: padding is
masked; CLIP parity specification: the causal mask hides what follows the end token).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..engines.errors import ConfigError, MissingExtraError

__all__ = ["ClipTokenizer", "HashTokenizer", "TokenBatch", "Tokenizer", "WordPieceTokenizer", "find_wordpiece"]

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


@dataclass(frozen=True)
class TokenBatch:
    """Token ids int64 [T, L], padded on the right; mask int64 [T, L], 1 on the text and 0 on the padding."""

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]

    def mask_for(self, inputs: Sequence[str]) -> NDArray[np.int64] | None:
        """The mask, if the text graph's `inputs` name one."""
        return self.mask if "attention_mask" in inputs else None


class Tokenizer(Protocol):
    """Callable on a list of texts; `record` is what bundle.json says about it."""

    @property
    def record(self) -> dict[str, Any]: ...

    def __call__(self, texts: Sequence[str]) -> TokenBatch: ...


def _pad(rows: Sequence[Sequence[int]], padding: int) -> TokenBatch:
    width = max(map(len, rows), default=0)
    ids = np.full((len(rows), width), padding, dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return TokenBatch(ids, mask)


class WordPieceTokenizer:
    """BERT's uncased WordPiece: clean, lower-case, strip accents, split, [CLS] pieces [SEP], cut at `context` tokens.

    `vocabulary` maps pieces to ids. Only the vocabulary is taken from a file, never the casing rule: that belongs to
    the model (KAD parity specification, "Text encoder").
    """

    def __init__(self, vocabulary: Mapping[str, int], context: int, source: str) -> None:
        try:
            from tokenizers import Tokenizer as Backend
            from tokenizers.models import WordPiece
            from tokenizers.normalizers import BertNormalizer
            from tokenizers.pre_tokenizers import BertPreTokenizer
            from tokenizers.processors import TemplateProcessing
        except ImportError as error:
            raise MissingExtraError(
                "WordPiece prompts need the package tokenizers: pip install 'xbench-fast[export]'."
            ) from error
        missing = [piece for piece in _SPECIAL if piece not in vocabulary]
        if missing:
            raise ConfigError(
                f"The vocabulary {source} has no {missing[0]}; give the folder of a BERT WordPiece tokenizer."
            )
        self.vocabulary_size = max(vocabulary.values()) + 1
        self.context = context
        self.ends = (vocabulary["[CLS]"], vocabulary["[SEP]"])
        self._padding = vocabulary["[PAD]"]
        self._source = source
        backend = Backend(WordPiece(dict(vocabulary), unk_token="[UNK]", max_input_chars_per_word=100))
        backend.add_special_tokens([piece for piece in (*_SPECIAL, "[MASK]") if piece in vocabulary])
        backend.normalizer = BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
        )
        backend.pre_tokenizer = BertPreTokenizer()
        backend.post_processor = TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[(piece, vocabulary[piece]) for piece in ("[CLS]", "[SEP]")]
        )
        backend.enable_truncation(context)
        self._backend = backend
        lines = "\n".join(
            f"{number}\t{piece}" for piece, number in sorted(vocabulary.items(), key=lambda item: item[1])
        )
        self._digest = hashlib.sha256(lines.encode()).hexdigest()

    @property
    def record(self) -> dict[str, Any]:
        """Kind, rules and the vocabulary's digest (sha256 over lines "id<tab>piece" in the order of the ids)."""
        return {
            "kind": "wordpiece",
            "lower_case": True,
            "source": self._source,
            "vocabulary_size": self.vocabulary_size,
            "vocabulary_sha256": self._digest,
        }

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        return _pad([encoding.ids for encoding in self._backend.encode_batch(list(texts))], self._padding)


class ClipTokenizer:
    """OpenAI's byte-level BPE (CLIP parity specification, "Text encoder"); needs open_clip, which bundles its table."""

    def __init__(self, context: int) -> None:
        try:
            from open_clip.tokenizer import SimpleTokenizer
        except ImportError as error:
            raise MissingExtraError("CLIP prompts need open_clip_torch: pip install 'xbench-fast[export]'.") from error
        self._backend = SimpleTokenizer(context_length=context)
        self.context = context
        self.vocabulary_size = int(self._backend.vocab_size)

    @property
    def record(self) -> dict[str, Any]:
        """Kind, source and size."""
        return {"kind": "clip-bpe", "source": "open_clip", "vocabulary_size": self.vocabulary_size}

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        start, end = self._backend.sot_token_id, self._backend.eot_token_id
        rows = []
        for text in texts:
            row = [start, *self._backend.encode(text), end]
            rows.append(row if len(row) <= self.context else [*row[: self.context - 1], end])
        return _pad(rows, 0)


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
        return _pad([[2, *[self._id(word) for word in row[: self.context - 2]], 3] for row in words], 0)

    def _id(self, word: str) -> int:
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return 5 + number % (self.vocabulary_size - 5)


def find_wordpiece(folder: Path | None, repositories: Sequence[str], context: int) -> WordPieceTokenizer | None:
    """The vocabulary in `folder`, or that of the first of `repositories` in the local Hugging Face cache.

    Returns None when `folder` is None and no repository is cached. Raises ConfigError when `folder` was given and
    holds no WordPiece vocabulary.
    """
    if folder is not None:
        vocabulary = _from_folder(folder)
        return WordPieceTokenizer(vocabulary, context, folder.resolve().name)
    for repository in repositories:
        for name in ("vocab.txt", "tokenizer.json"):
            path = _cached(repository, name)
            if path is not None:
                return WordPieceTokenizer(_read(path), context, repository)
    return None


def _cached(repository: str, name: str) -> Path | None:
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return None
    path = try_to_load_from_cache(repository, name)
    return Path(path) if isinstance(path, str) else None


def _from_folder(folder: Path) -> dict[str, int]:
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
