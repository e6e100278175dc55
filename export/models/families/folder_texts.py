"""Texts as a folder of transformers has them: its tokenizer, and a text tower of its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from ....engines.errors import ConfigError
from ...adapter import TokenizerSpec
from ...tokenizing.folder_tokenizer import FolderTokenizer
from ...tokenizing.library_tokenizer import library_words, load_tokenizer
from ...tokenizing.reference import ReferenceTokenizer
from .named_tensors import Renaming
from .transformers_towers import untrained, up_to_date, without_pooler

TEXT_POOLINGS: Final = ("cls", "mean", "last", "own")
"""How tokens become the vector of a text: the first one, the mean of all, the last one, or as the class does it."""

_LONGEST = 512  # tokens of a tower without a table of positions


@dataclass
class TextTower:
    """`read`: ids and mask int64 [T, N], filled on the right -> the vectors [T, D]."""

    title: str
    module: nn.Module
    read: Callable[[Tensor, Tensor], Tensor]
    spec: TokenizerSpec
    context: int
    vocabulary_size: int
    renamed: Renaming


def text_tower(folder: Path, tokenizer: Path, pooling: str, context: int | None) -> TextTower:
    """The untrained text tower of a folder with a config.json, and the tokenizer of another, or the same; texts are cut
    at `context` tokens, by default as its tokenizer and its table of positions say.

    Raises ConfigError and MissingExtraError.
    """
    model = untrained(folder, part="text_config")
    without_pooler(model, kept=pooling == "own")
    most = _positions(model)
    if context is not None and not 2 <= context <= most:
        raise ConfigError(
            f"The text tower of {folder} takes texts of 2 to {most} tokens, not of {context} ('context')."
        )
    spec, ready, _ = folder_texts(tokenizer, tokenizer.resolve().name, context or most, filled=False)
    refuse_left(ready, tokenizer, "the text tower")
    return TextTower(
        title=f"the text tower of {folder}",
        module=model,
        read=lambda ids, mask: _pooled(model(input_ids=ids, attention_mask=mask), mask, pooling),
        spec=spec,
        context=ready.context,
        vocabulary_size=int(model.config.vocab_size),
        renamed=partial(up_to_date, model),
    )


def folder_texts(
    folder: Path, title: str, positions: int, *, filled: bool
) -> tuple[TokenizerSpec, FolderTokenizer, Any]:
    """The tokenizer of a folder, called `title` in the bundle, cut at what it states and at `positions`; and the
    library's own, which is the reference, with texts `filled` to that length or not filled.

    Raises ConfigError and MissingExtraError.
    """
    library = load_tokenizer(folder)
    words = library_words(library, f"The tokenizer in {folder}", cleaned=True)
    context = min(positions, words.longest or positions)
    ready = FolderTokenizer(folder, context, words=words)
    padding = {"padding": "max_length"} if filled else {}

    def ids(texts: Sequence[str]) -> Any:
        return library(list(texts), max_length=context, truncation=True, **padding)["input_ids"]

    reference = ReferenceTokenizer("transformers", ids)
    spec = TokenizerSpec("ready", (title,), cleaning=words.cleaning, ready=ready, reference=reference)
    return spec, ready, library


def refuse_left(ready: FolderTokenizer, folder: Path, model: str) -> None:
    """Raises ConfigError for texts that are filled on the left."""
    if ready.left:
        raise ConfigError(
            f'The tokenizer in {folder} fills texts on the left ("padding_side"), so that what {model} computes '
            'depends on the length of the longest text; set "padding_side": "right", as it was trained.'
        )


def _positions(model: Any) -> int:
    """The longest text. Tables of RoBERTa's kind begin behind the row of the filling id."""
    tables = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and "position_embedding" in name and "relative" not in name
    ]
    if not tables:
        return _LONGEST
    return min(
        int(table.num_embeddings) - (0 if table.padding_idx is None else table.padding_idx + 1) for table in tables
    )


def _pooled(states: Mapping[str, Any], mask: Tensor, pooling: str) -> Tensor:
    if pooling == "own":
        own: Tensor = states["pooler_output"]
        return own
    hidden: Tensor = states["last_hidden_state"]
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "mean":
        weights = mask[..., None].to(hidden.dtype)
        return (hidden * weights).sum(dim=1) / weights.sum(dim=1)
    last = (mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, hidden.shape[2])
    return torch.gather(hidden, 1, last)[:, 0]
