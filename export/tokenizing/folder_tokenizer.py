"""The tokenizer of a model's own folder, with the rules that its files state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError, MissingExtraError
from ...engines.strict_json import parse_json
from ...engines.tokenizing import BackendTokenizer
from ...engines.tokenizing.tokenizers import require_tokenizers
from ...engines.user_files import entries
from ..libraries import short_reason
from .library_tokenizer import ENDLESS, FolderWords, library_words, load_tokenizer

_READY, _RULES, _NAMED = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
_OLDER = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
FILES = (_READY, *_OLDER)
"""Files that hold a vocabulary, the best first."""

_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_BERT = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
}


def read_words(folder: Path) -> FolderWords:
    """The tokenizer in `folder`, as transformers loads it, or by its files where transformers cannot, because its class
    is code of the folder or transformers is not installed.

    Raises ConfigError, and MissingExtraError where a package is not installed.
    """
    require_tokenizers()
    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}; give --tokenizer the folder with the model's tokenizer.json.")
    if (folder / _READY).is_file():
        ready = _ready(folder)
        try:
            return library_words(load_tokenizer(folder), f"The tokenizer in {folder}")
        except (ConfigError, MissingExtraError):
            return ready
    vocabularies = [name for name in _OLDER if (folder / name).is_file()]
    if not vocabularies:
        names = ", ".join([path.name for path in entries(folder)][:5])
        raise ConfigError(
            f"The folder {folder} holds no tokenizer ({names or 'it is empty'}); give --tokenizer a folder with "
            "tokenizer.json, vocab.txt, vocab.json and merges.txt, or a SentencePiece model."
        )
    return library_words(load_tokenizer(folder), f"The tokenizer in {folder}")


def _ready(folder: Path) -> FolderWords:
    from tokenizers import Tokenizer as Backend

    path = folder / _READY
    rules = {**_table(folder / _NAMED), **_table(folder / _RULES)}
    try:
        tree = parse_json(path.read_text(encoding="utf-8"))
        normalizer = tree.get("normalizer") or {}
        if normalizer.get("type") == "BertNormalizer":
            normalizer.update({key: rules[name] for key, name in _BERT.items() if name in rules})
        backend = Backend.from_str(json.dumps(tree))
    except Exception as error:  # the package raises plain Exception
        raise ConfigError(
            f"The tokenizer {path} cannot be read ({short_reason(error)}); take the model's own file."
        ) from error
    tokens = {name: _content(rules[name]) for name in _TOKENS if rules.get(name)}
    _add_special(backend, rules, tokens)
    cut, fill = backend.truncation or {}, backend.padding or {}
    backend.no_truncation()
    backend.no_padding()
    lengths = (rules.get("model_max_length"), cut.get("max_length"))
    end, blank = tokens.get("sep_token"), tokens.get("pad_token", fill.get("pad_token"))
    return FolderWords(
        backend,
        next((int(value) for value in lengths if isinstance(value, int | float) and 0 < value < ENDLESS), None),
        rules.get("truncation_side", cut.get("direction")) == "left",
        rules.get("padding_side", fill.get("direction")) == "left",
        None if blank is None else backend.token_to_id(blank),
        None if end is None else backend.token_to_id(end),
    )


def _add_special(backend: Any, rules: Mapping[str, Any], tokens: Mapping[str, str]) -> None:
    """Makes the named tokens special, as transformers does: written out in a text, they are tokens. New ones get ids
    behind the vocabulary."""
    from tokenizers import AddedToken

    stated = rules.get("added_tokens_decoder")
    more = rules.get("extra_special_tokens", rules.get("additional_special_tokens"))
    extra = [*(stated.values() if isinstance(stated, dict) else ()), *(more if isinstance(more, list) else ())]
    added = backend.get_added_tokens_decoder().values()
    present = {token.content for token in added}
    for token in [*extra, *tokens.values()]:
        content = _content(token)
        if content and content not in present:
            keys = ("single_word", "lstrip", "rstrip", "normalized")
            marks = {key: bool(token[key]) for key in keys if key in token} if isinstance(token, dict) else {}
            special = token.get("special", True) if isinstance(token, dict) else True
            made = AddedToken(content, **{"normalized": False, **marks}, special=special)
            (backend.add_special_tokens if special else backend.add_tokens)([made])
            present.add(content)


def _table(path: Path) -> dict[str, Any]:
    """A JSON file that need not be there. Raises ConfigError for one that is no table."""
    try:
        table = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read ({short_reason(error)}); take the model's own file.") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path} is not a table of rules; take the model's own file.")
    return table


def _content(token: Any) -> str:
    """A token's text: the entry itself, or a field of a table with its marks."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


class FolderTokenizer(BackendTokenizer):
    """The tokenizer of `folder` (see `FolderWords`), of any kind, cut at `context` tokens, or at fewer if the tokenizer
    states fewer.

    With `words`, which a library read of the folder, it is cut at `context` in any case. Texts are padded on the right
    with the id `padding`; `left` says that the model's own pipeline pads on the left. `source` is its name in the
    bundle, by default the folder's. With `refuses_long` a text is not cut: a longer one is an error. Raises ConfigError
    and MissingExtraError.
    """

    def __init__(
        self,
        folder: Path,
        context: int,
        *,
        words: FolderWords | None = None,
        source: str = "",
        refuses_long: bool = False,
    ) -> None:
        if words is None:
            words = read_words(folder)
            context = min(context, words.longest or context)
        backend, self.context = words.backend, context
        if not refuses_long:
            backend.enable_truncation(self.context, direction="left" if words.cut_left else "right")
        self.padding = int(words.padding or 0)
        self.left = words.pad_left
        self.vocabulary_size = 1 + max(backend.get_vocab().values(), default=0)
        record = {
            "kind": "tokenizer.json",
            "model": type(backend.model).__name__,
            "source": source or folder.resolve().name,
            "vocabulary_size": self.vocabulary_size,
            "padding": self.padding,
            "sha256": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        }
        if refuses_long:
            record["limit"] = self.context
        super().__init__(backend, record, self.padding)
