"""Tokenizers of the package `tokenizers`: BERT's WordPiece from a vocabulary, and those stored in a bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError, MissingExtraError
from .batch import TokenBatch, pad

__all__ = ["BackendTokenizer", "WordPieceTokenizer", "require_tokenizers"]

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def require_tokenizers() -> None:
    """Raises MissingExtraError unless the package `tokenizers` can be imported."""
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "Prompts need tokenizers, which is not installed; install xbench-fast[cpu] or xbench-fast[gpu]."
        ) from error


class BackendTokenizer:
    """A `tokenizers.Tokenizer` (`backend`), which also adds the special tokens and cuts a text at the context."""

    def __init__(self, backend: Any, record: Mapping[str, Any], padding: int) -> None:
        self.backend = backend
        self._record = dict(record)
        self._padding = padding

    @property
    def record(self) -> dict[str, Any]:
        """Kind, rules, where the vocabulary came from, its size, and the digest where the kind has one."""
        return dict(self._record)

    @property
    def continuations(self) -> list[int]:
        """Ids of the word pieces that continue a word."""
        vocabulary: dict[str, int] = self.backend.get_vocab(with_added_tokens=False)
        return sorted(number for piece, number in vocabulary.items() if piece.startswith("##"))

    def __call__(self, texts: Sequence[str]) -> TokenBatch:
        """Ids and mask of `texts`, padded to the longest."""
        return pad([encoding.ids for encoding in self.backend.encode_batch(list(texts))], self._padding)


class WordPieceTokenizer(BackendTokenizer):
    """BERT's WordPiece: clean, lower-case, strip accents, split, [CLS] pieces [SEP], cut at `context` tokens.

    `vocabulary` maps pieces to ids. Only the vocabulary is taken from a file, never the rules, which belong to the
    model: `lower_case` (also strips accents), `separator` (whether a text ends in [SEP]) and `special_words`
    (whether "[SEP]" written out in a text is that token, or an ordinary bracket, letters and a bracket).
    Raises ConfigError for a vocabulary without the special tokens, and MissingExtraError.
    """

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        context: int,
        source: str,
        *,
        lower_case: bool = True,
        separator: bool = True,
        special_words: bool = False,
    ) -> None:
        require_tokenizers()
        missing = [piece for piece in SPECIAL if piece not in vocabulary]
        if missing:
            raise ConfigError(
                f"The vocabulary {source} has no {missing[0]}; give the folder of a BERT WordPiece tokenizer."
            )
        self.vocabulary_size = max(vocabulary.values()) + 1
        self.context = context
        self.ends = (vocabulary["[CLS]"], vocabulary["[SEP]"])
        ordered = sorted(vocabulary, key=vocabulary.__getitem__)
        lines = "\n".join(f"{vocabulary[piece]}\t{piece}" for piece in ordered)
        record = {
            "kind": "wordpiece",
            "lower_case": lower_case,
            "separator": separator,
            "special_words": special_words,
            "source": source,
            "vocabulary_size": self.vocabulary_size,
            "vocabulary_sha256": hashlib.sha256(lines.encode()).hexdigest(),  # lines "id<tab>piece" by id
        }
        backend = _wordpiece(vocabulary, lower_case=lower_case, separator=separator, special_words=special_words)
        backend.enable_truncation(context)
        super().__init__(backend, record, vocabulary["[PAD]"])


def _wordpiece(vocabulary: Mapping[str, int], *, lower_case: bool, separator: bool, special_words: bool) -> Any:
    from tokenizers import Tokenizer as Backend
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    backend = Backend(WordPiece(dict(vocabulary), unk_token="[UNK]", max_input_chars_per_word=100))
    if special_words:
        backend.add_special_tokens([piece for piece in (*SPECIAL, "[MASK]") if piece in vocabulary])
    backend.normalizer = BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=lower_case
    )
    backend.pre_tokenizer = BertPreTokenizer()
    frame = ("[CLS]", "[SEP]") if separator else ("[CLS]",)
    backend.post_processor = TemplateProcessing(
        single=" $A ".join(frame) if separator else "[CLS] $A",
        special_tokens=[(piece, vocabulary[piece]) for piece in frame],
    )
    return backend
