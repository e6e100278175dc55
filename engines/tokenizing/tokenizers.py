"""Tokenizers: their protocol and the batch of ids they return, tokenizers of the package `tokenizers`, a stand-in that
hashes words, and the cleaning of texts before them as the official pipelines do it."""

from __future__ import annotations

import hashlib
import html
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, MissingExtraError
from ..extras import RUNNING, missing_package

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
"""The special tokens of BERT."""
_NUMBERING = re.compile(r"[0-9]+\.")
_WORDS = re.compile(r"\w+")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


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
        return pad([[2, *[self._id(word) for word in row[: self.context - 2]], 3] for row in words], 0)

    def _id(self, word: str) -> int:
        number = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
        return 5 + number % (self.vocabulary_size - 5)


def require_tokenizers() -> None:
    """Raises MissingExtraError unless the package `tokenizers` can be imported."""
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(missing_package("tokenizers", *RUNNING, user="A prompt")) from error


class BackendTokenizer:
    """A `tokenizers.Tokenizer` (`backend`), which also adds the special tokens and cuts a text at the context.

    With `limit` in the record no text is cut: one of more tokens is an error.
    """

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
        """Ids and mask of `texts`, padded to the longest. Raises ConfigError for a text above the limit."""
        rows = [encoding.ids for encoding in self.backend.encode_batch(list(texts))]
        longest, limit = max(map(len, rows), default=0), self._record.get("limit")
        if limit is not None and longest > limit:
            raise ConfigError(
                f"A text has {longest} tokens; this model takes {limit} at most, and its authors cut none: shorten it."
            )
        return pad(rows, self._padding)


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
        raise MissingExtraError(missing_package("ftfy", *RUNNING, user="A prompt of this model")) from error
    return " ".join(html.unescape(html.unescape(ftfy.fix_text(text))).split())


def clean_clip(text: str) -> str:
    """`clean_web` and lower case, as CLIP's tokenizer does it. Raises MissingExtraError."""
    return clean_web(text).lower()


def clean_canonical(text: str) -> str:
    """`clean_web`, then no punctuation (an underscore becomes a blank) and lower case, as open_clip cleans texts of
    SigLIP. Raises MissingExtraError."""
    return " ".join(clean_web(text).replace("_", " ").translate(_NO_PUNCTUATION).lower().split())


def clean_siglip(text: str) -> str:
    """The blank that transformers' class of SigLIP 1 puts before a text, as SentencePiece writes it."""
    return "\u2581" + text.replace("\u2581", " ")


def clean_query(text: str) -> str:
    """BioViL's cleaning of a prompt (docs/parity.md §3.8): no marks at its end.

    Raises ConfigError for a text that holds a special token.
    """
    if special := next((token for token in SPECIAL if token in text), None):
        raise ConfigError(
            f"The prompt '{text[:40]}' holds the special token {special}, which this model refuses; leave it out."
        )
    return text.rstrip("!?.")


CLEANINGS: dict[str, Callable[[str], str]] = {
    "carzero": clean_report,
    "open_clip": clean_web,
    "clip": clean_clip,
    "canonical": clean_canonical,
    "siglip": clean_siglip,
    "biovil": clean_query,
}
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
