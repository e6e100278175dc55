"""CLIP's byte-pair encoding, from the table that open_clip bundles."""

from __future__ import annotations

from typing import Any

from ...engines.tokenizing import BackendTokenizer
from ...engines.tokenizing.tokenizers import require_tokenizers
from ..libraries import required

_START, _END = "<start_of_text>", "<end_of_text>"
_SPLIT = rf"(?i){_START}|{_END}|'s|'t|'re|'ve|'m|'ll|'d|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"


class ClipTokenizer(BackendTokenizer):
    """OpenAI's byte-level BPE (docs/parity.md §3.1), from the table open_clip bundles.

    It expects cleaned, lower-case text, from the cleaning step "clip". `refuses_long`: a longer text is an error.
    """

    def __init__(self, context: int, *, refuses_long: bool = False) -> None:
        require_tokenizers()
        table = required("open_clip.tokenizer", "The tokenizer of CLIP").SimpleTokenizer(context_length=context)
        self.context = context
        self.vocabulary_size = int(table.vocab_size)
        record = {"kind": "clip-bpe", "source": "open_clip", "vocabulary_size": self.vocabulary_size}
        backend = _byte_pairs(table.encoder, table.bpe_ranks)
        if refuses_long:
            record["limit"] = context
        else:
            backend.enable_truncation(context)
        super().__init__(backend, record, 0)


def _byte_pairs(vocabulary: dict[str, int], ranks: dict[tuple[str, str], int]) -> Any:
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
    return backend
