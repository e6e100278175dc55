"""The tokenizer in a bundle: the files that store it, and how it is loaded from them."""

from __future__ import annotations

from typing import Any

from ..bundle import Bundle
from ..errors import BundleError, ConfigError
from .tokenizers import (
    CLEANINGS,
    BackendTokenizer,
    CleanedTokenizer,
    HashTokenizer,
    Tokenizer,
    require_tokenizers,
)

TOKENIZER_FILE = "tokenizer/tokenizer.json"
"""The vocabulary and the rules, in the form of the package `tokenizers`."""


def stored_files(tokenizer: Tokenizer) -> dict[str, bytes]:
    """Path in the bundle -> content, of all files that `bundle_tokenizer` needs besides the tokenizer's record."""
    inner = tokenizer.inner if isinstance(tokenizer, CleanedTokenizer) else tokenizer
    return {TOKENIZER_FILE: inner.backend.to_str().encode()} if isinstance(inner, BackendTokenizer) else {}


def bundle_tokenizer(bundle: Bundle) -> Tokenizer:
    """The tokenizer that encoded the bundle's prompts.

    Raises BundleError when the bundle has none (it was made by hand or by an older version) or a damaged one, and
    MissingExtraError.
    """
    record = bundle.manifest.text.get("tokenizer")
    if not isinstance(record, dict):
        raise BundleError(f"{bundle.path} says nothing of its tokenizer; export the bundle again.")
    try:
        inner = _inner(bundle, record)
        name = record.get("cleaning")
        if name is None:
            return inner
        if name not in CLEANINGS:
            raise BundleError(f"{bundle.path} cleans texts by '{name}', which this version does not know.")
        marked = (
            inner.continuations if record.get("marks_continuations") and isinstance(inner, BackendTokenizer) else ()
        )
        return CleanedTokenizer(inner, name, marked)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise BundleError(
            f"The tokenizer of {bundle.path} cannot be used: {error}; export the bundle again."
        ) from error


def _inner(bundle: Bundle, record: dict[str, Any]) -> BackendTokenizer | HashTokenizer:
    if record.get("kind") == "stand-in-hash":
        return HashTokenizer(int(record["vocabulary_size"]), int(bundle.manifest.text["context"]))
    if TOKENIZER_FILE not in bundle.manifest.files:
        raise BundleError(f"{bundle.path} carries no vocabulary ({TOKENIZER_FILE}); export the bundle again.")
    require_tokenizers()
    from tokenizers import Tokenizer as Backend

    try:
        backend = Backend.from_str((bundle.path / TOKENIZER_FILE).read_text(encoding="utf-8"))
    except Exception as error:  # the package raises plain Exception
        raise BundleError(f"{bundle.path / TOKENIZER_FILE} cannot be read ({error}); export it again.") from error
    plain = {key: value for key, value in record.items() if key not in ("cleaning", "marks_continuations")}
    return BackendTokenizer(backend, plain, int(record.get("padding", backend.token_to_id("[PAD]") or 0)))
