"""A folder's tokenizer as transformers loads it, of any class, and with any files in addition to tokenizer.json."""

from __future__ import annotations

import importlib.util
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engines.errors import ConfigError, MissingExtraError
from ...engines.tokenizing.tokenizers import require_tokenizers
from ..libraries import required, short_reason

ENDLESS = 10**9
"""transformers writes 1e30 where a tokenizer states no longest text."""

_SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
_PUNCTUATION = r"[!-/:-@\[-`{-~]"  # string.punctuation


@dataclass(frozen=True)
class FolderWords:
    """A tokenizer without truncation and padding, and what its files say about both.

    `longest` is the greatest number of tokens, `cut_left` and `pad_left` on which side a text is cut and filled,
    `padding` the id that fills it, if one is named, and `separator` the id of the piece that ends a text.
    `cleaning` is a step before it, if it needs one (a key of `engines.tokenizing.CLEANINGS`).
    """

    backend: Any
    longest: int | None
    cut_left: bool
    pad_left: bool
    padding: int | None
    separator: int | None
    cleaning: str = ""


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer that `transformers.AutoTokenizer` makes of `folder`. Downloads nothing, runs no code of the folder.

    Raises ConfigError, and MissingExtraError where a package is not installed.
    """
    held = next((name for name in _SENTENCEPIECE if (folder / name).is_file()), None)
    transformers = required("transformers", f"The tokenizer in {folder}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if only_vocabulary(folder):
                return transformers.BertTokenizerFast(str(folder / "vocab.txt"))
            return transformers.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # the library raises many classes
        if held is not None and importlib.util.find_spec("sentencepiece") is None:
            raise MissingExtraError(
                f"{folder} holds a tokenizer in Python code, and its {held} needs the package sentencepiece: pip "
                "install sentencepiece."
            ) from error
        raise ConfigError(
            f"transformers cannot load the tokenizer in {folder} ({short_reason(error)}); add the "
            "tokenizer_config.json that names its class, or save the tokenizer as tokenizer.json where it was made."
        ) from error


def only_vocabulary(folder: Path) -> bool:
    """Whether `folder` holds BERT's vocab.txt and no file that names a class."""
    return (folder / "vocab.txt").is_file() and not any(folder.glob("*.json"))


def library_words(tokenizer: Any, title: str, *, cleaned: bool = False) -> FolderWords:
    """What a tokenizer of transformers does with a text, in a form that runs without transformers.

    `title` names the tokenizer in messages; `cleaned`: the model can have a cleaning step of the tokenizer. Raises
    ConfigError for a tokenizer in Python code; SigLIP's, with its cleaning step, is known.
    """
    require_tokenizers()
    from tokenizers import Tokenizer as Backend

    cleaning = ""
    if getattr(tokenizer, "is_fast", False):
        backend = Backend.from_str(tokenizer.backend_tokenizer.to_str())
    elif cleaned and type(tokenizer).__name__ == "SiglipTokenizer":
        try:
            backend, cleaning = _siglip(tokenizer), "siglip"
        except Exception as error:  # of transformers or tokenizers, about another kind of model
            raise ConfigError(
                f"{title} (SiglipTokenizer) cannot be converted, as it is no Unigram model of SentencePiece "
                f"({short_reason(error)}); write an adapter for it."
            ) from error
    else:
        raise ConfigError(
            f"{title} ({type(tokenizer).__name__}) has no form as tokenizer.json, so it cannot run without its Python "
            "code."
        )
    backend.no_truncation()
    backend.no_padding()
    longest = int(tokenizer.model_max_length)
    return FolderWords(
        backend,
        longest if 0 < longest < ENDLESS else None,
        tokenizer.truncation_side == "left",
        tokenizer.padding_side == "left",
        tokenizer.pad_token_id,
        tokenizer.sep_token_id,
        cleaning,
    )


def _siglip(tokenizer: Any) -> Any:
    """SigLIP 1: a Unigram model of SentencePiece behind lower case without punctuation, and the end token after it.
    Texts come from the cleaning step "siglip"."""
    from tokenizers import AddedToken, Regex
    from tokenizers import Tokenizer as Backend
    from tokenizers.normalizers import Lowercase, Replace, Sequence, Strip
    from tokenizers.pre_tokenizers import Metaspace
    from tokenizers.processors import TemplateProcessing
    from transformers.convert_slow_tokenizer import SpmConverter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that bytes are not handled, which they are
        converter = SpmConverter(tokenizer)
    converter.handle_byte_fallback = bool(converter.proto.trainer_spec.byte_fallback)
    # SentencePiece reads its control pieces as letters where a text has them; only the class's own tokens are special.
    tree = json.loads(converter.converted().to_str())
    tree["added_tokens"] = [token for token in tree["added_tokens"] if not token["special"]]
    backend = Backend.from_str(json.dumps(tree))
    before = [*([Lowercase()] * bool(tokenizer.do_lower_case)), Replace(Regex(_PUNCTUATION), "")]
    blanks = [Replace(Regex(r"\s+"), " "), Strip(), Replace(Regex("\u2581$"), "")]
    if converter.proto.normalizer_spec.precompiled_charsmap:  # it makes a blank of U+2581, which is merged with others
        blanks.append(Replace("\u2581 ", "\u2581"))
    backend.normalizer = Sequence([*before, *blanks, backend.normalizer])
    backend.pre_tokenizer = Metaspace(prepend_scheme="never")
    end = str(tokenizer.eos_token)
    backend.post_processor = TemplateProcessing(single=f"$A {end}", special_tokens=[(end, int(tokenizer.eos_token_id))])
    for content in sorted({str(token) for token in tokenizer.all_special_tokens}):
        backend.add_special_tokens([AddedToken(content, lstrip=True, rstrip=True, normalized=False, special=True)])
    return backend
