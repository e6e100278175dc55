"""The tokenizer of a model's own library or authors, which says what is right, and a phrase with its ids in the
vocabularies of the published text encoders; another tokenizer gives other ids."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...engines.tokenizing import BackendTokenizer

_PHRASE = "Atelectasis and pleural effusion"

PUBMED_BERT = (_PHRASE, (2, 25809, 1717, 3110, 3344, 1690, 10106, 10852, 3))
"""BiomedCLIP, KAD and DeViDe."""

BERT_CASED_OPEN = (_PHRASE, (101, 8756, 18465, 14229, 1105, 185, 1513, 12602, 174, 3101, 17268))
"""Bio_ClinicalBERT as MedKLIP and MAVL use it: lower-cased, and without [SEP] at the end."""

BERT_CASED = (_PHRASE, (*BERT_CASED_OPEN[1], 102))
"""The same with [SEP]: CARZero."""

CLIP_BPE = (_PHRASE.lower(), (49406, 992, 944, 6538, 533, 537, 926, 33948, 1490, 9364, 49407))


@dataclass(frozen=True)
class ReferenceTokenizer:
    """`ids` gives the ids of each text as `Adapter.encoder_ids` does; `package` is the name of the library for pip."""

    package: str
    ids: Callable[[Sequence[str]], Sequence[Sequence[int]]]


ReferenceOf = Callable[["BackendTokenizer", int], ReferenceTokenizer]
"""The reference for a tokenizer that was found, with its vocabulary, and a context."""


def clip_reference(words: BackendTokenizer, context: int) -> ReferenceTokenizer:
    """CLIP's tokenizer as open_clip has it, up to the last end token; what follows has no effect."""
    from open_clip.tokenizer import SimpleTokenizer

    table = SimpleTokenizer(context_length=context)

    def ids(texts: Sequence[str]) -> list[list[int]]:
        rows = table(list(texts)).tolist()
        return [row[: len(row) - row[::-1].index(table.eot_token_id)] for row in rows]

    return ReferenceTokenizer("open_clip_torch", ids)


def bert_reference(cleaning: str, words: BackendTokenizer, context: int) -> ReferenceTokenizer:
    """transformers' BertTokenizer with the pieces of `words`, in lower case, after the authors' `cleaning`."""
    from ...engines.tokenizing import CLEANINGS

    clean = CLEANINGS[cleaning] if cleaning else str
    return ReferenceTokenizer("transformers", partial(_bert_ids, _bert(words), clean, context))


def open_clip_bert_reference(words: BackendTokenizer, context: int) -> ReferenceTokenizer:
    """The same after open_clip's own cleaning, as `open_clip.get_tokenizer` joins them for BiomedCLIP."""
    from open_clip.tokenizer import get_clean_fn

    return ReferenceTokenizer("open_clip_torch", partial(_bert_ids, _bert(words), get_clean_fn("whitespace"), context))


_Encode = Callable[..., dict[str, list[list[int]]]]


def _bert(words: BackendTokenizer) -> _Encode:
    from transformers import BertTokenizer

    places = {number: piece for piece, number in words.backend.get_vocab(with_added_tokens=False).items()}
    lines = [places.get(number, f"[absent {number}]") for number in range(1 + max(places))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        made: _Encode = BertTokenizer(str(path), do_lower_case=True)
    return made


def _bert_ids(encode: _Encode, clean: Callable[[str], str], context: int, texts: Sequence[str]) -> list[list[int]]:
    return encode([clean(text) for text in texts], truncation=True, max_length=context)["input_ids"]
