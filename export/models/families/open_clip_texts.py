"""How texts enter a model of open_clip: its tokenizer, cleaning and padding, as `open_clip.get_tokenizer` sets them."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....engines.errors import ConfigError
from ....engines.registry import did_you_mean
from ...adapter import TokenizerSpec
from ...checkpoints.hugging_face import cached_file
from ...libraries import short_reason
from ...tokenizing.folder_tokenizer import FILES, FolderTokenizer
from ...tokenizing.library_tokenizer import library_words, load_tokenizer, only_vocabulary
from ...tokenizing.reference import CLIP_BPE, ReferenceTokenizer
from .family import TextPadding

_CONFIG = "open_clip_config.json"
_CLEANINGS = {"whitespace": "open_clip", "lower": "clip", "canonicalize": "canonical"}
_TO_AUTO_TOKENIZER = (
    "add_bos_token", "add_eos_token", "add_prefix_space", "additional_special_tokens", "bos_token", "cls_token",
    "do_lower_case", "eos_token", "extra_special_tokens", "legacy", "mask_token", "model_max_length", "pad_token",
    "padding_side", "sep_token", "strip_accents", "tokenize_chinese_chars", "truncation_side", "unk_token", "use_fast",
)  # fmt: skip
_KEYS = {False: ("clean",), True: ("clean", "strip_sep_token", "language", *_TO_AUTO_TOKENIZER)}


def cached_folder(repository: str, file: str, title: str) -> Path:
    """The folder of `repository` in the local Hugging Face cache. Raises ConfigError where `file` is not in it."""
    path = cached_file(repository, file)
    if path is None:
        option = "--text-encoder" if file == "config.json" else "--tokenizer"
        raise ConfigError(
            f"{title} uses {repository}, which is not in the Hugging Face cache: fetch it (huggingface-cli download "
            f"{repository}) or give its folder with {option} DIR."
        )
    return path.parent


def open_clip_texts(
    model: Mapping[str, Any], title: str, folder: Path | None, snapshot: Path | None
) -> tuple[TokenizerSpec, TextPadding]:
    """CLIP's own tokenizer, or the one that the configuration `model` names: in `folder`, next to the configuration in
    `snapshot`, or in the local Hugging Face cache.

    Raises ConfigError for a key or a value that is not known, or that leaves tokens out at random, and
    MissingExtraError.
    """
    text = model["text_cfg"]
    repository, context = text.get("hf_tokenizer_name"), int(text.get("context_length", 77))
    options, mode = text.get("tokenizer_kwargs") or {}, text.get("tokenizer_mode") or ""
    _check(options, mode, title, bool(repository))
    if not repository:
        cleaning, reference = (
            _CLEANINGS[options.get("clean", "lower")],
            _reference(_library_tokenizer(model, title, None)),
        )
        return TokenizerSpec(
            "clip-bpe", ("open_clip",), cleaning=cleaning, sample=CLIP_BPE, reference=reference
        ), TextPadding()
    if folder is None and snapshot is not None and any((snapshot / name).is_file() for name in FILES):
        folder = snapshot
    folder = folder or cached_folder(repository, "tokenizer_config.json", title)
    library = _library_tokenizer(model, title, folder)
    inner = library.tokenizer
    words, last = library_words(inner, f"The tokenizer of {title}"), None
    if mode == "clips":
        words, last, context = _clips(words, inner, title), int(inner.cls_token_id), context - 1
    ready = FolderTokenizer(folder, context, words=words, source=str(repository))
    separator = words.separator if options.get("strip_sep_token") and last is None else None
    blank = 0 if separator is not None and separator == ready.padding else ready.padding
    spec = TokenizerSpec(
        "ready",
        (str(repository),),
        cleaning=_CLEANINGS[options.get("clean", "whitespace")],
        ready=ready,
        reference=_reference(library),
    )
    return spec, TextPadding(blank, ready.left and last is None, separator, last)


def _reference(library: Any) -> ReferenceTokenizer:
    return ReferenceTokenizer("open_clip_torch", lambda texts: library(list(texts)).tolist())


def _check(options: Any, mode: str, title: str, named: bool) -> None:
    where = f"{title}: text_cfg.tokenizer_kwargs"
    if not isinstance(options, Mapping):
        raise ConfigError(f"{where} is not a table of options; correct its configuration.")
    given = {key: value for key, value in options.items() if key != "reduction_mask" or value}
    if mask := given.pop("reduction_mask", None):
        raise ConfigError(
            f"{where} has the key 'reduction_mask' ('{mask}'), which leaves out words of a long text, by chance or by "
            "their kind; it cannot be exported, so cut long texts yourself and leave out the key."
        )
    for key in given:
        if key not in _KEYS[named]:
            raise ConfigError(
                f"{where} has the key '{key}', which cannot be exported: {did_you_mean(key, _KEYS[named])}."
            )
    if (clean := given.get("clean", "lower")) not in _CLEANINGS:
        raise ConfigError(f"{where} has the value '{clean}' of 'clean': {did_you_mean(str(clean), _CLEANINGS)}.")
    if mode not in ("", "clips"):
        raise ConfigError(f"{title}: text_cfg.tokenizer_mode '{mode}' cannot be exported; only 'clips' is known.")


def _library_tokenizer(model: Mapping[str, Any], title: str, folder: Path | None) -> Any:
    """What `open_clip.get_tokenizer` makes of the configuration next to the files of `folder`. Downloads nothing, runs
    no code of the folder."""
    import open_clip

    more = {} if folder is None else {"local_files_only": True, "trust_remote_code": False}
    with tempfile.TemporaryDirectory() as copy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = {key: value for key, value in model["text_cfg"].items() if key != "tokenizer_kwargs" or value}
        (Path(copy) / _CONFIG).write_text(json.dumps({"model_cfg": {**model, "text_cfg": text}}), encoding="utf-8")
        for path in [] if folder is None else folder.iterdir():
            if path.is_file() and path.name != _CONFIG:
                (Path(copy) / path.name).symlink_to(path.resolve())
        if folder is not None and only_vocabulary(folder):
            (Path(copy) / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
        try:
            return open_clip.get_tokenizer(f"local-dir:{copy}", **more)
        except Exception as error:  # of open_clip or transformers, about a value of the configuration
            if folder is not None:
                load_tokenizer(folder)  # where it fails by itself, its sentence says more
            reason = short_reason(error).replace(copy, str(folder))
            raise ConfigError(f"open_clip cannot make the tokenizer of {title}: {reason}.") from error


def _clips(words: Any, inner: Any, title: str) -> Any:
    """The words of open_clip's mode for CLIPS: the beginning and the end of a text by these tokens, whatever the
    tokenizer's own are; the class token comes last of all, behind the padding."""
    from tokenizers.processors import TemplateProcessing

    ids = {name: getattr(inner, f"{name}_token_id") for name in ("bos", "eos", "cls", "pad")}
    if lacking := [name for name, number in ids.items() if number is None]:
        raise ConfigError(
            f"{title}: text_cfg.tokenizer_mode 'clips' needs the token '{lacking[0]}_token', which its tokenizer does "
            "not name; add it to the tokenizer_config.json."
        )
    first, end = str(inner.bos_token), str(inner.eos_token)
    words.backend.post_processor = TemplateProcessing(
        single=f"{first} $A {end}", special_tokens=[(first, ids["bos"]), (end, ids["eos"])]
    )
    return replace(words, cut_left=False)
